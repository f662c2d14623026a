"""Merges measured rows into one row for each model and evaluation scheme.

Repeats with other seeds become one row with an interval over them. Models that differ in more than
their last training are named by what differs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from robustok.report.comparison import over_seeds
from robustok.report.table import Row
from robustok.study.cells.models import FINETUNED, PRETRAINED, UNTRAINED

VARYING = ("study", "scale", "task", "pretrain")  # fields that name a model if they vary


def merged(rows: Sequence[Row]) -> list[Row]:
    """The accuracies of one or more runs, a row for each model and evaluation scheme.

    >>> rows = [{"train": "uniform", "query": "canonical", "accuracy": a, "low": a - 0.04,
    ...          "high": a + 0.04, "n": 100, "seed": s} for s, a in enumerate((0.5, 0.6))]
    >>> row = merged(rows)[0]
    >>> row["accuracy"], round(row["low"], 3), row["seeds"], row["panel"], row["bar"]
    (0.55, 0.174, [0, 1], '', 'uniform')

    Args:
        rows: rows of results.jsonl, of one run or several. A cell that several runs share counts
            once.

    A row's `train` becomes its name among all rows, `panel` the part shared with its group,
    `varying` the fields of that part, and `bar` the spec it was trained with. The interval of
    several seeds is :func:`over_seeds`.
    """
    measured = [row for row in distinct(rows) if "accuracy" in row]
    varying = [name for name in VARYING if len({row.get(name) for row in measured}) > 1]
    if all(training(row) != FINETUNED for row in measured) and "pretrain" in varying:
        varying.remove("pretrain")  # the bar names it
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in measured:
        panel = ", ".join(str(row.get(name)) for name in varying)
        # What a reader compares: how the examples were drawn, or how the model was trained.
        bar = row.get("context", row["train"])
        groups.setdefault((panel, bar, row["query"]), []).append(row)
    return [
        _one(members)
        | {"panel": panel, "bar": bar, "train": f"{panel} → {bar}" if panel else bar}
        | {"varying": {name: members[0].get(name) for name in varying}}
        for (panel, bar, _), members in groups.items()
    ]


def training(row: Row) -> str:
    """How the model of a row was last trained, from the configuration of its cell.

    >>> training({"configuration": {"inputs": {"model": {"source": "corpus"}}}})
    'pre-training'
    """
    model = row.get("configuration", {}).get("inputs", {}).get("model", {"lora": None})
    if "lora" in model:
        return FINETUNED
    return PRETRAINED if "source" in model else UNTRAINED


def distinct(rows: Sequence[Row]) -> list[Row]:
    """The rows without repetition: the same cell in two runs is one measurement."""
    return list({row.get("cell") or id(row): row for row in rows}.values())


def _one(rows: Sequence[Row]) -> Row:
    seeds = [row.get("seed") for row in rows]
    answers = {row.get("seed"): row["answers"] for row in rows if "answers" in row}
    shared: Row = {"seeds": seeds, "answers": answers}
    if len(rows) == 1:
        return {**rows[0], **shared}
    mean, low, high = over_seeds(rows)
    shared |= {"accuracy": mean, "low": low, "high": high}
    shared["seconds"] = sum(row.get("seconds", 0.0) for row in rows)
    for name in ("start_accuracy", "splits", "distance", "length_ratio"):
        if all(name in row for row in rows):
            shared[name] = _mean([row[name] for row in rows])
    return {**rows[0], **shared}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def perplexities(rows: Sequence[Row]) -> list[Row]:
    """A row for each pre-trained model and scheme: the geometric mean perplexity over seeds."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in distinct(rows):
        if "perplexity" in row:
            groups.setdefault((row["pretrain"], row["query"]), []).append(row)
    merged_rows = []
    for (pretrain, eval_scheme), members in groups.items():
        logs = [math.log(row["perplexity"]) for row in members]
        spread = [math.exp(min(logs)), math.exp(max(logs))]
        merged_rows.append(
            {
                "pretrain": pretrain,
                "query": eval_scheme,
                "perplexity": math.exp(_mean(logs)),
                "lowest": spread[0],
                "highest": spread[1],
                "bits_per_byte": _mean([row["bits_per_byte"] for row in members]),
                "seeds": [row["seed"] for row in members],
                "configuration": members[0].get("configuration", {}),
            }
        )
    return merged_rows
