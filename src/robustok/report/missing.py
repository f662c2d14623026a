"""What a study plans and its results do not have yet, for the report of an unfinished run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from robustok.errors import RobustokError
from robustok.report.accuracies import FEW_SHOT
from robustok.report.merge import training
from robustok.report.table import Row
from robustok.study.cells import AccuracyCell, MeasurementCell
from robustok.study.cells.models import FINETUNED
from robustok.study.planner import plan
from robustok.study.resolved import read_resolved

Key = tuple[Any, ...]


def missing(study: Mapping[str, Any], rows: Sequence[Row]) -> list[str]:
    """The measurements of a study without a result, as sentences; none for a finished study.

    >>> missing({"name": "files of results"}, [])
    []

    Args:
        study: the resolved configuration, as in study.json.
        rows: rows of results.jsonl.

    Models of which nothing was measured are named first, each with its seeds.
    """
    planned = _planned(study)
    measured = {_key_of(row) for row in rows}
    absent = [cell for key, cell in planned.items() if key not in measured]
    if not absent:
        return []
    done = len(planned) - len(absent)
    lines = [f"This run is not finished: {done} of {len(planned)} measurements are there."]
    started = {_model_of(cell) for key, cell in planned.items() if key in measured}
    unmeasured: dict[str, list[int]] = {}
    parts: dict[str, int] = {}
    for cell in absent:
        name, seed = _model_of(cell)
        if (name, seed) in started:
            label = f"{name}, seed {seed}"
            parts[label] = parts.get(label, 0) + 1
        elif seed not in unmeasured.setdefault(name, []):
            unmeasured[name].append(seed)
    if unmeasured:
        models = "; ".join(f"{name} ({_seeds(seeds)})" for name, seeds in unmeasured.items())
        lines.append(f"Not measured at all: {models}.")
    if parts:
        models = "; ".join(f"{label} ({count} missing)" for label, count in parts.items())
        lines.append(f"Measured in part: {models}.")
    return lines


def _planned(study: Mapping[str, Any]) -> dict[Key, MeasurementCell]:
    if "model" not in study:
        return {}
    try:
        cells = plan(read_resolved(study), read=False)
    except RobustokError:  # of another release, or a file of words that is no longer there
        return {}
    return {_key(cell): cell for cell in cells if isinstance(cell, MeasurementCell)}


def _key(cell: MeasurementCell) -> Key:
    context = cell.few_shot.scheme if isinstance(cell, AccuracyCell) and cell.few_shot else None
    model = cell.model
    return (model.pretrain_scheme, model.scheme, model.training, context, cell.task, cell.query,
            cell.seed)  # fmt: skip


def _key_of(row: Row) -> Key:
    return (row.get("pretrain"), row.get("train"), training(row), row.get("context"),
            row.get("task"), row.get("query"), row.get("seed"))  # fmt: skip


def _model_of(cell: MeasurementCell) -> tuple[str, int]:
    name = cell.model.scheme
    if cell.model.training == FINETUNED and cell.model.pretrain_scheme != "canonical":
        name = f"{name} after {cell.model.pretrain_scheme}"
    if isinstance(cell, AccuracyCell) and cell.few_shot:
        name = f"{cell.few_shot.scheme} {FEW_SHOT}"
    return name, cell.seed


def _seeds(seeds: Sequence[int]) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"
