"""Paths of a long lattice at an exact distance by probabilistic divide and conquer.

Paths are Markov chains under the weights z**distance. The probabilities of every distance are
computed for the last part of the lattice, its tail. A path is drawn up to the tail and kept with
a probability proportional to that of the distance the tail then must have. The tail is drawn the
same way up to its own last quarter, and so on, and the last LAST bytes by a walk through their
table. The tail of n bytes has n**0.7, so few draws are lost and its distances take O(n) time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.distances import NEGLIGIBLE
from robustok.kernels.jit import njit
from robustok.kernels.memory import borrow
from robustok.kernels.random import uniform

LAST = 256  # bytes whose nodes all keep their distances
TRIES = 1024  # of each stage; the longest expect some 30


class Tail(NamedTuple):
    """Distances of paths from nodes of the tail on: those of node i are row i - stages[0].

    Kept are the rows that a stage may enter at and those of the last stage; others have base -1.
    The probability of distance d is table[base[r] + d - low[r]] for low[r] <= d <= high[r].
    """

    stages: np.ndarray  # int64: the first node of each stage
    best: np.ndarray  # float64 [stages]: the largest probability of a row that it is entered at
    table: np.ndarray  # float64
    base: np.ndarray  # int64 [nodes of the tail]
    low: np.ndarray  # int64 [nodes of the tail]
    high: np.ndarray  # int64 [nodes of the tail]


@njit(cache=True, nogil=True)
def _stages(n):
    """The first node of each stage of a lattice of n bytes."""
    sizes = [min(n, max(np.int64(LAST), np.int64(np.float64(n) ** 0.7)))]
    while sizes[-1] > LAST:
        sizes.append(max(np.int64(LAST), sizes[-1] // 4))
    return np.array([n - size for size in sizes])


@njit(cache=True, nogil=True)
def build_tail(edges, probability, k):
    """The distances up to k of the tail; ``probability``: float64 [edges], of each at its node.

    Keeps a ring of one row more than an edge spans; a row is widened where it does not fit.
    """
    n = len(edges.first) - 1
    stages = _stages(n)
    origin = stages[0]
    best = np.zeros(len(stages))
    ring = np.int64(1)
    for e in range(len(edges.step)):
        ring = max(ring, np.int64(edges.step[e] >> 1))
    ring += 1
    rows = np.zeros((ring, 64))
    low, high = np.zeros(n - origin + 1, np.int64), np.full(n - origin + 1, -1, np.int64)
    base = np.full(n - origin + 1, -1, np.int64)
    table = np.empty(1 << 16)
    free = np.int64(0)
    for i in range(n, origin - 1, -1):
        r = i - origin
        if i == n:
            below, above = np.int64(0), np.int64(0)
            rows[i % ring, 0] = 1.0
        else:
            below, above = np.int64(k) + 1, np.int64(-1)
            for e in range(edges.first[i], edges.first[i + 1]):
                j = r + (edges.step[e] >> 1)
                if probability[e] > 0.0 and high[j] >= low[j]:
                    below = min(below, low[j] + (edges.step[e] & 1))
                    above = max(above, high[j] + (edges.step[e] & 1))
            above = min(above, np.int64(k))
            if above - below + 1 > rows.shape[1]:
                wider = np.zeros((ring, 2 * (above - below + 1)))
                wider[:, : rows.shape[1]] = rows
                rows = wider
            row = rows[i % ring]
            row[: max(above - below + 1, 0)] = 0.0
            for e in range(edges.first[i], edges.first[i + 1]):
                j = r + (edges.step[e] >> 1)
                p = probability[e]
                shift = low[j] + (edges.step[e] & 1) - below
                size = min(high[j] - low[j] + 1, above - below + 1 - shift)
                if p > 0.0 and size > 0:
                    source = rows[(i + (edges.step[e] >> 1)) % ring][:size]
                    into = row[shift : shift + size]
                    for d in range(size):
                        into[d] += p * source[d]
        row = rows[i % ring]
        first, last = np.int64(0), above - below
        while last > 0 and row[last] < NEGLIGIBLE:
            last -= 1
        while first < last and row[first] < NEGLIGIBLE:
            first += 1
        if first > 0:
            for d in range(last - first + 1):
                row[d] = row[d + first]
        low[r], high[r] = below + first, below + last
        keep = i >= stages[-1]
        for s in range(len(stages)):
            if stages[s] <= i < stages[s] + ring:
                keep = True
                for d in range(last - first + 1):
                    best[s] = max(best[s], row[d])
        if keep and last >= first:
            size = last - first + 1
            if free + size > len(table):
                larger = np.empty(2 * len(table) + size)
                larger[:free] = table[:free]
                table = larger
            table[free : free + size] = row[:size]
            base[r] = free
            free += size
    return Tail(stages, best, table, base, low, high)


@njit(cache=True, nogil=True, inline="always")
def chance(tail, node, rest):
    """The probability that a path from ``node`` on has distance ``rest``; 0 where not kept."""
    r = node - tail.stages[0]
    if tail.base[r] < 0 or rest < tail.low[r] or rest > tail.high[r]:
        return 0.0
    return tail.table[tail.base[r] + rest - tail.low[r]]


@njit(cache=True, nogil=True)
def draw_to(edges, probability, node, goal, state, path, at):
    """Walk from ``node`` to the first node from ``goal`` on, tokens to path[at:].

    Returns that node, the end of the path, its distance and the state. Every node that is reached
    has a path on to the end, so an edge of positive probability is always chosen.
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

    Returns the end of the path and the state; the end is -1 where a stage used up its tries.
    """
    n = len(edges.first) - 1
    for s in range(1, len(tail.stages)):
        if node >= tail.stages[s]:
            continue
        begin, accepted = at, False
        for _ in range(TRIES):
            there, at, distance, state = draw_to(
                edges, probability, node, tail.stages[s], state, path, begin
            )
            u, state = uniform(state)
            if u * tail.best[s] < chance(tail, there, rest - distance):
                node, rest, accepted = there, rest - distance, True
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
