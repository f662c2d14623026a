"""Reads what a report shows: the folders of studies and of commands, which are studies too."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from robustok.errors import RobustokError
from robustok.report.frame import MEASURES, Row
from robustok.runtime.files import JsonObject, read_object, read_rows
from robustok.study.run import answers_of

ACCEPTED = "give the folder of a study or of a command"
_NAMES = {"train_scheme", "eval_scheme", "seed"}  # of every row
_MEASUREMENT = {  # and beside a measure
    "accuracy": {"low", "high", "n"},
    "perplexity": {"pretrain_scheme", "bits_per_byte"},
}


@dataclass(frozen=True)
class ReportSource:
    """The rows of results.jsonl of one folder, study.json, and run.json; empty where it has none.

    A row with accuracies has how far each question was answered, by its key, as `answers`, and
    where there are several kinds of questions these as `kinds`.
    """

    rows: list[Row]
    study: JsonObject
    record: JsonObject


def read_source(folder: Path) -> ReportSource:
    """Read a folder of results; raises RobustokError for one without them."""
    results = folder / "results.jsonl"
    if not results.is_file():
        raise RobustokError(f"{folder} has no results.jsonl: {ACCEPTED}")
    rows = read_rows(results)
    if not rows:
        raise RobustokError(f"{results} has no rows yet: let the study finish a measurement")
    for row in rows:
        needed = _NAMES.union(*(_MEASUREMENT.get(one, ()) for one in MEASURES if one in row))
        if not isinstance(row, dict) or not needed <= row.keys():
            raise RobustokError(f"{results} holds no results that a report shows: {ACCEPTED}")
    files = (folder / name for name in ("study.json", "run.json"))
    study, record = (read_object(file) if file.is_file() else {} for file in files)
    return ReportSource([row | _answers(row, folder) for row in rows], study, record)


def _answers(row: Row, folder: Path) -> Row:
    """What a report needs of the results for each question."""
    path = folder / "items" / f"{row.get('cell')}.jsonl"
    if "accuracy" not in row or not path.is_file():
        return {}
    items = read_rows(path)
    answers = answers_of(items)
    if not answers:
        return {}
    kinds = {item["key"]: item["kind"] for item in items if item.get("kind")}
    parts: Row = {"answers": answers}
    if len(set(kinds.values())) > 1:
        parts["kinds"] = kinds
    return parts
