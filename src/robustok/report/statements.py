"""The main findings of a study as sentences, and the table of losses in accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from robustok.report.figures import short
from robustok.report.style import family
from robustok.report.table import Results, percent, points


@dataclass(frozen=True)
class Finding:
    """A difference in accuracy, and the sentence after it."""

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
    # The rows differ in how a model was trained, or in how its few-shot examples were drawn.
    few_shot = any("context" in row for row in results.rows)
    hardest = results.hardest or ""
    drops = {t: d for t in results.trains if (d := results.drop(t, hardest)) is not None}
    sentences: list[Finding] = []

    def add(number: float, text: str, train: str) -> None:
        sentences.append(Finding(points(number), f"points {text}", results.colors[train]))

    if canonical in drops:
        model = "after canonical few-shot examples" if few_shot else "for canonical training"
        how = "uniformly at random" if hardest == "uniform" else f"with {hardest}"
        text = f"{model} when the questions are tokenized {how}"
        add(-drops[canonical], text + _from_to(results, canonical, hardest), canonical)
    if rest := [t for t in stochastic if t in drops]:
        best = min(rest, key=lambda t: drops[t])
        text = f"for training with {best}, on the same questions"
        if few_shot:
            text = f"after few-shot examples drawn with {results.bars[best]}, on the same questions"
        add(-drops[best], text + _from_to(results, best, hardest), best)
    for attack in results.attacks:
        rows = {t: row for t in results.trains if (row := results.get(t, attack))}
        if canonical not in rows or not (others := [t for t in stochastic if t in rows]):
            continue
        best = max(others, key=lambda t: rows[t]["accuracy"])
        kept, base = rows[best]["accuracy"], rows[canonical]["accuracy"]
        text = f"under attack for training with {best} instead of canonical training"
        if few_shot:
            bar = results.bars[best]
            text = f"under attack for few-shot examples drawn with {bar} instead of canonical ones"
        add(kept - base, f"{text} ({percent(kept)}% against {percent(base)}%)", best)
    return sentences


def _from_to(results: Results, train: str, query: str) -> str:
    before, after = results.get(train, "canonical"), results.get(train, query)
    if not before or not after:
        return ""
    return f" ({percent(before['accuracy'])}% to {percent(after['accuracy'])}%)"


def drop_table(results: Results) -> tuple[list[str], list[list[dict[str, Any]]]]:
    """Canonical accuracy, and the loss under uniform and adversarial tokenizations.

    Returns the head and the lines. An entry of a line has `text`, the `accuracy` and its `interval`
    (empty where not measured), `heat` from 0 to 1 for its shade, and all of it in `words`.
    """
    against = [q for q in (results.hardest, *results.attacks) if q]
    head = [
        "trained with",
        "canonical",
        *(_headline(query, len(results.attacks)) for query in against),
    ]
    lines = []
    for train in results.trains:
        row = results.get(train, "canonical")
        line: list[dict[str, Any]] = [{"text": train, "words": train}]
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
    interval = f"[{percent(row['low'])}, {percent(row['high'])}]"
    return {
        "text": text,
        "accuracy": "" if text == accuracy else accuracy,
        "interval": interval,
        "heat": heat,
        "words": f"{text} {interval}" if text == accuracy else f"{text} ({accuracy} {interval})",
    }


def _missing() -> dict[str, Any]:
    return {"text": "not run", "accuracy": "", "interval": "", "heat": 0.0, "words": "not run"}
