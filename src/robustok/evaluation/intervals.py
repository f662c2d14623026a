"""Intervals of accuracies under several draws and seeds, and of paired differences, with their p.

All variances between questions include a few added answers (two right and two wrong for an
accuracy, one question lost and one won for a difference), so they never fall below what a few
unseen questions could add.

- One accuracy: Clopper and Pearson's interval for the effective number of independent answers.
- An accuracy over seeds: crossed random effects. An answer depends on the seed (initialization,
  order of the data, draws), on the question, and on both. Every seed has the same questions, so
  more seeds do not shrink the part of the questions. Each part has a quantile of Student's t with
  its own degrees of freedom (for two seeds 12.7, not 1.96), and the part of both is counted once.
  The interval is Wilson's for the number of answers that is worth as much, which is symmetric in
  log-odds and holds near 0 and 1.
- A paired difference: the same crossed effects of the changes, after Bonett and Price. Its p is the
  level whose interval ends at zero, so p < 0.05 exactly where the interval excludes zero. Bounds
  away from zero are those of a score test, after Tango.

A ratio of sums, such as bits per byte over texts, has the interval of the delete-one jackknife.

One quantile for the sum of the parts, with Satterthwaite's degrees of freedom, is not used: with
two or three seeds up to 13% and 8% of tests at 5% are false alarms, since a variance that happens
to come out small also raises the degrees of freedom. `benchmarks/intervals.py` compares 13 forms,
and simulates how often the intervals hold the true value. This module knows no files and no tables.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robustok.checks import check_integer, shown
from robustok.errors import RobustokError

Z95 = 1.959963984540054  # 97.5% of a standard normal variable is below it
LEVEL = 0.05  # of an interval, and of a family of comparisons
_ROUNDING = 1e-12  # the half-width, relative to the mean, that rounding errors can have
_LEAST_P = 1e-100  # the least p that is reported


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


def _clopper_pearson(correct: float, n: float) -> tuple[float, float]:
    """The exact 95% interval of ``correct`` answers of ``n``, which may be fractional.

    A bound is the share at which so many answers or more, or fewer, have probability 2.5%.

    Source: Clopper and Pearson (1934).
    """
    from scipy.special import betaincinv

    def upper(successes: float) -> float:
        if successes >= n:
            return 1.0
        return float(betaincinv(successes + 1, n - successes, 1 - LEVEL / 2))

    return 1 - upper(n - correct), upper(correct)


def effective_answers(fractions: np.ndarray, answers: int) -> float:
    """The effective number of independent answers to some questions.

    >>> round(effective_answers(np.array([1.0, 0.0, 1.0]), 10), 2)
    3.0
    >>> round(effective_answers(np.array([0.5, 0.6, 0.4]), 10), 2)
    5.15

    Args:
        fractions: share of right answers to each question, float64 [questions].
        answers: answers to each question, such as draws times seeds.

    It is n m (1 − m) / s², from the number of questions n to the number of all answers. The mean m
    and the variance s² are over the questions and four more of shares 0, 0, 1 and 1. With one
    answer to each question it is n.

    Source: Korn and Graubard (1998), with the added answers of Agresti and Coull (1998).
    """
    n = len(fractions)
    mean = (math.fsum(fractions) + 2) / (n + 4)
    variance = (math.fsum(fractions * fractions) + 2) / (n + 4) - mean * mean
    return min(max(n * mean * (1 - mean) / variance, float(n)), float(n * answers))


def clustered(
    fractions: Sequence[float] | np.ndarray, draws: int = 1
) -> tuple[float, float, float]:
    """Mean accuracy and its 95% interval from the fraction of correct draws of each item.

    >>> mean, low, high = clustered([1, 1, 0, 1, 1, 0, 1, 1], draws=1)
    >>> round(mean, 2), round(low, 2), round(high, 2)
    (0.75, 0.35, 0.97)

    Args:
        fractions: fraction of correct draws of each item, from 0 to 1, float64 [items].
        draws: draws of each item, by default 1.

    Draws of one item are not independent, so they do not count as ``draws`` items: the interval is
    Clopper and Pearson's for :func:`effective_answers`. With one draw it is exact. A draw that
    turns wrong never raises a bound.

    Raises RobustokError without items, and for a fraction that is not from 0 to 1.
    Source: Korn and Graubard (1998); draws of one item as a cluster as in Miller (2024).
    """
    values = _numbers("fractions", fractions, 1)
    if not len(values):
        raise RobustokError("no items were evaluated: give at least one")
    mean = math.fsum(values) / len(values)
    n = effective_answers(values, check_integer("draws", draws, 1))
    return mean, *_clopper_pearson(min(mean * n, n), n)


def _numbers(name: str, values: Any, dimensions: int, low: float = 0) -> np.ndarray:
    """Numbers from ``low`` to 1, float64 of ``dimensions`` dimensions."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        array = np.empty(())
    if array.ndim != dimensions:
        raise RobustokError(f"{name}: give numbers, not {shown(values)}")
    bad_positions = np.flatnonzero(~((array >= low) & (array <= 1)))
    if len(bad_positions):
        number = array.flat[bad_positions[0]]
        raise RobustokError(f"{name}: number {bad_positions[0]} is {number}, not from {low} to 1")
    return array


def share(name: str, values: Sequence[bool]) -> dict[str, float]:
    """The share of true values by its name, with its 95% bounds ``low`` and ``high``.

    >>> share("success", [True, False])["success"]
    0.5
    """
    mean, low, high = clustered([float(is_true) for is_true in values])
    return {name: mean, "low": low, "high": high}


def over_seeds(answers: np.ndarray, draws: int = 1) -> tuple[float, float, float]:
    """Mean accuracy of a model over seeds, and its 95% interval over seeds and questions.

    >>> answers = np.zeros((3, 100))
    >>> for row, right in zip(answers, (62, 20, 57)):
    ...     row[:right] = 1
    >>> [round(x, 2) for x in over_seeds(answers)]
    [0.46, 0.11, 0.86]

    Args:
        answers: share of right draws, float64 [seeds, questions], of two seeds or more.
        draws: draws of each question, by default 1.

    Source: Wilson (1927), whose interval is symmetric in log-odds (Newcombe 2001).
    """
    answers = _numbers("answers", answers, 2)
    seeds, n = answers.shape
    mean = math.fsum(answers.ravel()) / answers.size
    # Moved from 0 and 1, where a variance of accuracies says nothing about log-odds.
    center = (mean * n + 1) / (n + 2)
    seeds_variance, both_variance = (v / (center * (1 - center)) for v in _variances(answers))
    questions_variance = 1 / effective_answers(answers.mean(0), draws * seeds)
    variance = _Crossed(questions_variance, both_variance, seeds_variance, n, seeds)
    n_effective = (Z95 / variance.half_width(LEVEL)) ** 2
    return mean, *wilson(min(mean * n_effective, n_effective), n_effective)


@dataclass(frozen=True)
class _Crossed:
    """The variance of a mean over seeds and questions, by its source."""

    of_questions: float  # of the means of the questions, which contains `of_both`
    of_both: float  # of the answers to a question between seeds
    of_seeds: float  # of the means of the seeds, which contains `of_both` too
    questions: int
    seeds: int

    def half_width(self, level: float) -> float:
        """Half the width of the interval that misses the true mean with probability ``level``.

        It is max(t²_{Q−1} q, t²_{Q−1} (q − r) + t²_{S−1} s) to the power of a half, for variances
        q, r and s of the mean from Q questions, both and S seeds. The second sum counts ``of_both``
        once, and holds the level for any variances. The first is the interval of one seed.

        Source: Banerjee (1960).
        """
        degrees = max(self.questions - 1, 1)
        questions_only = max(self.of_questions - self.of_both, 0.0)
        crossed = [(questions_only, degrees), (self.of_seeds, self.seeds - 1)]
        return max(_half_width([(self.of_questions, degrees)], level), _half_width(crossed, level))


def _variances(values: np.ndarray) -> tuple[float, float]:
    """The variances of the mean of [seeds, questions] from the seeds, and from both together."""
    seeds, questions = values.shape
    if seeds == 1:
        return 0.0, 0.0
    of_both = (values - values.mean(1, keepdims=True)).var(0, ddof=1)
    of_seeds = float(values.mean(1).var(ddof=1)) / seeds
    return of_seeds, math.fsum(of_both) / seeds / questions**2


def compare_answers(
    before: np.ndarray, after: np.ndarray, *, level: float = LEVEL
) -> tuple[float, float, float]:
    """Bounds of the mean of ``after - before``, 95% ones by default, and the two-sided p of 0.

    >>> low, high, p = compare_answers(np.zeros((1, 30)), np.ones((1, 30)))
    >>> low > 0.8, high
    (True, 1.0)

    Args:
        before: float64 [seeds, questions], the share of draws with the right answer.
        after: the same of the other model or scheme, for the same seeds and questions.
        level: probability that the interval misses the true difference, by default 0.05.

    The interval holds each δ that a test at ``level`` does not reject. The test compares the mean
    of the changes with δ. Two questions of mean δ and sum of squares 2 are added (of δ 0, one lost
    and one won), and the sum of squares is at least the one to expect where δ is true. The draws of
    a question are one cluster. One seed has no variance between seeds: then the interval covers the
    questions only. For one seed and one draw the test of 0 is that of Bonett and Price.

    Source: Bonett and Price (2012); Tango (1998).
    """
    from scipy.optimize import brentq

    changes = _numbers("changes", np.subtract(after, before), 2, low=-1)
    seeds, questions = changes.shape
    of_questions, n = changes.mean(0), questions + 2
    total, squares = math.fsum(of_questions), math.fsum(of_questions**2)
    won, lost = (math.fsum(np.maximum(sign * of_questions, 0)) for sign in (1, -1))
    of_seeds, of_both = _variances(changes)

    def parts_at(delta: float) -> _Crossed:
        """The variances of the mean of the changes and of two more, where its mean is ``delta``."""
        expected = _expected_changes(won, lost, questions, delta)
        expected *= squares / (won + lost) if squares else 1.0
        variance = (max(squares + 2, expected) / n - (total / n) ** 2) / n
        return _Crossed(variance, of_both, of_seeds, questions, seeds)

    def excess(delta: float) -> float:
        return abs(total - questions * delta) / n - parts_at(delta).half_width(level)

    def bound(side: int, mean: float) -> float:
        """The end of the values that are not rejected, below or above the mean."""
        inner, outer = mean, float(side)
        if side * mean < 0:  # 0 is between: the test of 0 gives the side of the bound
            inner, outer = (inner, 0.0) if excess(0.0) > 0 else (0.0, outer)
        end: Any = brentq(excess, inner, outer) if excess(outer) > 0 else outer
        return end

    mean = total / questions
    return bound(-1, mean), bound(1, mean), _p_of(total / n, parts_at(0.0).half_width)


def _expected_changes(won: float, lost: float, n: int, delta: float) -> float:
    """The likeliest sum of ``won`` and ``lost`` of ``n`` where their difference is ``delta`` n.

    It is ``won + lost`` for a ``delta`` of 0, and at least ``n`` times its absolute value.

    Source: Tango (1998).
    """
    b = (won + lost) * (1 - delta) + 2 * delta * (n + won)
    root = math.sqrt(max(b * b - 8 * n * won * delta * (1 + delta), 0.0))
    return max((b + root) / 2 - n * delta, n * abs(delta))


def interval(
    mean: float, parts: Sequence[tuple[float, float]], *, level: float = LEVEL
) -> tuple[float, float, float]:
    """Lower and upper bounds of a mean, 95% ones by default, and the two-sided p of 0.

    >>> low, high, p = interval(0.0, [(1.0, 1)])
    >>> round(high, 1), p
    (12.7, 1.0)

    Args:
        mean: the mean.
        parts: for each source of error, the variance of the mean from it and its degrees of
            freedom.
        level: probability that the interval misses the true mean, by default 0.05.

    Where no part has a variance beyond rounding errors, the bounds are infinite and p is 1.
    """
    half = _half_width(parts, level)
    if half <= _ROUNDING * abs(mean):
        return -math.inf, math.inf, 1.0
    return mean - half, mean + half, _p_of(mean, functools.partial(_half_width, parts))


def _p_of(mean: float, half_width: Callable[[float], float]) -> float:
    """The level whose interval around the mean ends at 0, of at least `_LEAST_P`."""
    from scipy.optimize import brentq

    if mean == 0:
        return 1.0
    if half_width(_LEAST_P) <= abs(mean):
        return _LEAST_P
    log_p: Any = brentq(lambda x: half_width(math.exp(x)) - abs(mean), math.log(_LEAST_P), 0.0)
    return math.exp(log_p)


def _half_width(parts: Sequence[tuple[float, float]], level: float) -> float:
    """The root of the sum of the squared half-widths of all parts: exact for a single one."""
    from scipy.special import stdtrit

    return math.sqrt(
        math.fsum(part * stdtrit(degrees, level / 2) ** 2 for part, degrees in parts if part)
    )


def mean_of(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean over the rows, and half the width of its 95% interval by Student's t.

    >>> mean, half = mean_of(np.array([[1.0], [2.0], [3.0]]))
    >>> mean.tolist(), half.round(2).tolist()
    ([2.0], [2.48])

    ``values`` and both results are float64, [rows, columns] and [columns]. A single row has an
    interval without bounds.
    """
    mean, n = values.mean(axis=0), len(values)
    if n == 1:
        return mean, np.full_like(mean, np.inf)
    return mean, values.std(axis=0, ddof=1) * _half_width([(1 / n, n - 1)], LEVEL)


def ratio_of_sums(parts: np.ndarray, wholes: np.ndarray) -> tuple[float, float, float]:
    """The sum of ``parts`` over that of ``wholes``, and its 95% interval.

    >>> [round(x, 2) for x in ratio_of_sums(np.array([8.0, 11.0, 9.0]), np.array([9.0, 10, 11]))]
    [0.93, 0.55, 1.32]

    Args:
        parts: one for each whole, at least 0, float64 [n].
        wholes: numbers of at least 0, one above it, float64 [n]. A whole of 0 does not count.

    The error is that of the delete-one jackknife, since a few large wholes decide the ratio.
    Student's t has the degrees of freedom of the effective number of equal wholes, (Σw)² / Σw², at
    least two. A single whole has the bounds 0 and infinity.

    Source: Tukey (1958) for the jackknife, Kish (1965) for the number of equal wholes.
    """
    is_counted = wholes > 0
    parts, wholes = parts[is_counted], wholes[is_counted]
    n, total = len(wholes), float(wholes.sum())
    ratio = float(parts.sum()) / total
    if n == 1:
        return ratio, 0.0, math.inf
    ratios_without = (parts.sum() - parts) / (total - wholes)  # the ratio without each one
    variance = float(((ratios_without - ratio) ** 2).sum()) * (n - 1) / n
    degrees = max(total**2 / float((wholes**2).sum()) - 1, 1.0)
    half_width = _half_width([(variance, degrees)], LEVEL)
    return ratio, max(ratio - half_width, 0.0), ratio + half_width


def curve_of(
    name: str, reached_at: Sequence[Sequence[int | None]], most: int
) -> list[dict[str, float]]:
    """The "success" of attacks or the "accuracy" under them by the limit on tokenizations scored.

    >>> [row["accuracy"] for row in curve_of("accuracy", [[None, 7]], most=20)]
    [1.0, 0.5, 0.5]

    Args:
        name: ``"success"`` or ``"accuracy"``.
        reached_at: for each seed and each text, which all seeds share, the number of tokenizations
            scored when it was first broken, None for never.
        most: greatest number of tokenizations scored for a text.

    The limits are 1, each number in ``reached_at``, and ``most``.
    """
    table = []
    for limit in sorted({1, most, *(n for own in reached_at for n in own if n is not None)}):
        broken = [[n is not None and n <= limit for n in own] for own in reached_at]
        counted = (np.array(broken) == (name == "success")).astype(np.float64)
        mean, low, high = over_seeds(counted) if len(counted) > 1 else clustered(counted[0])
        table.append({"n_scored": limit, name: mean, "low": low, "high": high})
    return table
