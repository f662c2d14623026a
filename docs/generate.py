"""Write what the documentation says of the code: a page of the reference for each topic.

    python docs/generate.py           # writes docs/reference/*.md
    python docs/generate.py --check   # fails where a page is not what the code says

`docs/reference.yml` lists the topics and their names. Signatures and docstrings are read from the
source by griffe, fields of a study from its JSON Schema, those of requests from the guard's table.
The pages are plain Markdown, which reads
the same on the site and in a repository browser. `tests/docs` runs the check.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import griffe
import yaml

DOCS = Path(__file__).parent
TOPICS: Mapping[str, Any] = yaml.safe_load((DOCS / "reference.yml").read_text(encoding="utf-8"))
_EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)
_ROLE = re.compile(r":[a-z]+:`(?:~[\w.]+\.)?([^`]+)`")  # of "~a.b.c" the last part
_SECTIONS = {"parameters": "Parameters", "attributes": "Attributes"}


def pages() -> Iterator[tuple[str, str]]:
    """The name and the text of each page."""
    package = griffe.load("robustok", search_paths=[DOCS.parent / "src"], resolve_aliases=True)
    for file, topic in TOPICS.items():
        parts = [f"# {topic['title']}\n", *([f"{topic['about']}\n"] if "about" in topic else [])]
        parts += ["Made from the docstrings by `python docs/generate.py`.\n"]
        for name in topic["names"]:
            parts += described(name, package[_defined_at(name)], "##")
        yield f"{file}.md", "\n".join(parts)
    yield "study-fields.md", "\n".join(["# Fields of a study\n", *study_fields()])
    yield "request-fields.md", "\n".join(["# Fields of requests\n", *request_fields()])


def _defined_at(name: str) -> str:
    """Where in the package a public name is defined, as ``lattice.Lattice``."""
    module, _, attribute = name.rpartition(".")
    value = getattr(importlib.import_module(module), attribute)
    return f"{value.__module__}.{value.__qualname__}".removeprefix("robustok.")


def described(name: str, item: Any, level: str) -> Iterator[str]:
    """Heading, signature and docstring of a class or function, then the members of a class."""
    title = name.removeprefix("robustok.") if level == "##" else name.rpartition(".")[2]
    options = list(_options(name)) if level == "##" else []
    call = f"class {name.rpartition('.')[2]}" if options else signature(name, item)
    yield f"{level} {title}\n"
    yield f"```python\n{call}\n```\n"
    yield from documented(item.docstring)
    if options:
        yield "**Fields**\n"
        yield from options
        yield ""
    if not item.is_class:
        return
    members = [m for m in item.members.values() if not m.is_alias and not m.name.startswith("_")]
    values = [m for m in members if m.docstring and _is_value(m)]
    if values:
        yield "**Properties**\n"
        yield from (f"- `{m.name}`: {_plain(_first_paragraph(m.docstring.value))}" for m in values)
        yield ""
    for member in members:
        if member.is_function and member.docstring and not _is_value(member):
            yield from described(f"{name}.{member.name}", member, f"{level}#")


def _options(name: str) -> Iterator[str]:
    """The fields of a class of settings, with their types, defaults and help texts."""
    module, _, attribute = name.rpartition(".")
    value = getattr(importlib.import_module(module), attribute)
    if not dataclasses.is_dataclass(value):
        return
    for one in dataclasses.fields(value):
        if text := one.metadata.get("help"):
            default = "" if one.default is dataclasses.MISSING else f" = {one.default!r}"
            yield f"- `{one.name}: {one.type}{default}`: {text}"


def _is_value(member: Any) -> bool:
    """Whether a member is read without a call."""
    names = {str(one.value).rpartition(".")[2] for one in getattr(member, "decorators", ())}
    return member.is_attribute or bool(names & {"property", "computed_once"})


def _first_paragraph(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


def signature(name: str, item: Any) -> str:
    """The call as it is typed, without ``self``."""
    short = name.rpartition(".")[2]
    if item.is_class:
        made_by = item.members.get("__init__")
        if made_by is None:
            return f"class {short}"
        return f"{short}({parameters(made_by)})"
    if not item.is_function:
        return f"{short}: {item.annotation}"
    returned = f" -> {item.returns}" if item.returns else ""
    line = f"{short}({parameters(item)}){returned}"
    if len(line) <= 88:
        return line
    return f"{short}(\n    " + parameters(item, ",\n    ") + f",\n){returned}"


def parameters(function: Any, between: str = ", ") -> str:
    shown, is_keyword = [], False
    before = ""  # the kind of the last one
    for one in function.parameters:
        if one.name in ("self", "cls"):
            continue
        kind = str(one.kind.value)
        if before == "positional-only" != kind:
            shown.append("/")
        before = kind
        if kind == "keyword-only" and not is_keyword:
            shown.append("*")
        is_keyword |= kind in ("keyword-only", "variadic positional")
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        annotation = f": {one.annotation}" if one.annotation else ""
        default = f" = {one.default}" if one.default is not None and not stars else ""
        shown.append(f"{stars}{one.name}{annotation}{default}")
    return between.join(shown)


def documented(docstring: Any) -> Iterator[str]:
    """The text of a docstring; its sections as lists."""
    if docstring is None:
        return
    for section in docstring.parse("google", warnings=False):
        if section.kind.value in _SECTIONS:
            yield f"**{_SECTIONS[section.kind.value]}**\n"
            for entry in section.value:
                yield f"- `{entry.name}`: {_plain(' '.join(entry.description.split()))}"
            yield ""
        elif section.kind.value == "examples":
            for _, text in section.value:
                yield f"{_plain(text)}\n"
        else:
            value = section.value
            yield f"{_plain(value if isinstance(value, str) else str(value.description))}\n"


def _plain(text: str) -> str:
    """Text with examples in fences and roles as code."""
    text = _ROLE.sub(r"`\1`", _EXAMPLE.sub(r"```pycon\n\g<0>\n```", text))
    return text.replace("``", "`") if "```" not in text else re.sub(r"(?<!`)``(?!`)", "`", text)


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


def study_fields() -> Iterator[str]:
    """A table for each section of a study; that of the study itself is the first."""
    from robustok.study.config import study_schema

    schema = study_schema()
    sections = schema["$defs"]
    yield _table(schema, sections)
    for name in _order(schema, sections):
        yield f"## {name}\n\n{_sentence(sections[name])}\n\n{_table(sections[name], sections)}"


def request_fields() -> Iterator[str]:
    """A line for each row of the guard's table that has ids."""
    from robustok.integrations import bodies

    yield (
        "Where the [guard in front of a server](../serving.md#what-is-judged) looks for ids: paths "
        "by their end, fields by the names from the top of a body. Ids that are *no prompt* must "
        "be in the vocabulary and are not judged.\n"
    )
    yield "| read by | path | fields | hold |\n|---|---|---|---|"
    for row in bodies.ROWS:
        if row.kind != bodies.OTHER:
            paths, fields = (_codes(text) for text in (row.paths, row.fields))
            yield f"| {row.server} | {paths} | {fields} | {row.kind} |"


def _codes(names: str) -> str:
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names.split()))


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


def main() -> None:
    folder, stale = DOCS / "reference", []
    folder.mkdir(exist_ok=True)
    written = dict(pages())
    for name, text in written.items():
        text = re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"
        path = folder / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
    stale += [path.name for path in folder.glob("*.md") if path.name not in written]
    if "--check" in sys.argv and stale:
        sys.exit(f"run python docs/generate.py: {', '.join(stale)} are not what the code says")


if __name__ == "__main__":
    main()
