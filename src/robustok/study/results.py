"""From the records of finished cells to the rows of results.jsonl."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from robustok.study.config import Study
from robustok.study.plan import Cell


def result_rows(
    study: Study, cells: Iterable[Cell], records: Mapping[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """One row for each finished measurement, in the order of the plan."""
    return [
        _row(study, cell, records)
        for cell in cells
        if cell.key in records and cell.kind in ("evaluate", "attack")
    ]


def _row(study: Study, cell: Cell, records: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    model = cell.inputs["model"]
    record = records[cell.key]
    result = record["result"]
    return {
        "study": study.name,
        "train": model.fields["scheme"],
        "query": result["query"],
        "accuracy": result["accuracy"],
        "low": result["low"],
        "high": result["high"],
        "n": result["n"],
        "draws": result["draws"],
        "chance": result["chance"],
        "seed": cell.fields["seed"],
        "seconds": record["seconds"],
        "model": {
            **study.model.model_dump(),
            "architecture": "llama",
            "parameters": records[model.key]["result"]["parameters"],
            "training_seconds": records[model.key]["seconds"],
        },
        **({"start_accuracy": result["start_accuracy"]} if cell.kind == "attack" else {}),
        "cell": cell.key,
        "configuration": _configuration(cell),
        "versions": record["versions"],
    }


def _configuration(cell: Cell) -> dict[str, Any]:
    """Every field that decided a result: the cell's own and, by their role, its inputs'."""
    inputs = {role: _configuration(other) for role, other in cell.inputs.items()}
    return {**cell.fields, **({"inputs": inputs} if inputs else {})}
