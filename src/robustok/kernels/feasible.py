"""Which distances the paths of a lattice have: exact, without a table of positions by distances.

A linear pass finds parts of the text that have every distance from 2 to their farthest; enough of
them show that the text has every distance from 2 to its farthest. Other texts need one bit per
position and distance.
Edges are those of `kernels.long.Edges`, with one path of cost 0: the reference.

Arguments of one meaning in this module: ``k``: int64, a distance of at least 0. ``begin``, ``end``:
nodes of the lattice, begin before end.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.compiler.jit import njit
from robustok.kernels.long import longest_edge

SEGMENT = 256  # bytes of the longest segment whose distances are listed
GROUP = 32  # bytes of segments that are tried together first
MOST_BITS = np.int64(1) << 33  # edges times words of 64 distances; more is not attempted


@njit(cache=True, nogil=True)
def _farthest_path(edges):
    """For each node the largest distance of a path to the end, and its first edge; int64 [n + 1].

    Both are -1 where there is no path.
    """
    n = len(edges.first) - 1
    most, best = np.full(n + 1, -1, np.int64), np.full(n + 1, -1, np.int64)
    most[n] = 0
    for i in range(n - 1, -1, -1):
        for e in range(edges.first[i], edges.first[i + 1]):
            j = i + (edges.step[e] >> 1)
            if most[j] >= 0 and most[j] + (edges.step[e] & 1) > most[i]:
                most[i], best[i] = most[j] + (edges.step[e] & 1), e
    return most, best


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def flexible(edges):
    """(farthest, simple, three, gap) of a lattice; -1, 0, False, 0 where it has no path.

    The lattice is cut into segments where the reference and one farthest path meet. ``simple`` is
    the summed farthest distance of segments that have every distance from 2 to their farthest;
    ``three``: one of them has distance 3; ``gap`` is the largest farthest distance of a segment.
    Stops as soon as ``simple`` exceeds ``gap``, which shows that all distances from 2 exist.
    """
    n = len(edges.first) - 1
    most, best = _farthest_path(edges)
    if most[0] < 0:
        return np.int64(-1), np.int64(0), False, np.int64(0)
    on_reference = np.zeros(n + 1, np.bool_)
    i = np.int64(0)
    while i < n:
        on_reference[i] = True
        after = np.int64(n)
        for e in range(edges.first[i], edges.first[i + 1]):
            if edges.step[e] & 1 == 0:
                after = i + (edges.step[e] >> 1)
        i = after
    on_reference[n] = True
    meet = np.empty(n + 1, np.int64)
    count, i, gap = 0, np.int64(0), np.int64(0)
    while True:
        if on_reference[i]:
            meet[count] = i
            if count > 0:
                gap = max(gap, most[meet[count - 1]] - most[i])
            count += 1
        if i == n:
            break
        i += edges.step[best[i]] >> 1
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _largest_in_bits(edges, k):
    """The largest distance up to k of a path, by one bit per distance; -1: too large to compute."""
    row = cost_bits(edges, k)
    if len(row) == 0:
        return np.int64(-1)
    one = np.uint64(1)
    while k > 0 and (row[k >> 6] >> np.uint64(k & 63)) & one == 0:
        k -= 1
    return k


@njit(cache=True, nogil=True)
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
    return _largest_in_bits(edges, np.int64(k))
