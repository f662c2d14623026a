"""Deprecated names of fields in the YAML of a study."""

from __future__ import annotations

import warnings

import yaml

_FORMER = {
    ("context",): "few_shot",
    ("few_shot", "shots"): "examples",
    ("model", "context"): "max_length",
    ("evaluate", "queries"): "eval_schemes",
    ("perplexity", "queries"): "eval_schemes",
    ("paper", "tables", "queries"): "columns",
}  # deprecated names of fields, and the names they have now


def rename_former_fields(node: yaml.Node | None, source: str, at: tuple[str, ...] = ()) -> None:
    """Give every field under a deprecated name its present one."""
    if isinstance(node, yaml.SequenceNode):
        for value in node.value:
            rename_former_fields(value, source, at)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            inside = () if len(at) == 2 and at[0] == "scales" else at  # as in the study itself
            if (name := _FORMER.get((*inside, key.value))) is not None:
                line = key.start_mark.line + 1
                warnings.warn(
                    f"{source} line {line}: the field {key.value} is now {name}",
                    DeprecationWarning,
                    stacklevel=2,
                )
                key.value = name
            rename_former_fields(
                value, source, inside if key.value == "<<" else (*inside, key.value)
            )
