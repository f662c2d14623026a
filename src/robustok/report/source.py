"""Reads the folders of a report: their rows, the answers to each question, and their studies.

What a file holds is compared with the types of its fields (:class:`~robustok.study.run.Row`): a
damaged file and that of another program are refused by their name. Numbers are not checked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, Field, with_config
from typing_extensions import TypedDict

from robustok.errors import RobustokError
from robustok.report.style import Row
from robustok.runtime.files import JsonObject, read_object
from robustok.runtime.inputs import read_rows
from robustok.study.config import STRICT, check_fields
from robustok.study.run import Count, Number, Share, StudyRecord, answers_of
from robustok.study.run import Row as MeasuredRow

_ACCEPTED = "give the folder of a study or of a command"
_NAMES = {"train_scheme", "eval_scheme", "seed"}  # of every row
_MEASUREMENT = {  # of a row with this measure
    "accuracy": {"low", "high", "n"},
    "perplexity": {"pretrain_scheme", "bits_per_byte"},
    "start_low": {"start_accuracy", "start_high"},
}


@with_config(STRICT)
class _Answer(TypedDict):
    """A line of a file of `items`."""

    key: str
    correct: NotRequired[Share | bool]
    success: NotRequired[bool]
    reached_at: NotRequired[Count | None]  # by an attack, which scores the canonical ids first
    kind: NotRequired[str]


class _Fields(TypedDict, total=False):
    choices: Annotated[list[str], Field(min_length=1)]
    label: int


class _Step(TypedDict):
    ids: list[int]
    log_probs: list[Number]


@with_config(STRICT)
class _AttackFields(_Answer):
    """A line of an attack."""

    success: bool
    reached_at: Count | None
    n_scored: Count
    text: str
    fields: _Fields
    steps: Annotated[list[_Step], Field(min_length=1)]
    score: Number | None
    canonical_score: Number | None
    canonical_ids: list[int]
    tokens: NotRequired[list[str]]
    canonical_tokens: NotRequired[list[str]]


def _with_options(attack: _AttackFields) -> _AttackFields:
    choices, label = attack["fields"].get("choices", ()), attack["fields"].get("label", -1)
    scored = {len(step["log_probs"]) for step in attack["steps"]} - {0}
    if ("tokens" in attack) != ("canonical_tokens" in attack) or len(scored) > 1:
        raise RobustokError("tokens and options of an attack differ in number")
    if choices and not 0 <= label < len(choices):
        raise RobustokError("the label is none of the choices")
    return attack


_Attack = Annotated[_AttackFields, AfterValidator(_with_options)]


@with_config(STRICT)
class _RunRecord(TypedDict, total=False):
    """run.json."""

    missing: list[MeasuredRow]


@dataclass(frozen=True)
class ReportSource:
    """A folder, its rows of results.jsonl, study.json, and run.json; empty where it has none.

    A row with accuracies has the share of right `answers` by the key of the question, and `kinds`.
    """

    folder: Path
    rows: list[Row]
    study: JsonObject
    record: JsonObject


def read_source(folder: Path) -> ReportSource:
    """Read a folder of results; raises RobustokError for one without them."""
    results = folder / "results.jsonl"
    if not results.is_file():
        inside = [str(path.parent) for path in sorted(folder.glob("*/results.jsonl"))[:3]]
        advice = f"give folders inside it, such as {' '.join(inside)}" if inside else _ACCEPTED
        raise RobustokError(f"{folder} has no results.jsonl: {advice}")
    rows = read_rows(results)
    if not rows:
        raise RobustokError(f"{results} has no rows yet: let the study finish a measurement")
    for row in rows:
        check_fields(row, MeasuredRow, results, _ACCEPTED)
        needed = [fields for one, fields in _MEASUREMENT.items() if one in row]
        if missing := sorted(_NAMES.union(*needed) - row.keys()):
            raise RobustokError(f"{results} has a row without {missing[0]}: {_ACCEPTED}")
    rows = with_questions([row | _answers(row, folder) for row in rows], results)
    study = _object(folder / "study.json", StudyRecord)
    return ReportSource(folder, rows, study, _object(folder / "run.json", _RunRecord))


def _object(path: Path, kind: Any) -> JsonObject:
    """The object of a JSON file; empty where there is no such file."""
    if not path.is_file():
        return {}
    value = read_object(path)
    check_fields(value, kind, path, _ACCEPTED)
    return value


def _answers(row: Row, folder: Path) -> Row:
    """What a report needs of the results for each question."""
    path = folder / "items" / f"{row.get('cell')}.jsonl"
    if "accuracy" not in row or not path.is_file():
        return {}
    items = read_answers(path)
    answers = answers_of(items)
    if not answers:
        return {}
    kinds = {item["key"]: item["kind"] for item in items if item.get("kind")}
    parts: Row = {"answers": answers}
    if len(set(kinds.values())) > 1:
        parts["kinds"] = kinds
    if "start=canonical" in row["eval_scheme"]:
        parts["start_answers"] = {item["key"]: float(item.get("reached_at") != 1) for item in items}
    return parts


def read_answers(path: Path) -> list[Row]:
    """The rows of a file of `items`; raises RobustokError for other rows."""
    items = read_rows(path)
    for item in items:
        is_attack = isinstance(item, dict) and "steps" in item
        check_fields(item, _Attack if is_attack else _Answer, path, _ACCEPTED)
    return items


def with_questions(rows: Sequence[Row], path: Path) -> list[Row]:
    """The rows, each with the questions and kinds that a kept folder has once for a task."""
    keys: dict[Any, list[str]] = {}
    kinds: dict[Any, Row] = {}
    for row in rows:
        task, answers, own = row.get("task"), row.get("answers"), row.get("kinds", {})
        if isinstance(own, list):
            own = dict(zip(answers or (), own, strict=False))
        kinds.setdefault(task, {}).update(own)
        if isinstance(answers, dict) and len(answers) > len(keys.get(task, ())):
            keys[task] = list(answers)
    whole = []
    for row in rows:
        task, answers = row.get("task"), row.get("answers")
        if isinstance(answers, list):
            if len(answers) > len(named := keys.get(task, [])):
                raise RobustokError(f"{path} has answers to questions without a name: {_ACCEPTED}")
            answers = dict(zip(named, answers, strict=False))
            row = row | {"answers": answers}
        if answers and kinds[task]:
            row = row | {"kinds": {key: kinds[task][key] for key in answers if key in kinds[task]}}
        whole.append(row)
    return whole
