"""Converts the records of finished cells to the rows of results.jsonl."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from robustok.study.cells import AccuracyCell, Cell, MeasurementCell
from robustok.study.schema import Study


def result_rows(
    study: Study, cells: Iterable[Cell], records: Mapping[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """One row for each finished measurement, in the order of the plan.

    A row of perplexity has `perplexity` and `bits_per_byte`; the others have `accuracy`, its 95%
    interval and `chance`.
    """
    return [
        _row(study, cell, records)
        for cell in cells
        if cell.key in records and isinstance(cell, MeasurementCell)
    ]


def _row(
    study: Study, cell: MeasurementCell, records: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    record, model_record = records[cell.key], records[cell.model.key]
    summary = {name: value for name, value in record["result"].items() if name != "query"}
    few_shot = cell.few_shot if isinstance(cell, AccuracyCell) else None
    return {
        "study": study.name,
        "scale": study.scale,
        "pretrain": cell.model.pretrain_scheme,
        "train": cell.model.scheme,
        **_solved(model_record),
        "query": record["result"]["query"],
        "task": cell.task,
        **({"context": few_shot.scheme} if few_shot else {}),
        **summary,
        "seed": cell.seed,
        "seconds": record["seconds"],
        "model": {
            **_model(study),
            "parameters": model_record["result"]["parameters"],
            "training_seconds": model_record["seconds"],
        },
        "cell": cell.key,
        "configuration": _configuration(cell),
        "versions": record["versions"],
    }


def _solved(model_record: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a training scheme that is named by its measured strength."""
    result = model_record["result"]
    return {"train_spec": result["train_spec"]} if "train_spec" in result else {}


def _model(study: Study) -> dict[str, Any]:
    if study.model.name:
        return {"name": study.model.name}
    return {"architecture": study.model.architecture} | study.model.key_fields()


def _configuration(cell: Cell) -> dict[str, Any]:
    """Every field that decided a result: the cell's own and, by their role, its inputs'."""
    inputs = {role: _configuration(other) for role, other in cell.inputs.items()}
    return {**cell.fields, **({"inputs": inputs} if inputs else {})}
