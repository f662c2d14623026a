"""Which cost that some path has is nearest to a wanted one, for edges of cost 0 or 1.

All costs of a text are congruent modulo a period, which is 1 in nearly all texts. Words whose costs
have no gap but the period fill the gaps of the others once they reach further than the largest such
gap. Then every multiple of the period between the smallest and the largest cost exists. Other texts
need one bit per position and cost.

Arguments of one meaning in this module: ``low``, ``high``: int64 [n + 1], from `extremes`.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.compiler.jit import njit
from robustok.kernels.distances import borrow_types
from robustok.kernels.feasible import SEGMENT, cost_bits, costs_between
from robustok.kernels.long import extremes


@njit(cache=True, nogil=True)
def _gcd(a, b):
    """The greatest common divisor of ``a`` and ``b``, int64 of at least 0."""
    while b != 0:
        a, b = b, a % b
    return a


@njit(cache=True, nogil=True)
def _period(edges, low):
    """A common divisor of the differences between the costs of all paths; 0 without a difference.

    A path costs low[0] plus, for each of its edges, what the edge costs more than the cheapest.
    """
    period = np.int64(0)
    for i in range(len(edges.first) - 1):
        for e in range(edges.first[i], edges.first[i + 1]):
            j = i + (edges.step[e] >> 1)
            if period != 1 and low[j] >= 0:
                period = _gcd(period, low[j] + (edges.step[e] & 1) - low[i])
    return period


@njit(cache=True, nogil=True)
def _meeting_nodes(edges, low, high):
    """The nodes on both a cheapest and a dearest path, int64 in order, node 0 and the last one."""
    n = len(edges.first) - 1
    on_cheapest = np.zeros(n + 1, np.bool_)
    meet, count = np.empty(n + 1, np.int64), 0
    for lowest in (True, False):
        best = low if lowest else high
        i = np.int64(0)
        while True:
            if lowest:
                on_cheapest[i] = True
            elif on_cheapest[i]:
                meet[count] = i
                count += 1
            if i == n:
                break
            after = i
            for e in range(edges.first[i], edges.first[i + 1]):
                j = i + (edges.step[e] >> 1)
                if best[j] >= 0 and best[j] + (edges.step[e] & 1) == best[i]:
                    after = j
            i = after
    return meet[:count]


@njit(cache=True, nogil=True)
def _filled(edges, low, high, period, enough):
    """(filled, gap): the costs that a lattice fills, and the most by which others of it differ.

    The lattice is cut into segments where a cheapest and a dearest path meet. ``filled`` is the
    summed range of segments that have all their costs in steps of ``period`` (int64, at least 1).
    It stops at the larger of ``enough`` (int64) and ``gap``.
    """
    meet = _meeting_nodes(edges, low, high)
    gap = np.int64(0)
    for m in range(len(meet) - 1):
        a, b = meet[m], meet[m + 1]
        gap = max(gap, high[a] - high[b] - low[a] + low[b])
    filled = np.int64(0)
    for m in range(len(meet) - 1):
        a, b = meet[m], meet[m + 1]
        cheapest, dearest = low[a] - low[b], high[a] - high[b]
        if filled >= max(gap, enough):
            break
        takes_all = cheapest < dearest and b - a <= SEGMENT
        if takes_all and costs_between(edges, a, b, dearest)[cheapest::period].all():
            filled += dearest - cheapest
    return filled, gap


@njit(cache=True, nogil=True)
def nearest_of_words(types, longs, k):
    """The cost nearest to ``k`` that some tokenization has, the lower of two; -1: it cannot tell.

    ``types``: `distances.Types` of the words of a text. ``longs``: a list of `long.Edges`, its
    unbroken words. ``k``: int64, the wanted sum of the degrees of types and the costs of ``longs``.
    """
    types = borrow_types(types)
    lowest, highest, period, gap = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    step = np.zeros(len(types.record), np.int64)  # of each type, the largest between its degrees
    for x in range(len(types.record)):
        begin, most, last = types.start[x], types.start[x + 1] - types.start[x] - 1, np.int64(0)
        for d in range(1, most + 1):
            if types.counts[begin + d] > 0.0:
                period = _gcd(period, d - last) if period != 1 else period
                step[x] = max(step[x], d - last)
                last = d
        highest += most * types.times[x]
        gap = max(gap, step[x])
    ranges = [extremes(longs[x]) for x in range(len(longs))]
    for x in range(len(longs)):
        low, high = ranges[x]
        lowest += low[0]
        highest += high[0]
        if period != 1:
            period = _gcd(period, _period(longs[x], low))
    if k <= lowest or k >= highest:
        return lowest if k <= lowest else highest
    filled = np.int64(0)
    for x in range(len(types.record)):
        if step[x] == period:
            filled += (types.start[x + 1] - types.start[x] - 1) * types.times[x]
    for x in range(len(longs)):
        low, high = ranges[x]
        more, largest = _filled(longs[x], low, high, period, gap)
        filled += more
        gap = max(gap, largest)
    if filled < gap - period:
        return np.int64(-1)
    below = lowest + (k - lowest) // period * period
    return below if 2 * (k - below) <= period else below + period


@njit(cache=True, nogil=True)
def nearest_of_paths(edges, k):
    """The cost nearest to ``k`` (int64) that some path has, the lower of two.

    ``k`` itself where the lattice is too large to tell. The lattice has a path.
    """
    low, high = extremes(edges)
    if k <= low[0] or k >= high[0]:
        return low[0] if k <= low[0] else high[0]
    bits = cost_bits(edges, high[0])
    if len(bits) == 0:
        return np.int64(k)
    one = np.uint64(1)
    for gap in range(high[0] + 1):
        for cost in (k - gap, k + gap):
            if low[0] <= cost <= high[0] and (bits[cost >> 6] >> np.uint64(cost & 63)) & one:
                return np.int64(cost)
    return np.int64(k)
