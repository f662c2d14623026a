"""The main findings of a study as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robustok.report.accuracies import FEW_SHOT
from robustok.report.comparison import Difference, clear_differences
from robustok.report.merge import training
from robustok.report.names import in_words
from robustok.report.table import Results, Row, percent, points
from robustok.study.cells.models import UNTRAINED


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
    >>> rows = [same | {"train": "canonical", "query": query, "accuracy": accuracy}
    ...         for query, accuracy in (("canonical", 0.9), ("uniform", 0.5))]
    >>> [finding.number for finding in findings(Results(rows))]
    ['−40.0']

    Args:
        results: merged rows, as :func:`merged` returns them.

    First the loss of canonical training, then the lead of the best other one. A difference is
    stated only where its interval excludes zero, which holds for all tasks, or for all schemes of
    which it is the best, at once (:func:`clear_differences`). Of several tasks the number is stated
    that have such a difference. Where models were pre-trained differently, canonical training is
    the first of them.
    """
    bases = _canonical_by_group(results)
    queries = [q for q in (results.hardest, *results.attacks) if q]
    found = [_losses(results, list(bases), query) for query in queries[:1]]
    found += [_leads(results, bases, query) for query in queries]
    return [finding for finding in found if finding]


def _canonical_by_group(results: Results) -> dict[str, list[str]]:
    """The first canonically trained model of each task, study and scale, with the others of it."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for train in results.trains:
        varying = _varying(results, train)
        group = tuple(value for name, value in varying.items() if name != "pretrain")
        groups.setdefault(group, []).append(train)
    bases = {}
    for trains in groups.values():
        base = next((train for train in trains if results.bars[train] == "canonical"), None)
        if base is not None:
            bases[base] = [train for train in trains if results.bars[train] != "canonical"]
    return bases


def _losses(results: Results, bases: Sequence[str], query: str) -> Finding | None:
    """What canonical training loses from canonical questions to others."""
    pairs = {base: results.before_and_after(base, query) for base in bases}
    kept = clear_differences({base: pair for base, pair in pairs.items() if pair})
    if not kept:
        return None
    base, change = next(iter(kept.items()))
    what = f"from canonical questions to {in_words(query)}"
    if len(bases) == 1:
        shares = f"({percent(change.before)}% to {percent(change.after)}%)"
        text = f"points {_bounds(change)} {what}{_with(results, base)} {shares}"
        return Finding(_points(change), text, results.colors[base])
    text = f"{_kind(results)} change {what}{_with(results, base, everywhere=True)}: "
    return Finding(
        f"{len(kept)} of {len(bases)}",
        text + "; ".join(_listed(results, base, change) for base, change in kept.items()),
        results.colors[base],
    )


def _leads(results: Results, bases: Mapping[str, Sequence[str]], query: str) -> Finding | None:
    """The best scheme of each group where it is better than the canonical one, and its lead."""
    pairs: dict[str, tuple[Row, Row]] = {}
    for base, others in bases.items():
        for train in others:
            before, after = results.get(base, query), results.get(train, query)
            if before and after:
                pairs[train] = before, after
    kept = clear_differences(pairs)
    best: dict[str, str] = {}
    for base, others in bases.items():
        compared = [train for train in others if train in pairs]
        top = max(compared, key=lambda train: pairs[train][1]["accuracy"], default=None)
        if top is not None and top in kept and kept[top].mean > 0:
            best[base] = top
    if not best:
        return None
    base, top = next(iter(best.items()))
    count = sum(train in pairs for train in bases[base])
    change, color = kept[top], results.colors[top]
    seeds = ", one seed" if change.seeds == 1 else ""
    if len(bases) == 1:
        text = f"on {in_words(query)}{_with(results, top)} instead of {_canonical(results, base)}"
        of = f", the best of {count}" if count > 1 else ""
        shares = f"({percent(change.after)}% against {percent(change.before)}%)"
        return Finding(
            _points(change), f"points {_bounds(change)} {text}{of}{seeds} {shares}", color
        )
    of = f"the best of {count}" if count > 1 else results.bars[top]
    text = f"{_kind(results)} gain on {in_words(query)}, with {of} instead of "
    text += f"{_canonical(results, base)}{seeds}: "
    listed = [
        _listed(results, base, kept[top]) + (f" ({results.bars[top]})" if count > 1 else "")
        for base, top in best.items()
    ]
    return Finding(f"{len(best)} of {len(bases)}", text + "; ".join(listed), color)


def _points(change: Difference) -> str:
    return points(round(change.after, 3) - round(change.before, 3))


def _bounds(change: Difference) -> str:
    return f"[{points(change.low)}, {points(change.high)}]"


def _kind(results: Results) -> str:
    """What the groups of models are."""
    varying = {name for row in results.rows for name in row.get("varying", ())} - {"pretrain"}
    return "tasks" if varying == {"task"} else "groups of models"


def _listed(results: Results, train: str, change: Difference) -> str:
    parts = [str(v) for name, v in _varying(results, train).items() if name != "pretrain"]
    return f"{', '.join(parts)} {_points(change)} {_bounds(change)}"


def _varying(results: Results, train: str) -> Mapping[str, object]:
    row = next(row for row in results.rows if row["train"] == train)
    return row.get("varying", {})


def _name(results: Results, train: str) -> str:
    """How a model was trained, or its few-shot examples drawn; empty where it was not trained."""
    row = next(row for row in results.rows if row["train"] == train)
    bar, how = results.bars[train], training(row)
    if "context" in row:
        return f"{bar} {FEW_SHOT}"
    if "file" in row:
        return f"the model of {bar}"
    return "" if how == UNTRAINED else f"{bar} {how}"


def _canonical(results: Results, train: str) -> str:
    both = "pretrain" in _varying(results, train)
    return "canonical pre-training and fine-tuning" if both else _name(results, train)


def _with(results: Results, train: str, *, everywhere: bool = False) -> str:
    """The end of a sentence: how a model was trained, and unless `everywhere` what it did."""
    varying, name = _varying(results, train), _name(results, train)
    text = f", with {name}" if name else ""
    if "pretrain" in varying:
        text += f" after {varying['pretrain']} pre-training"
    others = [str(value) for name, value in varying.items() if name != "pretrain"]
    return text + (f" ({', '.join(others)})" if others and not everywhere else "")
