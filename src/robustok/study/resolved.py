"""Reads a resolved study back from study.json, of this release or an earlier one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import ValidationError

from robustok.errors import RobustokError
from robustok.study.schema import Adversary, Strict, Study

_OF_ONE_SEARCH = ("distances", "start", "steps", "objective")  # a suite has its own


def read_resolved(written: Mapping[str, Any]) -> Study:
    """The study that a study.json holds; a field of a later release has its default.

    >>> from robustok.study import find_study
    >>> study = find_study("quick")
    >>> read_resolved(study.model_dump(mode="json")) == study
    True

    Args:
        written: the content of study.json.

    Raises RobustokError where it is no study.
    """
    try:
        return Study.model_validate(_by_name(written, Study))
    except ValidationError:
        raise RobustokError(
            "study.json holds no study of this release: run the study anew"
        ) from None


def _by_name(value: Any, model: type[Strict] | None) -> Any:
    """Fields under the names of the schema, in place of those that study.json has."""
    if isinstance(value, list):
        return [_by_name(one, model) for one in value]
    if model is None or not isinstance(value, Mapping):
        return value
    names = {str(f.serialization_alias or name): name for name, f in model.model_fields.items()}
    parts = {names[key] if key in names else str(key): part for key, part in value.items()}
    if model is Adversary and parts.get("suite"):
        parts = {name: part for name, part in parts.items() if name not in _OF_ONE_SEARCH}
    return {name: _by_name(part, _section(model, name)) for name, part in parts.items()}


def _section(model: type[Strict], name: str) -> type[Strict] | None:
    """The schema of a field that is a section, or a list of sections."""
    field = model.model_fields.get(name)
    pending = [field.annotation] if field else []
    while pending:
        kind = pending.pop()
        if isinstance(kind, type) and issubclass(kind, Strict):
            return kind
        pending += get_args(kind)
    return None
