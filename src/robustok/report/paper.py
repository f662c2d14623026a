"""The section of a report that has the paper's values beside ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from robustok.attack.settings import AttackSettings, is_attack, named_settings
from robustok.evaluation.intervals import clustered
from robustok.report.frame import (
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

PaperRow = Mapping[str, Any]  # of a study's `paper.tables`
Value = Callable[[PaperRow, str, float | None], str]
"""A cell of a table, from the paper's row, the column, and the paper's value."""

_NOTES = {
    "accuracy": (
        "Each cell: our value with its 95% interval / the paper's value, and the difference in "
        "points."
    ),
    "perplexity": (
        "Each cell: our value / the paper's value. Perplexities of different vocabularies do not "
        "compare as numbers."
    ),
    "embeddings": "Each cell: our value / the paper's value, by the number of the layer.",
}


def paper_section(paper: Mapping[str, Any], rows: Sequence[Row]) -> Section | None:
    """The paper's tables with ours in each cell: "ours [interval] / paper's (difference)".

    Args:
        paper: ``paper`` of the study; may be empty.
        rows: rows of results.jsonl, of this study alone.

    ``not run`` marks a missing result.
    """
    tables = [_table(table, rows) for table in paper.get("tables", ()) if table["rows"]]
    claims = " ".join(f"The paper: {claim}" for claim in paper.get("claims", ()))
    where = f"Comparison with the paper: {paper.get('where')}"
    return Section("paper", where, claims, tables) if tables else None


def _table(table: Mapping[str, Any], rows: Sequence[Row]) -> Table:
    papers, measure = table["rows"], table["measure"]
    value = _VALUES[measure](rows, papers)
    cells = [
        [value(row, column, theirs) for column, theirs in
         zip(table["columns"], row["values"], strict=True)]
        for row in papers
    ]  # fmt: skip
    note = f"{table.get('note', '')} {_NOTES[measure]}".lstrip()
    if measure == "embeddings":  # a line a layer
        head = ["layer", *(row["train_scheme"] for row in papers)]
        columns = zip(table["columns"], zip(*cells, strict=True), strict=True)
        return Table(head, [[layer, *line] for layer, line in columns], note)
    titles = {"task": "task", "pretrain_scheme": "pre-trained", "train_scheme": first_title(rows)}
    names = [name for name in titles if any(row.get(name) for row in papers)]
    if measure == "perplexity":
        titles, names = {"pretrain_scheme": first_title(rows)}, ["pretrain_scheme"]
    named = [[row[name] or "pre-trained" for name in names] for row in papers]
    head = [*(titles[name] for name in names), *map(title, table["columns"])]
    return Table(head, [[*line, *own] for line, own in zip(named, cells, strict=True)], note)


def _layers(rows: Sequence[Row], papers: Sequence[PaperRow]) -> Value:
    """Mean distances; a model of another depth has other layers."""
    frame = merged_layers(rows)
    ours: dict[Any, float] = {}
    if not frame.empty:
        ours = frame.set_index(["model", frame["layer"].astype(str)])["mean"].to_dict()
    models = {model for model, _ in ours}

    def value(row: PaperRow, layer: str, theirs: float | None) -> str:
        mean = ours.get((row["train_scheme"], layer))
        missing = "–" if row["train_scheme"] in models else NOT_RUN
        return f"{missing if mean is None else f'{mean:.3f}'} / {_theirs(theirs, 3)}"

    return value


def _perplexities(rows: Sequence[Row], papers: Sequence[PaperRow]) -> Value:
    frame = merged_perplexities(rows)
    ours: dict[Any, float] = {}
    if not frame.empty:
        ours = frame.set_index(["pretrain_scheme", "eval_scheme"])["perplexity"].to_dict()

    def value(row: PaperRow, scheme: str, theirs: float | None) -> str:
        mean = ours.get((row["pretrain_scheme"] or "canonical", scheme))
        return f"{NOT_RUN if mean is None else f'{mean:.1f}'} / {_theirs(theirs)}"

    return value


def _accuracies(rows: Sequence[Row], papers: Sequence[PaperRow]) -> Value:
    results = Results(of_kinds(rows, papers))
    ours: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in results.rows:
        names = row["pretrain_scheme"], row["task"], row["bar"]
        ours.setdefault(names, {})[row["eval_scheme"]] = row
    only = next((task for _, task, _ in ours), None)

    def value(row: PaperRow, scheme: str, theirs: float | None) -> str:
        model = row["pretrain_scheme"] or "canonical", row.get("task") or only, row["train_scheme"]
        own = _measured(ours.get(model, {}), scheme)  # type: ignore[arg-type]
        if own is None:
            return f"{NOT_RUN} / {_theirs(theirs)}"
        text = f"{percent(own['accuracy'])} {bounds(own)}"
        change = "" if theirs is None else f" ({points(own['accuracy'] - theirs / 100)})"
        return f"{text} / {_theirs(theirs)}{change}"

    return value


_VALUES: dict[str, Callable[[Sequence[Row], Sequence[PaperRow]], Value]] = {
    "accuracy": _accuracies,
    "perplexity": _perplexities,
    "embeddings": _layers,
}


def _theirs(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _measured(ours: Mapping[str, Row], scheme: str) -> Row | None:
    """Our row for a column of the paper: of an attack, that with the settings that it names."""
    if not is_attack(scheme):
        return ours.get(scheme)
    wanted = named_settings(scheme)
    rows = [
        row
        for measured, row in ours.items()
        if is_attack(measured)
        and all(getattr(AttackSettings.parse(measured), n) == v for n, v in wanted.items())
    ]
    return rows[0] if len(rows) == 1 else None


def of_kinds(rows: Sequence[Row], papers: Sequence[PaperRow]) -> list[Row]:
    """The rows, and those of the subsets of a task that the paper names, as ``toksuite/lowercase``.

    The accuracy of a subset is that over its questions, with Wilson's interval.
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
