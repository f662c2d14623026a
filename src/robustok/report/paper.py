"""Tables that compare the results with those of the paper, with interval and difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from robustok.attack_settings import AttackSettings, is_attack, named_settings
from robustok.report.accuracies import first_title, title
from robustok.report.embeddings import merged_layers
from robustok.report.merge import merged, perplexities
from robustok.report.table import Row, percent, points

Line = list[str]
NOT_RUN = "not run"


def beside_paper(study: Mapping[str, Any], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The paper's tables with ours in each cell: `head`, `lines` and `note` of text.

    A cell reads "ours [interval] / paper's (difference)"; `not run` marks a missing result.
    """
    paper = study.get("paper") or {}
    tables = [table for table in paper.get("tables", ()) if table["rows"]]
    return [_table(table, rows) | {"note": table.get("note", "")} for table in tables]


def _embeddings(table: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """A line a layer, a column a model; a model of another depth has other layers."""
    depth = {(layer["model"], str(layer["layer"])): layer["mean"] for layer in merged_layers(rows)}
    models = {model for model, _ in depth}
    lines = []
    for at, layer in enumerate(table["queries"]):
        cells = []
        for row in table["rows"]:
            ours, theirs = depth.get((row["train"], layer)), row["values"][at]
            missing = "–" if row["train"] in models else NOT_RUN
            cells.append(f"{missing if ours is None else f'{ours:.3f}'} / {theirs:.3f}")
        lines.append([layer, *cells])
    head = ["layer", *(row["train"] for row in table["rows"])]
    return {"measure": "embeddings", "head": head, "lines": lines}


def _table(table: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    if table["measure"] == "embeddings":
        return _embeddings(table, rows)
    accuracy = table["measure"] == "accuracy"
    if accuracy:
        measured = merged(of_kinds([_named(row) for row in rows], table["rows"]))
    else:
        measured = perplexities(rows)
    cells = {((r["pretrain"], r.get("task")), r.get("bar"), r["query"]): r for r in measured}
    both = any(row["pretrain"] for row in table["rows"])
    tasks = any(row.get("task") for row in table["rows"])
    only = measured[0].get("task") if measured and not tasks else None
    lines = []
    for row in table["rows"]:
        first = (row["pretrain"] or "canonical", row.get("task") or (only if accuracy else None))
        line = [row["task"]] if tasks else []
        line += [*([first[0]] if both else []), *([row["train"]] if accuracy else [])]
        for eval_scheme, theirs in zip(table["queries"], row["values"], strict=True):
            bar = row["train"] if accuracy else None
            line.append(_cell(_lookup(cells, first, bar, eval_scheme), theirs, accuracy))
        lines.append(line)
    named = first_title(rows)
    names = [*(["task"] if tasks else []), *(["pre-trained"] if both else [])]
    names += [named] if accuracy else []
    if not accuracy and not both:
        names, lines = ["model"], [["pre-trained", *line] for line in lines]
    head = [*names, *map(title, table["queries"])]
    return {"measure": table["measure"], "head": head, "lines": lines}


def of_kinds(rows: Sequence[Row], paper: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The rows, and those of the subsets of a task that the paper names, as ``toksuite/lowercase``.

    The accuracy of a subset is that over its questions, with Wilson's interval.
    """
    from robustok.evaluation.intervals import clustered

    named = [str(row["task"]).partition("/") for row in paper if "/" in str(row.get("task"))]
    subsets = dict.fromkeys((task, kind) for task, _, kind in named)
    parts = list(rows)
    for row in rows:
        for task, kind in subsets:
            keys = [key for key, own in row.get("kinds", {}).items() if own == kind]
            if row.get("task") != task or not keys:
                continue
            answers = {key: row["answers"][key] for key in keys}
            accuracy, low, high = clustered(list(answers.values()), row.get("draws", 1))
            parts.append(
                row
                | {"task": f"{task}/{kind}", "cell": f"{row.get('cell')}/{kind}", "n": len(keys)}
                | {"accuracy": accuracy, "low": low, "high": high, "answers": answers}
            )
    return parts


def _named(row: Row) -> Row:
    """Without what would only rename it: a study's own rows differ in pre-training at most."""
    return {**row, "study": "", "scale": "", "pretrain": row.get("pretrain", "canonical")}


def _lookup(
    cells: Mapping[tuple[Any, str | None, str], Row], first: Any, bar: str | None, eval_scheme: str
) -> Row | None:
    if (cell := cells.get((first, bar, eval_scheme))) or not is_attack(eval_scheme):
        return cell
    attacks = [
        row for key, row in cells.items() if key[:2] == (first, bar) and _same(key[2], eval_scheme)
    ]
    return attacks[0] if len(attacks) == 1 else None


def _same(measured: str, eval_scheme: str) -> bool:
    """Whether every named setting of an attack agrees."""
    if not is_attack(measured):
        return False
    attack = AttackSettings.parse(measured)
    return all(
        getattr(attack, name) == value for name, value in named_settings(eval_scheme).items()
    )


def _cell(ours: Row | None, theirs: float | None, accuracy: bool) -> str:
    paper = "–" if theirs is None else f"{theirs:.1f}"
    if ours is None:
        return f"{NOT_RUN} / {paper}"
    if not accuracy:
        return f"{ours['perplexity']:.1f} / {paper}"
    text = f"{percent(ours['accuracy'])} [{percent(ours['low'])}, {percent(ours['high'])}]"
    if theirs is None:
        return f"{text} / –"
    return f"{text} / {paper} ({points(ours['accuracy'] - theirs / 100)})"
