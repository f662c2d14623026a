"""Rows of results.jsonl: what a study measured, which reports and other programs read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from robustok.study.cells.base import Cell
from robustok.study.cells.measurements import AccuracyCell, MeasurementCell
from robustok.study.cells.models import StepCell
from robustok.study.schema import Study


class Row(TypedDict):
    """One measurement. A row has `accuracy`, or `perplexity`, or `layers`, with what is beside it.

    >>> "eval_scheme" in Row.__annotations__
    True

    Every row has the fields up to `versions`, and of the others those of its measurement.
    """

    study: str
    scale: str  # of the study's YAML
    pretrain_scheme: str  # the spec that the model was pre-trained with
    train_scheme: str  # the spec of its last training
    training: str  # the last training: "fine-tuning", "pre-training", or "" for none
    eval_scheme: str  # "canonical", a spec, "adversarial(...)", a suite, or "embeddings"
    task: str  # "langgame", "cute", a benchmark, or "text"
    seed: int
    seconds: float
    model: dict[str, Any]  # its name or sizes, `parameters` and `training_seconds`
    tokenizer: str  # the fingerprint of its vocabulary, where the tokenizer existed
    cell: str  # the key of the cell
    configuration: dict[str, Any]  # every field that decided the result
    versions: dict[str, str]

    few_shot_scheme: str  # the spec of the few-shot examples, where the study has some
    step: int  # of a model that a fine-tuning kept on its way
    train_spec: str  # the spec of a training scheme that is named by its measured strength
    eval_spec: str  # the same of an evaluation scheme
    accuracy: float  # from 0 to 1
    low: float  # the 95% interval
    high: float
    n: int  # questions
    draws: int  # of each
    chance: float  # the accuracy of a guess
    consistency: float  # share of questions with the same answer in all draws
    start_accuracy: float  # before an attack
    overflowed: int  # rows longer than the model's longest input
    tokens_per_question: float
    precision: str  # of the model's weights
    perplexity: float
    bits_per_byte: float
    layers: list[dict[str, Any]]  # distances between tokenizations of a word
    completions: int  # that the model sampled after questions
    drifted: float  # share of them that are not canonical
    drifted_ids: float  # share of their ids that the encoder would not give
    changed: float  # share of them that decoding and encoding changes
    splits: float  # measured strength, per canonical token
    distance: float
    length_ratio: float


def rows_and_missing(
    study: Study, cells: Iterable[Cell], records: Mapping[str, dict[str, Any]]
) -> tuple[list[Row], list[Row]]:
    """A row for each finished measurement, in the order of the plan, and the names of the others.

    A measurement whose model or tokenizer has no record, because its folder was removed, counts as
    unfinished until that is made again.
    """
    rows, missing = [], []
    for cell in cells:
        if not isinstance(cell, MeasurementCell):
            continue
        if all(one.key in records for one in (cell, cell.model, cell.tokenizer)):
            rows.append(_row(study, cell, records))
        else:
            missing.append(_names(study, cell))
    return rows, missing


def _names(study: Study, cell: MeasurementCell) -> Row:
    """What is known of a measurement before it is made."""
    names: Any = {
        "study": study.name,
        "scale": study.scale,
        "pretrain_scheme": cell.model.origin.scheme,
        "train_scheme": cell.model.scheme,
        "training": cell.model.training,
        "eval_scheme": cell.eval_scheme,
        "task": cell.task,
        "seed": cell.seed,
    }
    if isinstance(cell, AccuracyCell) and cell.few_shot:
        names["few_shot_scheme"] = cell.few_shot.scheme
    if isinstance(cell.model, StepCell):
        names["step"] = cell.model.step
    return names


def _row(study: Study, cell: MeasurementCell, records: Mapping[str, dict[str, Any]]) -> Row:
    record, model_record = records[cell.key], records[cell.model.key]
    model, tokenizer = model_record["result"], records[cell.tokenizer.key]["result"]
    sizes = {"architecture": study.model.architecture} | study.model.sizes()
    row: Any = {
        **_names(study, cell),
        **({"train_spec": model["train_spec"]} if "train_spec" in model else {}),
        **record["result"],
        "eval_scheme": cell.eval_scheme,
        "seconds": record["seconds"],
        "model": {
            **({"name": study.model.name} if study.model.name else sizes),
            "parameters": model["parameters"],
            "training_seconds": model_record["seconds"],
        },
        **({"tokenizer": tokenizer["fingerprint"]} if "fingerprint" in tokenizer else {}),
        "cell": cell.key,
        "configuration": _configuration(cell),
        "versions": record["versions"],
    }
    return row


def _configuration(cell: Cell) -> dict[str, Any]:
    """Every field that decided a result: the cell's own and, by their role, its inputs'."""
    inputs = {role: _configuration(other) for role, other in cell.inputs.items()}
    return {**cell.fields, **({"inputs": inputs} if inputs else {})}
