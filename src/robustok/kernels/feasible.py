"""Which costs some path of a lattice has: exact, without a table of positions by costs.

`feasible` and `largest_feasible` find the largest possible distance up to a wanted one. A linear
pass finds parts of the text that have every distance from 2 to their farthest; enough of them show
that the text has every distance from 2 to its farthest.

`nearest_of_blocks` and `nearest_of_paths` find the possible cost nearest to a wanted one, for any
edges of cost 0 or 1. All costs of a text are congruent modulo a period, which is 1 in nearly all
texts. Blocks whose costs have no gap but the period fill the gaps of the others once they reach
further than the largest such gap. Then every multiple of the period between the smallest and the
largest cost exists.

Other texts need one bit per position and cost.

Arguments of one meaning in this module: ``edges``: those of a text; for a distance, one path has
cost 0: the reference. ``k``: int64, the wanted cost, at least 0. ``begin``, ``end``: nodes of the
lattice, begin before end. ``low``, ``high``: int64 [n + 1], from `lattice.extremes`. ``types``:
`distances.Types` of the blocks of a text. ``longs``: a list of `lattice.Edges`, its unbroken
blocks.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.compiler import borrow, njit
from robustok.kernels.lattice import extremes, longest_edge

SEGMENT = 256  # bytes of the longest segment whose distances are listed
GROUP = 32  # bytes of segments that are tried together first
MOST_BITS = np.int64(1) << 33  # edges times words of 64 distances; more is not attempted


@njit()
def costs_between(edges, begin, end, most):
    """Which costs up to ``most`` paths from begin to end have: bool [most + 1].

    ``most``: int64, at least 0.
    """
    has = np.zeros((end - begin + 1, most + 1), np.bool_)
    has[end - begin, 0] = True
    for i in range(end - 1, begin - 1, -1):
        for e in range(edges.first[i], edges.first[i + 1]):
            j, cost = i + (edges.step[e] >> 1), edges.step[e] & 1
            if j <= end:
                for d in range(cost, most + 1):
                    has[i - begin, d] |= has[j - begin, d - cost]
    return has[0]


@njit()
def _path_nodes(edges, best):
    """Which nodes the first path has whose costs to the end are ``best``: bool [n + 1].

    ``best``: int64 [n + 1], one of the results of `lattice.extremes`, of a lattice with a path.
    So a node of the path has an edge with this cost, and the search ends within its edges.
    """
    n = len(edges.first) - 1
    on_path = np.zeros(n + 1, np.bool_)
    i = np.int64(0)
    while i < n:
        on_path[i] = True
        e = edges.first[i]
        j = i + (edges.step[e] >> 1)
        while best[j] < 0 or best[j] + (edges.step[e] & 1) != best[i]:
            e += 1
            j = i + (edges.step[e] >> 1)
        i = j
    on_path[n] = True
    return on_path


@njit()
def _meeting_nodes(edges, low, high):
    """The nodes on both a cheapest and a dearest path, int64 in order, node 0 and the last one."""
    on_cheapest, on_dearest = _path_nodes(edges, low), _path_nodes(edges, high)
    meet, count = np.empty(len(edges.first), np.int64), 0
    for i in range(len(edges.first)):
        if on_cheapest[i] and on_dearest[i]:
            meet[count] = i
            count += 1
    return meet[:count]


@njit()
def flexible(edges):
    """(farthest, simple, three, gap) of a lattice; -1, 0, False, 0 where it has no path.

    The lattice is cut into segments where the reference and one farthest path meet. ``simple`` is
    the summed farthest distance of segments that have every distance from 2 to their farthest;
    ``three``: one of them has distance 3; ``gap`` is the largest farthest distance of a segment.
    Stops as soon as ``simple`` exceeds ``gap``, which shows that all distances from 2 exist.
    """
    low, most = extremes(edges)
    if most[0] < 0:
        return np.int64(-1), np.int64(0), False, np.int64(0)
    meet = _meeting_nodes(edges, low, most)
    count = len(meet)
    gap = np.int64(0)
    for c in range(count - 1):
        gap = max(gap, most[meet[c]] - most[meet[c + 1]])
    simple, three = np.int64(0), False
    c = 0
    while c < count - 1 and not (three and simple > gap):
        after = c + 1  # some segments at once: tokens across them give more distances
        while after < count - 1 and meet[after] - meet[c] < GROUP:
            after += 1
        reach = most[meet[c]] - most[meet[after]]
        if reach >= 2 and meet[after] - meet[c] <= SEGMENT:
            if costs_between(edges, meet[c], meet[after], reach)[2:].all():
                simple += reach
                three = three or reach >= 3
            else:
                after = c + 1
                reach = most[meet[c]] - most[meet[after]]
                if reach >= 2 and costs_between(edges, meet[c], meet[after], reach)[2:].all():
                    simple += reach
                    three = three or reach >= 3
        c = after
    return most[0], simple, three, gap


@njit()
def cost_bits(edges, most):
    """The costs up to ``most`` (int64, at least 0) that paths have, one bit each: uint64 [words].

    Empty where that is too large to compute.
    """
    n = len(edges.first) - 1
    words = most // 64 + 1
    if len(edges.step) * words > MOST_BITS:
        return np.zeros(0, np.uint64)
    ring = longest_edge(edges) + 1
    bits = np.zeros((ring, words), np.uint64)
    one, top = np.uint64(1), np.uint64(63)
    bits[n % ring, 0] = one
    for i in range(n - 1, -1, -1):
        row = bits[i % ring]
        row[:] = np.uint64(0)
        for e in range(edges.first[i], edges.first[i + 1]):
            source = bits[(i + (edges.step[e] >> 1)) % ring]
            if edges.step[e] & 1:
                carry = np.uint64(0)
                for w in range(words):
                    row[w] |= (source[w] << one) | carry
                    carry = source[w] >> top
            else:
                for w in range(words):
                    row[w] |= source[w]
    return bits[0].copy()


@njit()
def largest_feasible(edges, k):
    """The largest distance up to k that a path has; -1 where that is too large to compute.

    The lattice has a reference path, so distance 0 is feasible.
    """
    if k >= 64:
        farthest, simple, three, gap = flexible(edges)
        if k >= farthest:
            return farthest
        if three and simple > gap:
            return np.int64(k)
    bits = cost_bits(edges, np.int64(k))
    if len(bits) == 0:
        return np.int64(-1)
    best, one = np.int64(k), np.uint64(1)
    while best > 0 and (bits[best >> 6] >> np.uint64(best & 63)) & one == 0:
        best -= 1
    return best


@njit()
def _gcd(a, b):
    """The greatest common divisor of ``a`` and ``b``, int64 of at least 0."""
    while b != 0:
        a, b = b, a % b
    return a


@njit()
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


@njit()
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


@njit()
def nearest_of_blocks(types, longs, k):
    """The cost nearest to ``k`` that some tokenization has, the lower of two; -1: it cannot tell.

    ``types``: `distances.Types` of the blocks of a text. ``longs``: a list of `lattice.Edges`, its
    unbroken blocks. ``k``: int64, the wanted sum of the degrees of types and the costs of
    ``longs``.
    """
    types = borrow(types)
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


@njit()
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


@njit()
def feasible(types, longs, k):
    """The largest distance up to k that some tokenization has; -1 where this cannot tell.

    ``longs``: None where the text has no unbroken blocks.

    Blocks with every distance from 2 to their farthest make up every sum from 2 on, and fill the
    gaps of the other blocks once they reach further than the largest such gap.
    """
    farthest, simple, three, gap = np.int64(0), np.int64(0), False, np.int64(0)
    one = k == 0
    for x in range(len(types.record)):
        begin, most = types.start[x], types.start[x + 1] - types.start[x] - 1
        farthest += most * types.times[x]
        one = one or (most >= 1 and types.counts[begin + 1] > 0.0)
        takes_all = most >= 2
        for d in range(2, most):
            takes_all = takes_all and types.counts[begin + d] > 0.0
        if takes_all:
            simple += most * types.times[x]
            three = three or most >= 3
        else:
            gap = max(gap, most)
    if longs is not None:
        for x in range(len(longs)):
            most, simple_part, has_three, step = flexible(longs[x])
            farthest += most
            simple += simple_part
            three = three or has_three
            gap = max(gap, step)
            one = one or largest_feasible(longs[x], 1) == 1
    if k >= farthest:
        return farthest
    if k <= 1:
        return k if one else np.int64(0)
    return np.int64(k) if three and simple > gap else np.int64(-1)
