"""Intervals and differences over seeds and questions, where every seed has the same questions.

An accuracy varies with the seed (initialization, order of the data, draws) and with the questions.
The variance of the mean is the sum of both: the variance between seeds over their number, and the
variance between questions over theirs. The questions are the same for every seed, so more seeds do
not shrink their part. Quantiles are Student's t with Satterthwaite's degrees of freedom: for two
seeds and no other variance 12.7, not 1.96.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robustok.normal import Z95


@dataclass(frozen=True)
class Difference:
    """A difference of two accuracies, its 95% interval, and the two-sided p of none.

    >>> Difference(-0.3, -0.4, -0.2, 0.001, paired=True).is_clear
    True

    Args:
        mean: second accuracy minus the first.
        low: lower 95% bound.
        high: upper 95% bound.
        p: two-sided probability of a difference this large where there is none.
        paired: whether the answers to each question were compared.
    """

    mean: float
    low: float
    high: float
    p: float
    paired: bool

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def interval(mean: float, parts: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Lower and upper 95% bounds of a mean, and the two-sided p of 0.

    >>> low, high, p = interval(0.0, [(1.0, 1)])
    >>> round(high, 1), p
    (12.7, 1.0)

    Args:
        mean: the mean.
        parts: for each source of error, the variance of the mean from it and its degrees of
            freedom.
    """
    from scipy.stats import t

    variance = math.fsum(part for part, _ in parts)
    if variance <= 0:
        return mean, mean, float(mean == 0)
    freedom = variance**2 / math.fsum(part**2 / degrees for part, degrees in parts if part)
    error = math.sqrt(variance)
    half = float(t.ppf(0.975, freedom)) * error
    return mean - half, mean + half, float(2 * t.sf(abs(mean) / error, freedom))


def over_seeds(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float, float]:
    """Mean accuracy of the rows of several seeds, with its 95% bounds.

    >>> rows = [{"accuracy": a, "low": a, "high": a, "n": 9} for a in (0.5, 0.6)]
    >>> [round(x, 2) for x in over_seeds(rows)]
    [0.55, 0.0, 1.0]

    Args:
        rows: rows of results.jsonl that differ in their seed only.
    """
    accuracies = [row["accuracy"] for row in rows]
    mean = math.fsum(accuracies) / len(rows)
    questions = math.fsum(_variance(row) for row in rows) / len(rows)
    seeds = float(np.var(accuracies, ddof=1)) / len(rows)
    low, high, _ = interval(mean, [(seeds, len(rows) - 1), (questions, max(rows[0]["n"] - 1, 1))])
    return mean, max(0.0, low), min(1.0, high)


def _variance(row: Mapping[str, Any]) -> float:
    return ((row["high"] - row["low"]) / 2 / Z95) ** 2


def difference(first: Mapping[str, Any], second: Mapping[str, Any]) -> Difference:
    """Second accuracy minus the first: over seeds and paired questions where both have them.

    >>> first = {"accuracy": 0.5, "low": 0.4, "high": 0.6, "n": 100}
    >>> difference(first, first | {"accuracy": 0.9, "low": 0.8, "high": 1.0}).is_clear
    True

    Args:
        first: a merged row.
        second: the merged row to compare with it.

    Seeds are paired by their number, questions by their key. Without the answers to each question
    the two rows count as independent.
    """
    matrix = _paired(first, second)
    if matrix is None:
        mean = second["accuracy"] - first["accuracy"]
        parts = [(_variance(row), float(max(row["n"] - 1, 1))) for row in (first, second)]
        low, high, p = interval(mean, parts)
        return Difference(mean, low, high, p, paired=False)
    seeds, questions = matrix.shape
    mean = float(matrix.mean())
    parts = []
    if questions > 1:
        parts.append((float(matrix.mean(0).var(ddof=1)) / questions, questions - 1))
    if seeds > 1:
        parts.append((float(matrix.mean(1).var(ddof=1)) / seeds, seeds - 1))
    low, high, p = interval(mean, parts)
    return Difference(mean, low, high, p, paired=True)


def _paired(first: Mapping[str, Any], second: Mapping[str, Any]) -> np.ndarray | None:
    """Second minus first, float64 [seeds, questions], over what both measured."""
    answers = [row.get("answers") or {} for row in (first, second)]
    seeds = [seed for seed in answers[0] if seed in answers[1]]
    if not seeds:
        return None
    keys = set.intersection(*(set(part[seed]) for part in answers for seed in seeds))
    if not keys:
        return None
    order = sorted(keys)
    values = [[[part[seed][key] for key in order] for seed in seeds] for part in answers]
    return np.asarray(values[1], np.float64) - np.asarray(values[0], np.float64)


def holm(ps: Sequence[float]) -> list[float]:
    """p values of several comparisons, adjusted by Holm's method.

    >>> holm([0.01, 0.04])
    [0.02, 0.04]

    Args:
        ps: p value of each comparison.
    """
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    adjusted, least = [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        least = max(least, min(1.0, (len(ps) - rank) * ps[i]))
        adjusted[i] = least
    return adjusted
