"""Which distances some path of a lattice has: exact, without a table of positions by distances.

`feasible` and `largest_feasible` find the largest possible distance up to a wanted one. A linear
pass finds parts of the text that have every distance from 2 to their farthest; enough of them show
that the text has every distance from 2 to its farthest. Other texts need one bit per position and
distance.

Arguments of one meaning in this module: ``edges``: those of a text, where one path has cost 0: the
reference. ``k``: int64, the wanted distance, at least 0. ``begin``, ``end``: nodes of the lattice,
begin before end. ``low``, ``high``: int64 [n + 1], from `lattice.extremes`. ``types``:
`distances.Types` of the blocks of a text. ``longs``: a list of `lattice.Edges`, its unbroken
blocks.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.compiler import njit
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
