"""Distributions of integer sums in one table: a row each, trimmed to what is not negligible."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.compiler.jit import njit
from robustok.kernels.copying import copy_to
from robustok.kernels.memory import borrow

NEGLIGIBLE = 1e-24  # probabilities below are rounding errors of a convolution


class Sums(NamedTuple):
    """Row i: sum s has probability ``table[base[i] + s - low[i]]`` for low[i] <= s <= high[i].

    Any other sum has probability 0. Invariant: base[i] + high[i] - low[i] < len(table) for every
    row with a base that is not negative; a row with base -1 was not kept.
    """

    table: np.ndarray  # float64
    base: np.ndarray  # int64 [rows]
    low: np.ndarray  # int64 [rows]
    high: np.ndarray  # int64 [rows]


@njit(cache=True, nogil=True)
def borrow_sums(sums):
    """The same ``sums`` without reference counts; see `memory`."""
    return Sums(borrow(sums.table), borrow(sums.base), borrow(sums.low), borrow(sums.high))


@njit(cache=True, nogil=True)
def trim(row):
    """The first and last index of ``row`` (float64 [at least 1]) that is not negligible."""
    row = borrow(row)
    first, last = np.int64(0), np.int64(len(row) - 1)
    while last > 0 and row[last] < NEGLIGIBLE:
        last -= 1
    while first < last and row[first] < NEGLIGIBLE:
        first += 1
    return first, last


@njit(cache=True, nogil=True)
def enlarge(table, used, extra):
    """``table`` (float64 [sums]), or a larger copy of the first ``used``, with ``extra`` free."""
    if used + extra <= len(table):
        return table
    larger = np.empty(2 * len(table) + extra)
    copy_to(table, used, larger, 0)
    return larger


@njit(cache=True, nogil=True)
def largest(sums, row):
    """The largest probability of ``row`` (an index of a row that was kept).

    ``sums``: `Sums`.
    """
    best = 0.0
    for s in range(sums.high[row] - sums.low[row] + 1):
        best = max(best, sums.table[sums.base[row] + s])
    return best


@njit(cache=True, nogil=True, inline="always")
def probability_of(sums, row, s):
    """The probability of sum ``s`` (int64) in ``row``, the index of a row that was kept.

    ``sums``: `Sums`. A sum outside low[row]..high[row] has probability 0 and no table index.
    """
    if s < sums.low[row] or s > sums.high[row]:
        return 0.0
    return sums.table[sums.base[row] + s - sums.low[row]]
