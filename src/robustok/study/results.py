"""From the records of finished cells to the rows of results.jsonl."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from robustok.study.plan import Cell
from robustok.study.schema import Study

MEASURED = ("evaluate", "attack", "perplexity", "embeddings")


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
        if cell.key in records and cell.kind in MEASURED
    ]


def _row(study: Study, cell: Cell, records: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    model = cell.inputs["model"]
    record = records[cell.key]
    measured = {name: value for name, value in record["result"].items() if name != "query"}
    made = {"architecture": study.model.architecture} | study.model.sizes()
    named = {"name": study.model.name} if study.model.name else made
    return {
        "study": study.name,
        "scale": study.scale,
        "pretrain": _pretrained_with(model),
        "train": model.fields.get("scheme", "canonical"),
        "query": record["result"]["query"],
        "task": _task(study, cell),
        **({"context": cell.fields["context"]} if "context" in cell.fields else {}),
        **measured,
        "seed": cell.fields["seed"],
        "seconds": record["seconds"],
        "model": {
            **named,
            "parameters": records[model.key]["result"]["parameters"],
            "training_seconds": records[model.key]["seconds"],
        },
        "cell": cell.key,
        "configuration": _configuration(cell),
        "versions": record["versions"],
    }


def _task(study: Study, cell: Cell) -> str:
    data = cell.inputs.get("data")
    if data is None:
        return "text"
    return data.fields["name"] if data.kind == "benchmark" else data.fields["kind"]


def _pretrained_with(model: Cell) -> str:
    """The scheme of pre-training; a model that was loaded had its own, canonical one."""
    first = model.inputs.get("model", model)
    return first.fields.get("scheme", "canonical")


def _configuration(cell: Cell) -> dict[str, Any]:
    """Every field that decided a result: the cell's own and, by their role, its inputs'."""
    inputs = {role: _configuration(other) for role, other in cell.inputs.items()}
    return {**cell.fields, **({"inputs": inputs} if inputs else {})}
