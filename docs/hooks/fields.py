"""For the page of studies: `{{ FIELDS }}` is the fields of a study's YAML, from its JSON Schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from robustok.study.config import study_schema

_LIMITS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minItems": "{} or more",
    "maxItems": "at most {}",
    "pattern": "matches `{}`",
}
_Node = Mapping[str, Any]


def on_page_markdown(markdown: str, **_: Any) -> str:
    return markdown.replace("{{ FIELDS }}", fields()) if "{{ FIELDS }}" in markdown else markdown


def fields() -> str:
    """A table for each section; that of the study itself is the first."""
    schema = study_schema()
    sections = schema["$defs"]
    parts = [_table(schema, sections)]
    for name in _order(schema, sections):
        parts += [
            f"### {name}\n",
            f"{_sentence(sections[name])}\n",
            _table(sections[name], sections),
        ]
    return "\n".join(parts)


def _order(schema: _Node, sections: Mapping[str, _Node]) -> list[str]:
    """The names of the sections, each after the first one that refers to it."""
    names: dict[str, None] = {}

    def add(node: _Node) -> None:
        for name in re.findall(r'"#/\$defs/(\w+)"', json.dumps(node["properties"])):
            if name not in names:
                names[name] = None
                add(sections[name])

    add(schema)
    return list(names)


def _table(section: _Node, sections: Mapping[str, _Node]) -> str:
    rows = ["| field | type | default | meaning |", "|---|---|---|---|"]
    required = section.get("required", ())
    for name, field in section["properties"].items():
        refers = re.search(r"#/\$defs/(\w+)", json.dumps(field))
        about = field.get("description") or (_sentence(sections[refers[1]]) if refers else "")
        default = _code(field["default"]) if "default" in field else ""
        cells = (f"`{name}`", _type(field), "required" if name in required else default, about)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _sentence(section: _Node) -> str:
    """The first sentence of a section's description."""
    return re.split(r"(?<=\.)\s", section["description"], maxsplit=1)[0]


def _type(node: _Node) -> str:
    """The type of a field, with its limits."""
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in node:
        return " or ".join(_type(one) for one in node["anyOf"])
    if "enum" in node:
        return " or ".join(_code(one) for one in node["enum"])
    if "const" in node:
        return _code(node["const"])
    limits = [text.format(node[name]) for name, text in _LIMITS.items() if name in node]
    if node["type"] == "array":
        limits.insert(0, f"of {_type(node['items'])}")
    return " ".join([node["type"], ", ".join(limits)]).strip()


def _code(value: Any) -> str:
    return f"`{json.dumps(value, ensure_ascii=False)}`"
