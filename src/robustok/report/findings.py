"""What the numbers say: the three the study is about, and the table of drops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from robustok.report.style import colors
from robustok.report.table import Results, percent, points


@dataclass(frozen=True)
class Finding:
    """One number with what it means."""

    number: str
    text: str
    color: str


def findings(results: Results) -> list[Finding]:
    """The few sentences a hurried reader needs, each from the rows."""
    stochastic = [train for train in results.trains if train != "canonical"]
    color = dict(zip(results.trains, colors(results.trains), strict=True))
    said = []
    drops = {t: d for t in results.trains if (d := results.drop(t, "uniform")) is not None}
    if "canonical" in drops:
        said.append(
            Finding(
                points(-drops["canonical"]),
                "points: what canonical training loses when the queries are tokenized uniformly "
                f"at random{_from_to(results, 'canonical', 'uniform')}",
                color["canonical"],
            )
        )
    if rest := [t for t in stochastic if t in drops]:
        best = min(rest, key=lambda t: drops[t])
        said.append(
            Finding(
                points(-drops[best]),
                f"points: the same, trained with {best}{_from_to(results, best, 'uniform')}",
                color[best],
            )
        )
    for query in results.attacks:
        rows = {t: row for t in results.trains if (row := results.get(t, query))}
        others = [t for t in stochastic if t in rows]
        if "canonical" in rows and others:
            best = max(others, key=lambda t: rows[t]["accuracy"])
            gain = rows[best]["accuracy"] - rows["canonical"]["accuracy"]
            said.append(
                Finding(
                    points(gain),
                    f"points kept under attack by {best} over canonical training "
                    f"({percent(rows[best]['accuracy'])}% against "
                    f"{percent(rows['canonical']['accuracy'])}%)",
                    color[best],
                )
            )
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
    against = [q for q in ("uniform", *results.attacks) if q in results.queries]
    head = ["training", "canonical", *(_headline(query) for query in against)]
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


def _headline(query: str) -> str:
    return "uniform Δ" if query == "uniform" else "adversarial Δ"


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
