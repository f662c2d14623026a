"""The main findings of a study as sentences, and the table of losses in accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from robustok.report.comparison import Difference, difference, holm
from robustok.report.figures import short
from robustok.report.style import family
from robustok.report.table import Results, Row, percent, points

LEVEL = 0.05  # of a family of comparisons


@dataclass(frozen=True)
class Finding:
    """A difference in accuracy, and the sentence after it."""

    number: str
    text: str
    color: str


def findings(results: Results) -> list[Finding]:
    """The main results of a study in a few sentences, computed from the rows.

    >>> same = {"pretrain": "canonical", "task": "langgame", "n": 100, "draws": 1, "seed": 0,
    ...         "low": 0.6, "high": 0.8, "chance": 0.25, "study": "a", "scale": "full"}
    >>> rows = [same | {"train": "canonical", "query": eval_scheme, "accuracy": accuracy}
    ...         for eval_scheme, accuracy in (("canonical", 0.9), ("uniform", 0.5))]
    >>> [finding.number for finding in findings(Results(rows))]
    ['−40.0']

    Args:
        results: merged rows, as :func:`merged` returns them.

    A difference is stated only where its 95% interval excludes zero, and that of the best of
    several schemes only where Holm's correction keeps it. Where models were pre-trained
    differently, canonical training is the first of them; where they were evaluated on several
    tasks, the first task is used.
    """
    canonical = next((t for t, bar in results.bars.items() if bar == "canonical"), "")
    tasks = {row["train"]: row.get("task") for row in results.rows}
    stochastic = [
        train for train, bar in results.bars.items()
        if bar != "canonical" and tasks[train] == tasks.get(canonical)
    ]  # fmt: skip
    sentences: list[Finding] = []

    def add(change: Difference, text: str, train: str) -> None:
        bounds = f"[{points(change.low)}, {points(change.high)}]"
        sentences.append(
            Finding(points(change.mean), f"{bounds} points {text}", results.colors[train])
        )

    hardest = results.hardest or ""
    base = results.change(canonical, hardest)
    if base is not None and base.is_clear:
        how = "uniformly at random" if hardest == "uniform" else f"with {hardest}"
        text = f"{_who(results, canonical)} when the questions are tokenized {how}"
        add(base, text + _from_to(results, canonical, hardest), canonical)
    for eval_scheme in (hardest, *results.attacks):
        lead = _best(results, canonical, stochastic, eval_scheme)
        if lead is not None:
            best, change, count = lead
            attacked = eval_scheme in results.attacks
            under = "under attack" if attacked else f"on {eval_scheme} questions"
            rows = (results.get(best, eval_scheme), results.get(canonical, eval_scheme))
            against = " against ".join(f"{percent(row['accuracy'])}%" for row in rows if row)
            text = f"{under} {_who(results, best)} instead of canonical ({against})"
            add(change, text + (f", the best of {count} schemes" if count > 1 else ""), best)
    return sentences


def _best(
    results: Results, canonical: str, others: list[str], eval_scheme: str
) -> tuple[str, Difference, int] | None:
    """The best scheme where it is better than the canonical one, its lead, and of how many.

    The differences are paired. Their p values are corrected by Holm's method, since the best of
    several is chosen after they were measured.
    """
    base = results.get(canonical, eval_scheme)
    rows = {train: row for train in others if (row := results.get(train, eval_scheme))}
    if base is None or not rows:
        return None
    changes = {train: difference(base, row) for train, row in rows.items()}
    adjusted = dict(zip(changes, holm([c.p for c in changes.values()]), strict=True))
    best = max(rows, key=lambda train: rows[train]["accuracy"])
    if not changes[best].is_clear or adjusted[best] >= LEVEL:
        return None
    return best, changes[best], len(rows)


def _who(results: Results, train: str) -> str:
    """What differs between the rows: how a model was trained, or its few-shot examples drawn."""
    row = next(row for row in results.rows if row["train"] == train)
    bar, panel = results.bars[train], row.get("panel", "")
    spec = "canonical" if bar == "canonical" else bar
    if "context" in row:
        return f"after {spec} few-shot examples" + (f" ({panel})" if panel else "")
    return f"for {spec} training" + (f" ({panel})" if panel else "")


def _from_to(results: Results, train: str, eval_scheme: str) -> str:
    before, after = results.get(train, "canonical"), results.get(train, eval_scheme)
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
        first_title(results.rows),
        "canonical",
        *(_headline(eval_scheme, len(results.attacks)) for eval_scheme in against),
    ]
    lines = []
    for train in results.trains:
        row = results.get(train, "canonical")
        line: list[dict[str, Any]] = [{"text": train, "words": train}]
        line.append(_entry(percent(row["accuracy"]), row) if row else _missing())
        for eval_scheme in against:
            row, drop = results.get(train, eval_scheme), results.drop(train, eval_scheme)
            if row is None or drop is None:
                line.append(_missing())
            else:
                line.append(_entry(points(-drop), row, min(max(drop, 0.0), 1.0)))
        lines.append(line)
    return head, lines


def first_title(rows: Sequence[Row]) -> str:
    """Title of the column that names the models: by their training, or by the file of results."""
    return "results of" if any("file" in row for row in rows) else "trained with"


def _headline(eval_scheme: str, attacks: int) -> str:
    if family(eval_scheme) != "adversarial":
        return f"{eval_scheme} Δ"
    return "adversarial Δ" if attacks == 1 else f"{short(eval_scheme)} Δ".replace("\n", " ")


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
