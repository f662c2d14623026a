"""Paths of a long lattice at an exact distance by probabilistic divide and conquer.

Paths are Markov chains under the weights z**distance. The probability of every distance is
computed for the last part of the lattice, its tail. A path is drawn up to the tail and accepted
with a probability proportional to that of the distance which the tail then must have. The tail is
drawn the same way up to its own last quarter, and so on; the last LAST bytes are drawn by a walk
through a table of all their nodes. The tail of n bytes has n**0.7 bytes, so few draws are rejected
and its distances take O(n) time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.compiler.jit import njit
from robustok.kernels.copying import copy_to
from robustok.kernels.long import longest_edge
from robustok.kernels.memory import borrow
from robustok.kernels.random import uniform
from robustok.kernels.sums import Sums, enlarge, probability_of, trim

LAST = 256  # bytes whose nodes all keep their distances
TRIES = 1024  # of each stage; the longest texts expect some 30


class Tail(NamedTuple):
    """Distances of paths from a node of the tail to the end: those of node i, row i - stages[0].

    Kept are the rows of nodes at which a path may enter a stage, and those of the last stage.
    """

    stages: np.ndarray  # int64: the first node of each stage
    best: np.ndarray  # float64 [stages]: the largest probability of a row that it is entered at
    sums: Sums  # a row for each node of the tail


@njit(cache=True, nogil=True)
def _stages(n):
    """The first node of each stage of a lattice of ``n`` bytes, int64 [stages], ascending.

    The last stage starts at node 0 or later, at most LAST bytes before the end.
    """
    sizes = [min(n, max(np.int64(LAST), np.int64(np.float64(n) ** 0.7)))]
    while sizes[-1] > LAST:
        sizes.append(max(np.int64(LAST), sizes[-1] // 4))
    return np.array([n - size for size in sizes])


@njit(cache=True, nogil=True)
def _bounds(edges, probability, node, row, low, high):
    """The smallest and largest distance from a node to the end; the rows after its own have theirs.

    ``probability``: float64 [edges], of each edge at its node. ``row``: node minus the first node
    of the tail. ``low``, ``high``: int64 [nodes of the tail], indexed by row. The smallest is the
    larger one without a path.
    """
    smallest, largest = np.int64(1 << 60), np.int64(-1)
    for e in range(edges.first[node], edges.first[node + 1]):
        later, cost = row + (edges.step[e] >> 1), edges.step[e] & 1
        if probability[e] > 0.0 and high[later] >= low[later]:
            smallest = min(smallest, low[later] + cost)
            largest = max(largest, high[later] + cost)
    return smallest, largest


@njit(cache=True, nogil=True)
def _wider(rows, width):
    """A copy of ``rows`` (float64 [rows, less than ``width``]) with zeros up to ``width``."""
    wider = np.zeros((len(rows), width))
    for x in range(len(rows)):
        copy_to(rows[x], rows.shape[1], wider[x], 0)
    return wider


@njit(cache=True, nogil=True)
def _appended(table, used, row, size):
    """``table`` with the first ``size`` values of a row from ``used`` on, enlarged where needed.

    ``table``: float64 [at least ``used``]; ``row``: float64 [at least ``size``].
    """
    table = enlarge(table, used, size)
    copy_to(row, size, table, used)
    return table


@njit(cache=True, nogil=True)
def build_tail(edges, probability, k):
    """The distances up to k of paths through the tail, as `Tail`.

    ``probability``: float64 [edges], of each edge at its node. Rows are computed in a ring of one
    row more than an edge spans, which is widened where a row does not fit.
    """
    n = len(edges.first) - 1
    stages = _stages(n)
    origin = stages[0]
    best = np.zeros(len(stages))
    ring = longest_edge(edges) + 1
    rows = np.zeros((ring, 64))
    low, high = np.zeros(n - origin + 1, np.int64), np.full(n - origin + 1, -1, np.int64)
    base = np.full(n - origin + 1, -1, np.int64)
    table = np.empty(1 << 16)
    used = np.int64(0)
    for i in range(n, origin - 1, -1):
        r = i - origin
        if i == n:
            lowest, highest = np.int64(0), np.int64(0)
            rows[i % ring, 0] = 1.0
        else:
            lowest, highest = _bounds(edges, probability, i, r, low, high)
            highest = min(highest, np.int64(k))
            if highest - lowest + 1 > rows.shape[1]:
                rows = _wider(rows, 2 * (highest - lowest + 1))
            row = rows[i % ring]
            row[: max(highest - lowest + 1, 0)] = 0.0
            for e in range(edges.first[i], edges.first[i + 1]):
                j = r + (edges.step[e] >> 1)
                p = probability[e]
                shift = low[j] + (edges.step[e] & 1) - lowest
                size = min(high[j] - low[j] + 1, highest - lowest + 1 - shift)
                if p > 0.0 and size > 0:
                    source = rows[(i + (edges.step[e] >> 1)) % ring][:size]
                    target = row[shift : shift + size]
                    for d in range(size):
                        target[d] += p * source[d]
        row = rows[i % ring]
        first, last = np.int64(0), highest - lowest  # -1 or less: no path of distance up to k
        if last >= 0:
            first, last = trim(row[: last + 1])
        if first > 0:
            for d in range(last - first + 1):
                row[d] = row[d + first]
        low[r], high[r] = lowest + first, lowest + last
        keep = i >= stages[-1]
        for s in range(len(stages)):
            if stages[s] <= i < stages[s] + ring:
                keep = True
                for d in range(last - first + 1):
                    best[s] = max(best[s], row[d])
        if keep and last >= first:
            size = last - first + 1
            table = _appended(table, used, row, size)
            base[r] = used
            used += size
    return Tail(stages, best, Sums(table, base, low, high))


@njit(cache=True, nogil=True, inline="always")
def chance(tail, node, rest):
    """The probability that a path from ``node`` on has distance ``rest``; 0 where not kept.

    ``tail``: `Tail`. ``node``: int64, from tail.stages[0] to the last node. ``rest``: int64; a
    negative one has probability 0.
    """
    row = node - tail.stages[0]
    return probability_of(tail.sums, row, rest) if tail.sums.base[row] >= 0 else 0.0


@njit(cache=True, nogil=True)
def draw_to(edges, probability, node, goal, state, path, at):
    """Walk from ``node`` to the first node at or after ``goal``; its tokens go to path[at:].

    Returns that node, the end of the path, its distance and the state. ``probability``: float64
    [edges]. ``path``: int32 [capacity], with space for a token a byte from index ``at`` on. Every
    node that is reached has a path to the end, so an edge of positive probability is always chosen.
    """
    first, step, token = borrow(edges.first), borrow(edges.step), borrow(edges.token)
    probability, path = borrow(probability), borrow(path)
    distance = np.int64(0)
    while node < goal:
        u, state = uniform(state)
        chosen = first[node]
        for e in range(first[node], first[node + 1]):
            if probability[e] > 0.0:
                chosen = e
                u -= probability[e]
                if u < 0.0:
                    break
        path[at] = token[chosen]
        at += 1
        distance += step[chosen] & 1
        node += step[chosen] >> 1
    return node, at, distance, state


@njit(cache=True, nogil=True)
def draw_tail(edges, probability, tail, node, rest, state, path, at):
    """Complete a path that entered the tail at ``node``, with distance exactly ``rest``.

    ``tail``: `Tail`. ``probability``, ``path`` and ``at`` are as for `draw_to`. Returns the end of
    the path and the state; the end is -1 where a stage used up its tries, or where no path from a
    node of the last stage has the rest.
    """
    n = len(edges.first) - 1
    for s in range(1, len(tail.stages)):
        if node >= tail.stages[s]:
            continue
        begin, accepted = at, False
        for _ in range(TRIES):
            entered, at, distance, state = draw_to(
                edges, probability, node, tail.stages[s], state, path, begin
            )
            u, state = uniform(state)
            if u * tail.best[s] < chance(tail, entered, rest - distance):
                node, rest, accepted = entered, rest - distance, True
                break
        if not accepted:
            return np.int64(-1), state
    while node < n:
        u, state = uniform(state)
        left, chosen = u * chance(tail, node, rest), np.int64(-1)
        for e in range(edges.first[node], edges.first[node + 1]):
            p = probability[e]
            if p > 0.0:
                p *= chance(tail, node + (edges.step[e] >> 1), rest - (edges.step[e] & 1))
            if p > 0.0:
                chosen = e
                left -= p
                if left < 0.0:
                    break
        if chosen < 0:
            return np.int64(-1), state
        path[at] = edges.token[chosen]
        at += 1
        rest -= edges.step[chosen] & 1
        node += edges.step[chosen] >> 1
    return at, state
