"""Intervals and differences of rows over seeds and questions; Holm's method for several.

The statistics are those of :mod:`robustok.evaluation.intervals`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from robustok.evaluation.intervals import compare_answers, interval
from robustok.runtime.display import Z95

Row = Mapping[str, Any]
DataFrame = Any  # a pandas DataFrame; its methods return unions that no type checker narrows

LEAST_SEEDS = 3  # of a difference with a star: with two, a variance has one degree of freedom


@dataclass(frozen=True)
class Difference:
    """A difference of two accuracies, its 95% interval, and the two-sided p of none.

    >>> Difference(0.8, 0.5, -0.4, -0.2, 0.001, n=100, seeds=3, paired=True).is_clear
    True

    Args:
        before: first accuracy, on the questions and seeds that both have.
        after: second accuracy, on the same.
        low: lower bound of the interval of ``after`` minus ``before``.
        high: its upper bound.
        p: two-sided probability of a difference this large where there is none.
        n: number of questions.
        seeds: number of seeds that both have.
        paired: whether the answers to each question were compared.
    """

    before: float
    after: float
    low: float
    high: float
    p: float
    n: int
    seeds: int
    paired: bool

    @property
    def mean(self) -> float:
        """Second accuracy minus the first."""
        return self.after - self.before

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def over_seeds(rows: DataFrame, field: str, items: int) -> tuple[float, float, float]:
    """Mean of a field over several seeds that share their items, with its 95% bounds.

    >>> rows = pd.DataFrame([{"accuracy": a, "low": a, "high": a} for a in (0.5, 0.6)])
    >>> [round(x, 2) for x in over_seeds(rows, "accuracy", 9)]
    [0.55, -0.09, 1.19]

    Args:
        rows: a row for each seed, two or more, with the field and its own bounds `low` and `high`.
        field: name of the field.
        items: number of the items, such as questions or words.
    """
    mean = math.fsum(rows[field]) / len(rows)
    shared = float(_variance(rows).mean())
    between = float(rows[field].var()) / len(rows)
    low, high, _ = interval(mean, [(between, len(rows) - 1), (shared, max(items - 1, 1))])
    return mean, low, high


def _variance(row: Any) -> Any:
    """The variance of a mean, from the bounds of its interval."""
    return ((row["high"] - row["low"]) / 2 / Z95) ** 2


def difference(first: Row, second: Row, *, comparisons: int = 1) -> Difference:
    """Second accuracy minus the first: over seeds and paired questions where both have them.

    >>> first = {"accuracy": 0.5, "low": 0.4, "high": 0.6, "n": 100}
    >>> difference(first, first | {"accuracy": 0.9, "low": 0.8, "high": 1.0}).is_clear
    True

    Args:
        first: a merged row.
        second: the merged row to compare with it.
        comparisons: number of differences whose intervals hold at once.

    Seeds are paired by their number, questions by their key; only what both rows have is compared.
    Without the answers to each question the two rows count as independent.
    """
    answers = _shared_answers(first, second)
    if answers is None:
        parts = [(_variance(row), float(max(row["n"] - 1, 1))) for row in (first, second)]
        before, after = first["accuracy"], second["accuracy"]
        low, high, p = interval(after - before, parts, comparisons=comparisons)
        bounds = max(low, -1.0), min(high, 1.0), p
        seeds = len(second.get("seeds") or (None,))
        return Difference(before, after, *bounds, n=second["n"], seeds=seeds, paired=False)
    bounds = compare_answers(*answers, comparisons=comparisons)
    before, after = (float(part.mean()) for part in answers)
    seeds, questions = answers[0].shape
    return Difference(before, after, *bounds, n=questions, seeds=seeds, paired=True)


def _shared_answers(first: Row, second: Row) -> tuple[np.ndarray, np.ndarray] | None:
    """The answers of both, float64 [seeds, questions], over what both measured."""
    before: DataFrame = pd.DataFrame(first.get("answers") or {})
    after: DataFrame = pd.DataFrame(second.get("answers") or {})
    seeds = before.columns.intersection(after.columns)
    before, after = before[seeds].dropna(), after[seeds].dropna()
    keys = before.index.intersection(after.index)
    if seeds.empty or keys.empty:
        return None
    return before.loc[keys].to_numpy(float).T, after.loc[keys].to_numpy(float).T


def clear_differences(pairs: Mapping[Any, tuple[Row, Row]]) -> dict[Any, Difference]:
    """The differences that Holm's method keeps among several, each with the interval of its step.

    >>> first = {"accuracy": 0.5, "low": 0.4, "high": 0.6, "n": 100}
    >>> better = first | {"accuracy": 0.9, "low": 0.8, "high": 1.0}
    >>> list(clear_differences({"same": (first, first), "better": (first, better)}))
    ['better']

    Args:
        pairs: the two merged rows of each comparison, by any name.

    Of k comparisons the one with the smallest p has an interval that holds for k at once, the next
    one for k - 1, and so on, until one of them includes zero.
    """
    kept: dict[Any, Difference] = {}
    smallest_first = sorted(pairs, key=lambda name: difference(*pairs[name]).p)
    for rank, name in enumerate(smallest_first):
        change = difference(*pairs[name], comparisons=len(pairs) - rank)
        if not change.is_clear:
            break
        kept[name] = change
    return {name: kept[name] for name in pairs if name in kept}
