"""The section of a report that sets the tables of the paper beside the results of its study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from robustok.attack.settings import AttackSettings, is_attack, named_settings
from robustok.evaluation.intervals import clustered
from robustok.report.frame import (
    DEFAULTS,
    Results,
    Row,
    bounds,
    merged_layers,
    merged_perplexities,
    percent,
    points,
)
from robustok.report.page import Section, Table
from robustok.report.tables import NOT_RUN, first_title, title
from robustok.runtime.files import JsonFields

PaperRow = Mapping[str, Any]  # of a study's `paper.tables`


def paper_section(paper: JsonFields, rows: Sequence[Row]) -> Section | None:
    """The paper's tables with ours in each cell: "ours [interval] / paper's (difference)".

    ``paper`` is that of the study and may be empty; the rows are of this study alone. ``not run``
    marks a missing result. At another scale than the full one the model is another one, and no
    difference is shown.
    """
    tables = [
        _BESIDE[table["measure"]](table, rows) for table in paper.get("tables", ()) if table["rows"]
    ]
    claims = " ".join(f"The paper: {claim}" for claim in paper.get("claims", ()))
    where = f"Comparison with the paper: {paper.get('where')}"
    return Section("paper", where, claims, tables) if tables else None


def _accuracies_beside(table: JsonFields, rows: Sequence[Row]) -> Table:
    papers, columns = table["rows"], table["columns"]
    results = Results(_with_kinds(rows, papers))
    ours = {
        (row["pretrain_scheme"], row["task"], row["spec"], row["eval_scheme"]): row
        for row in results.rows
    }
    task = next((row["task"] for row in results.rows), "")
    is_full = all(row.get("scale", DEFAULTS["scale"]) == "full" for row in rows)
    schemes = {column: _measured_as(column, rows) for column in columns}
    titles = {"task": "task", "pretrain_scheme": "pre-trained", "train_scheme": first_title(rows)}
    names = [name for name in titles if any(row.get(name) for row in papers)]
    lines = []
    for paper in papers:
        model = paper["pretrain_scheme"] or "canonical", paper.get("task") or task
        cells = []
        for column, theirs in zip(columns, paper["values"], strict=True):
            row = ours.get((*model, paper["train_scheme"], schemes[column]))
            text = f"{percent(row['accuracy'])} {bounds(row)}" if row else NOT_RUN
            text += f" / {_number_of_paper(theirs, 1)}"
            if row and theirs is not None and is_full:
                text += f" ({points(row['accuracy'] - theirs / 100)})"
            cells.append(text)
        lines.append([*(paper[name] or "pre-trained" for name in names), *cells])
    note = "Each cell: our value with its 95% interval / the paper's value, "
    note += "and the difference in points." if is_full else "of a larger model."
    head = [*(titles[name] for name in names), *map(title, columns)]
    return Table(head, lines, _after_own_note(table, note))


def _perplexities_beside(table: JsonFields, rows: Sequence[Row]) -> Table:
    ours = {
        (row["pretrain_scheme"], row["eval_scheme"]): f"{row['perplexity']:.1f}"
        for _, row in merged_perplexities(rows).iterrows()
    }
    lines = []
    for paper in table["rows"]:
        model = paper["pretrain_scheme"]
        values = zip(table["columns"], paper["values"], strict=True)
        cells = [
            f"{ours.get((model or 'canonical', column), NOT_RUN)} / {_number_of_paper(theirs, 1)}"
            for column, theirs in values
        ]
        lines.append([model or "pre-trained", *cells])
    note = (
        "Each cell: our value / the paper's value. Perplexities of different vocabularies do not "
        "compare as numbers."
    )
    head = [first_title(rows), *map(title, table["columns"])]
    return Table(head, lines, _after_own_note(table, note))


def _distances_beside(table: JsonFields, rows: Sequence[Row]) -> Table:
    """A line a layer, of words alone, as the paper measured them.

    A model of another depth stands beside the paper's layers at the same share of its depth, the
    last one beside the last.
    """
    ours = {
        (row["model"], int(row["layer"])): f"{row['mean']:.3f}"
        for _, row in merged_layers(rows).iterrows()
        if not row["sentence"]
    }
    models, deepest = {model for model, _ in ours}, len(table["columns"]) - 1
    last = max((layer for _, layer in ours), default=deepest)
    lines = []
    for layer in range(last + 1):
        theirs = round(layer * deepest / max(last, 1))
        cells = []
        for paper in table["rows"]:
            model = paper["train_scheme"]
            text = ours.get((model, layer), "–" if model in models else NOT_RUN)
            cells.append(f"{text} / {_number_of_paper(paper['values'][theirs], 3)}")
        lines.append([str(layer) if last == deepest else f"{layer} / {theirs}", *cells])
    head = ["layer", *(paper["train_scheme"] for paper in table["rows"])]
    note = "Each cell: our value / the paper's value, at the same share of the layers."
    return Table(head, lines, _after_own_note(table, note))


_BESIDE = {  # a table of the paper with ours, by its measure
    "accuracy": _accuracies_beside,
    "perplexity": _perplexities_beside,
    "embeddings": _distances_beside,
}


def _after_own_note(table: JsonFields, note: str) -> str:
    return f"{table.get('note', '')} {note}".lstrip()


def _number_of_paper(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _measured_as(column: str, rows: Sequence[Row]) -> str:
    """The scheme of our rows for the paper's: of an attack, that with the settings it names."""
    if not is_attack(column):
        return column
    wanted = named_settings(column)
    schemes = {row.get("eval_scheme", "") for row in rows}
    same = [
        scheme
        for scheme in filter(is_attack, schemes)
        if all(getattr(AttackSettings.parse(scheme), n) == v for n, v in wanted.items())
    ]
    return same[0] if len(same) == 1 else column


def _with_kinds(rows: Sequence[Row], papers: Sequence[PaperRow]) -> list[Row]:
    """The rows, and those of the subsets of a task that the paper names, as ``toksuite/lowercase``.

    The accuracy of a subset is that over its questions, with its interval.
    """
    named = [str(row["task"]).partition("/") for row in papers if "/" in str(row.get("task"))]
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
