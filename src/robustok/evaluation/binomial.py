"""Clopper and Pearson's exact upper bound on a share, without scipy."""

from __future__ import annotations

import numpy as np

from robustok.errors import RobustokError


def share_below(found: int, draws: int, confidence: float = 0.95) -> float:
    """The share that is not exceeded, at this confidence, by what gave ``found`` of ``draws``.

    >>> round(share_below(0, 300), 6)
    0.009936
    >>> round(share_below(3, 1000, 0.99), 5)
    0.01001

    One-sided and exact: the p at which ``found`` or fewer of ``draws`` independent draws have
    probability 1 − ``confidence``, by bisection to the last bits. Raises RobustokError for
    impossible counts. Source: Clopper and Pearson (1934).
    """
    if draws < 1 or not 0 <= found <= draws or not 0 < confidence < 1:
        raise RobustokError(
            f"no bound for {found} of {draws} at confidence {confidence}: "
            "give 0 ≤ found ≤ draws, and a confidence between 0 and 1"
        )
    if found == draws:
        return 1.0
    i = np.arange(1, found + 1)
    log_ways = np.concatenate([[0.0], np.cumsum(np.log((draws - i + 1) / i))])
    hits = np.arange(found + 1)

    def log_tail(p: float) -> float:
        terms = log_ways + hits * np.log(p) + (draws - hits) * np.log1p(-p)
        return float(terms.max() + np.log(np.exp(terms - terms.max()).sum()))

    wanted = float(np.log1p(-confidence))
    low, high = found / draws, 1.0
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return high
        if log_tail(middle) > wanted:
            low = middle
        else:
            high = middle
