"""Intervals and tests for accuracies: Wilson, Clopper-Pearson, McNemar, draws as clusters, seeds.

The model of a difference over seeds is one of crossed random effects: an answer depends on the seed
(initialization, order of the data, draws), on the question, and on both. The variance of a mean is
the variance between seeds over their number plus the variance between questions over theirs. Every
seed has the same questions, so more seeds do not shrink the second part. Each part has a quantile
of Student's t with its own degrees of freedom (for two seeds 12.7, not 1.96), and the half-width is
the root of the sum of their squares. It is exact where one part is everything, and wider than
needed in between.

One quantile for the sum, with Satterthwaite's degrees of freedom, is not used: with three seeds 7%
of tests at 5% are false alarms where the seeds vary most, since a variance that happens to come out
small also raises the degrees of freedom. `benchmarks/intervals.py` simulates both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from robustok.errors import RobustokError
from robustok.runtime.display import Z95

LEVEL = 0.05  # of an interval, and of a family of comparisons
_LEAST_P = 1e-100  # smaller ones are 0


def wilson(correct: float, n: float) -> tuple[float, float]:
    """Wilson score interval of ``correct`` successes out of ``n``, at 95%.

    >>> low, high = wilson(8, 10)
    >>> round(low, 3), round(high, 3)
    (0.49, 0.943)

    Args:
        correct: number of successes, from 0 to ``n``.
        n: number of trials, positive. It may be fractional, such as an effective sample size, which
            ``scipy.stats.binomtest`` does not accept.

    Raises RobustokError for an ``n`` that is not positive and a ``correct`` out of range.
    Source: Wilson (1927).
    """
    if not n > 0 or not 0 <= correct <= n:
        raise RobustokError(
            f"no interval for {correct} correct of {n}: give a positive n, at least {correct}"
        )
    p = correct / n
    z2 = Z95 * Z95
    center = p + z2 / (2 * n)
    spread = Z95 * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    scale = 1 + z2 / n
    low = 0.0 if correct == 0 else max(0.0, (center - spread) / scale)
    high = 1.0 if correct == n else min(1.0, (center + spread) / scale)
    return low, high


def clopper_pearson_upper(successes: int, trials: int, confidence: float = 0.95) -> float:
    """Clopper-Pearson upper bound on a share: exact and one-sided.

    >>> round(clopper_pearson_upper(0, 300), 6)
    0.009936
    >>> round(clopper_pearson_upper(3, 1000, 0.99), 5)
    0.01001

    It is the share at which ``successes`` or fewer have probability 1 − ``confidence``.

    Raises RobustokError for counts or a confidence out of range.
    Source: Clopper and Pearson (1934).
    """
    from scipy.stats import binomtest

    if trials < 1 or not 0 <= successes <= trials or not 0 < confidence < 1:
        raise RobustokError(
            f"no bound for {successes} of {trials} at confidence {confidence}: "
            "give 0 ≤ successes ≤ trials, and a confidence between 0 and 1"
        )
    test = binomtest(successes, trials, alternative="less")
    return float(test.proportion_ci(confidence, method="exact").high)


def clopper_pearson_lower(successes: int, trials: int, confidence: float = 0.95) -> float:
    """Clopper-Pearson lower bound on a share; the upper bound is that of the other trials.

    >>> round(clopper_pearson_lower(300, 300), 6)
    0.990064
    """
    return 1 - clopper_pearson_upper(trials - successes, trials, confidence)


def exact_mcnemar(lost: int, won: int) -> float:
    """McNemar's exact test: the two-sided p of ``lost`` against ``won`` discordant pairs.

    >>> round(exact_mcnemar(1, 9), 4)
    0.0215
    """
    from scipy.stats import binomtest

    return float(binomtest(lost, lost + won).pvalue) if lost + won else 1.0


def clustered(
    fractions: Sequence[float] | np.ndarray, draws: int = 1
) -> tuple[float, float, float]:
    """Mean accuracy and its 95% interval from the fraction of correct draws of each item.

    >>> mean, low, high = clustered([1, 1, 0, 1, 1, 0, 1, 1], draws=1)
    >>> round(mean, 2), round(low, 2), round(high, 2)
    (0.75, 0.41, 0.93)

    Args:
        fractions: fraction of correct draws of each item, from 0 to 1, float64 [items].
        draws: draws of each item, by default 1.

    Draws of one item are not independent, so they do not count as ``draws`` items. The variance
    between items gives the effective number of independent answers, which is at least the number of
    items and at most that of all draws, and the interval is Wilson's for that number.

    Raises RobustokError without items.
    Source: the clustered standard error of Miller (2024), in Wilson's form, which also holds near 0
    and 1.
    """
    values = np.asarray(fractions, dtype=np.float64)
    n = len(values)
    if n == 0:
        raise RobustokError("no items were evaluated: give at least one")
    mean = float(values.mean())
    effective = float(n)
    if draws > 1 and n > 1 and 0 < mean < 1:
        variance = float(values.var(ddof=1)) / n
        worth = mean * (1 - mean) / variance if variance > 0 else float(n * draws)
        effective = min(max(worth, float(n)), float(n * draws))
    return mean, *wilson(min(mean * effective, effective), effective)


def share(name: str, values: Sequence[bool]) -> dict[str, float]:
    """The share of true values by its name, with its 95% bounds ``low`` and ``high``.

    >>> share("success", [True, False])["success"]
    0.5
    """
    mean, low, high = clustered([float(one) for one in values])
    return {name: mean, "low": low, "high": high}


def compare_answers(
    before: np.ndarray, after: np.ndarray, *, comparisons: int = 1
) -> tuple[float, float, float]:
    """95% bounds of the mean of ``after - before``, and the two-sided p of no difference.

    >>> low, high, p = compare_answers(np.zeros((1, 30)), np.ones((1, 30)))
    >>> low > 0.8, high
    (True, 1.0)

    Args:
        before: float64 [seeds, questions], the share of draws with the right answer.
        after: the same of the other model or scheme, for the same seeds and questions.
        comparisons: number of differences whose intervals hold at once.

    One seed has no variance between seeds: then the interval covers the questions only.
    """
    changes = after - before
    seeds, questions = changes.shape
    parts = [(_between_questions(changes.mean(0)), max(questions - 1, 1))]
    if seeds > 1:
        parts.append((float(changes.mean(1).var(ddof=1)) / seeds, seeds - 1))
    low, high, p = interval(float(changes.mean()), parts, comparisons=comparisons)
    return max(low, -1.0), min(high, 1.0), p


def _between_questions(changes: np.ndarray) -> float:
    """Variance of the mean change from the choice of the questions.

    Two more questions, half of one better, half of one worse and one the same, keep it above 0
    where all questions change alike (Agresti and Min, 2005).
    """
    n = len(changes) + 2
    return float(((changes**2).sum() + 1) / n - (changes.sum() / n) ** 2) / n


def interval(
    mean: float, parts: Sequence[tuple[float, float]], *, comparisons: int = 1
) -> tuple[float, float, float]:
    """Lower and upper 95% bounds of a mean, and the two-sided p of 0.

    >>> low, high, p = interval(0.0, [(1.0, 1)])
    >>> round(high, 1), p
    (12.7, 1.0)

    Args:
        mean: the mean.
        parts: for each source of error, the variance of the mean from it and its degrees of
            freedom.
        comparisons: number of means that the bounds hold for at once, by Bonferroni's inequality.
    """
    from scipy.optimize import brentq
    from scipy.stats import t

    def half_width(level: float) -> float:
        return math.sqrt(
            math.fsum(part * t.isf(level / 2, degrees) ** 2 for part, degrees in parts if part)
        )

    half = half_width(LEVEL / comparisons)
    if not half:
        return mean, mean, float(mean == 0)
    if mean == 0 or half_width(_LEAST_P) <= abs(mean):
        return mean - half, mean + half, float(mean == 0)
    # p is the level whose interval ends at 0.
    log_p: Any = brentq(lambda x: half_width(math.exp(x)) - abs(mean), math.log(_LEAST_P), 0.0)
    return mean - half, mean + half, math.exp(log_p)
