"""Confidence intervals for an accuracy, also when one item is scored several times."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from robustok.errors import RobustokError

Z95 = 1.959963984540054


def wilson(correct: float, n: float, z: float = Z95) -> tuple[float, float]:
    """Wilson score interval of ``correct`` successes out of ``n``, 95% unless told.

    >>> low, high = wilson(8, 10)
    >>> round(low, 3), round(high, 3)
    (0.49, 0.943)

    ``n`` may be an effective, fractional number. Raises RobustokError where n is not
    positive or ``correct`` not in 0..n. Source: Wilson (1927).
    """
    if not n > 0 or not 0 <= correct <= n:
        raise RobustokError(
            f"no interval for {correct} correct of {n}: give a positive n, at least {correct}"
        )
    p = correct / n
    center = p + z * z / (2 * n)
    spread = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = 0.0 if correct == 0 else max(0.0, (center - spread) / scale)
    high = 1.0 if correct == n else min(1.0, (center + spread) / scale)
    return low, high


def clustered(
    fractions: Sequence[float] | np.ndarray, draws: int = 1
) -> tuple[float, float, float]:
    """Mean accuracy and its 95% interval from one fraction of correct draws per item.

    >>> mean, low, high = clustered([1, 1, 0, 1, 1, 0, 1, 1], draws=1)
    >>> round(mean, 2), round(low, 2), round(high, 2)
    (0.75, 0.41, 0.93)

    Draws of one item are not independent, so they do not count as ``draws`` items: the
    variance between items gives the number of independent answers the data are worth,
    between the items and all their draws, and the interval is Wilson's for that number.
    Source: the clustered standard error of Miller (2024), in Wilson's form, which also
    holds near 0 and 1.
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
