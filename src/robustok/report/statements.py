"""What the numbers say: the three the study is about, and the table of drops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from robustok.report.figures import short
from robustok.report.style import family
from robustok.report.table import Results, percent, points


@dataclass(frozen=True)
class Finding:
    """One number with what it means."""

    number: str
    text: str
    color: str


def findings(results: Results) -> list[Finding]:
    """The main results of a study in a few sentences, computed from the rows.

    >>> same = {"pretrain": "canonical", "task": "langgame", "n": 100, "draws": 1, "seed": 0,
    ...         "low": 0.0, "high": 1.0, "chance": 0.25, "study": "a", "scale": "full"}
    >>> rows = [same | {"train": "canonical", "query": query, "accuracy": accuracy}
    ...         for query, accuracy in (("canonical", 0.9), ("uniform", 0.5))]
    >>> [finding.number for finding in findings(Results(rows))]
    ['−40.0']

    Args:
        results: merged rows, as :func:`merged` returns them.

    Where models were pre-trained differently, canonical training is the first of them; where they
    were evaluated on several tasks, the first task is used.
    """
    canonical = next((t for t, bar in results.bars.items() if bar == "canonical"), "")
    tasks = {row["train"]: row.get("task") for row in results.rows}
    stochastic = [
        train for train, bar in results.bars.items()
        if bar != "canonical" and tasks[train] == tasks.get(canonical)
    ]  # fmt: skip
    # What differs between the rows: how a model was trained, or the solved examples it saw.
    shown = any("context" in row for row in results.rows)
    ours = "the model loses after canonical examples" if shown else "canonical training loses"
    theirs = "after examples drawn with" if shown else "trained with"
    hardest = results.hardest or ""
    drops = {t: d for t in results.trains if (d := results.drop(t, hardest)) is not None}
    said = []

    def say(number: float, text: str, train: str) -> None:
        said.append(Finding(points(number), f"points{text}", results.colors[train]))

    if canonical in drops:
        how = "uniformly at random" if hardest == "uniform" else f"with {hardest}"
        lost = f": what {ours} when the queries are tokenized {how}"
        say(-drops[canonical], lost + _from_to(results, canonical, hardest), canonical)
    if rest := [t for t in stochastic if t in drops]:
        best = min(rest, key=lambda t: drops[t])
        name = results.bars[best] if shown else best
        same = f": the same, {theirs} {name}{_from_to(results, best, hardest)}"
        say(-drops[best], same, best)
    for query in results.attacks:
        rows = {t: row for t in results.trains if (row := results.get(t, query))}
        if canonical not in rows or not (others := [t for t in stochastic if t in rows]):
            continue
        best = max(others, key=lambda t: rows[t]["accuracy"])
        kept, base = rows[best]["accuracy"], rows[canonical]["accuracy"]
        gain = (
            f" kept under attack {theirs} {results.bars[best]} over canonical ones "
            if shown
            else f" kept under attack by {best} over canonical training "
        )
        say(kept - base, f"{gain}({percent(kept)}% against {percent(base)}%)", best)
    return said


def _from_to(results: Results, train: str, query: str) -> str:
    before, after = results.get(train, "canonical"), results.get(train, query)
    if not before or not after:
        return ""
    return f" ({percent(before['accuracy'])}% to {percent(after['accuracy'])}%)"


def drop_table(results: Results) -> tuple[list[str], list[list[dict[str, Any]]]]:
    """Canonical accuracy, and what is lost under uniform and adversarial queries.

    Returns the head and the lines; a line's entries have `text`, the `accuracy` and its `interval`
    where there is one, and `heat` from 0 to 1 for a shade. A value that was not measured says so.
    """
    against = [q for q in (results.hardest, *results.attacks) if q]
    head = ["training", "canonical", *(_headline(query, len(results.attacks)) for query in against)]
    lines = []
    for train in results.trains:
        row = results.get(train, "canonical")
        line: list[dict[str, Any]] = [{"text": train}]
        line.append(_entry(percent(row["accuracy"]), row) if row else _missing())
        for query in against:
            row, drop = results.get(train, query), results.drop(train, query)
            if row is None or drop is None:
                line.append(_missing())
            else:
                line.append(_entry(points(-drop), row, min(max(drop, 0.0), 1.0)))
        lines.append(line)
    return head, lines


def _headline(query: str, attacks: int) -> str:
    if family(query) != "adversarial":
        return f"{query} Δ"
    return "adversarial Δ" if attacks == 1 else f"{short(query)} Δ".replace("\n", " ")


def _entry(text: str, row: dict[str, Any], heat: float = 0.0) -> dict[str, Any]:
    accuracy = percent(row["accuracy"])
    return {
        "text": text,
        "accuracy": "" if text == accuracy else accuracy,
        "interval": f"[{percent(row['low'])}, {percent(row['high'])}]",
        "heat": heat,
    }


def _missing() -> dict[str, Any]:
    return {"text": "not run", "accuracy": "", "interval": "", "heat": 0.0}
