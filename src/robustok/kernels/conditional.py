"""Draws of a text given its total cost: what `uniform_k` rejects too much for otherwise.

Three ways, from the most common case to the rarest:

- Blocks given their sum: their distributions are convolved, one block after another
  (`convolve_group`). Rows are trimmed, so n blocks take time and memory of about n**1.5.
- Long unbroken blocks by probabilistic divide and conquer (`draw_by_tail`). Paths are Markov chains
  under the weights z**distance. The probability of every distance is computed for the last part of
  the lattice, its tail. A path is drawn up to the tail and accepted with a probability proportional
  to that of the distance which the tail then must have. The tail is drawn the same way up to its
  own last quarter, and so on; the last LAST bytes are drawn by a walk through a table of all their
  nodes. The tail of n bytes has n**0.7 bytes, so few draws are rejected and its distances take O(n)
  time.
- What is rare and short from a table of positions by costs (`draw_by_table`).

``probability``: float64 [edges], of each edge at its node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.batch import copy_to
from robustok.kernels.compiler import borrow, njit
from robustok.kernels.distances import LANES
from robustok.kernels.lattice import (
    backward,
    edge_probabilities,
    enlarged,
    joined,
    longest_edge,
)
from robustok.kernels.numbers import uniform
from robustok.kernels.store import NOT_DRAWN, draw

NEGLIGIBLE = 1e-24  # probabilities below are rounding errors of a convolution
LAST = 256  # bytes whose nodes all keep their distances
TRIES = 1024  # of each stage; the longest texts expect some 30
TABLE = 1 << 24  # positions times costs


class Sums(NamedTuple):
    """Row i: sum s has probability ``table[base[i] + s - low[i]]`` for low[i] <= s <= high[i].

    Any other sum has probability 0. Invariant: base[i] + high[i] - low[i] < len(table) for every
    row with a base that is not negative; a row with base -1 was not kept.
    """

    table: np.ndarray  # float64
    base: np.ndarray  # int64 [rows]
    low: np.ndarray  # int64 [rows]
    high: np.ndarray  # int64 [rows]


@njit()
def trim(row):
    """The first and last index of ``row`` (float64 [at least 1]) that is not negligible."""
    row = borrow(row)
    first, last = np.int64(0), np.int64(len(row) - 1)
    while last > 0 and row[last] < NEGLIGIBLE:
        last -= 1
    while first < last and row[first] < NEGLIGIBLE:
        first += 1
    return first, last


@njit()
def enlarge(table, used, extra):
    """``table`` (float64 [sums]) of which ``used`` are in use, or a larger copy; ``extra`` fit."""
    return table if used + extra <= len(table) else enlarged(table, 2 * len(table) + extra)


@njit()
def largest(sums):
    """The largest probability of row 0 of ``sums`` (`Sums`)."""
    best = 0.0
    for s in range(sums.high[0] - sums.low[0] + 1):
        best = max(best, sums.table[sums.base[0] + s])
    return best


class Tail(NamedTuple):
    """Distances of paths from a node of the tail to the end: those of node i, row i - stages[0].

    Kept are the rows of nodes at which a path may enter a stage, and those of the last stage.
    """

    stages: np.ndarray  # int64: the first node of each stage
    best: np.ndarray  # float64 [stages]: the largest probability of a row that it is entered at
    sums: Sums  # a row for each node of the tail


@njit()
def _stages(n):
    """The first node of each stage of a lattice of ``n`` bytes, int64 [stages], ascending.

    The last stage starts at node 0 or later, at most LAST bytes before the end.
    """
    sizes = [min(n, max(np.int64(LAST), np.int64(np.float64(n) ** 0.7)))]
    while sizes[-1] > LAST:
        sizes.append(max(np.int64(LAST), sizes[-1] // 4))
    return np.array([n - size for size in sizes])


@njit()
def _bounds(edges, probability, node, row, low, high):
    """The smallest and largest distance from a node to the end; the rows after its own have theirs.

    ``row``: node minus the first node of the tail. ``low``, ``high``: int64 [nodes of the tail],
    indexed by row. The smallest is the larger one without a path.
    """
    smallest, largest = np.int64(1 << 60), np.int64(-1)
    for e in range(edges.first[node], edges.first[node + 1]):
        later, cost = row + (edges.step[e] >> 1), edges.step[e] & 1
        if probability[e] > 0.0 and high[later] >= low[later]:
            smallest = min(smallest, low[later] + cost)
            largest = max(largest, high[later] + cost)
    return smallest, largest


@njit()
def _write_row(edges, probability, rows, node, row, low, high, bounds):
    """Write the probabilities of the distances from ``node`` to the end that are within ``bounds``.

    ``probability``, ``row``, ``low``, ``high``: as for `_bounds`. ``rows``: float64 [ring, width],
    the row of node i being i modulo ring. ``bounds``: int64 [2] as a tuple, the smallest and the
    largest distance, whose number is at most the width. The smallest is that of `_bounds`, so no
    index is negative.
    """
    lowest, highest = bounds
    ring = len(rows)
    target = rows[node % ring]
    target[: max(highest - lowest + 1, 0)] = 0.0
    for e in range(edges.first[node], edges.first[node + 1]):
        span, p = edges.step[e] >> 1, probability[e]
        j = row + span
        shift = low[j] + (edges.step[e] & 1) - lowest
        size = min(high[j] - low[j] + 1, highest - lowest + 1 - shift)
        if p > 0.0 and size > 0:
            source = rows[(node + span) % ring][:size]
            shifted = target[shift : shift + size]
            for d in range(size):
                shifted[d] += p * source[d]


@njit()
def _is_entered(stages, best, node, ring, row):
    """Whether a path may enter a stage at ``node``; then ``best`` takes in its probabilities.

    ``stages``, ``best``: as in `Tail`. ``ring``: one more than an edge spans. ``row``: float64
    [distances], the probabilities of the node.
    """
    is_entered = False
    for s in range(len(stages)):
        if stages[s] <= node < stages[s] + ring:
            is_entered = True
            for d in range(len(row)):
                best[s] = max(best[s], row[d])
    return is_entered


@njit()
def build_tail(edges, probability, k):
    """The distances up to k of paths through the tail, as `Tail`.

    Rows are computed in a ring of one row more than an edge spans, which is widened where a row
    does not fit.
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
        lowest, highest = np.int64(0), np.int64(0)
        if i == n:
            rows[i % ring, 0] = 1.0
        else:
            lowest, highest = _bounds(edges, probability, i, r, low, high)
            highest = min(highest, np.int64(k))
            if highest - lowest + 1 > rows.shape[1]:
                narrow, rows = rows, np.zeros((ring, 2 * (highest - lowest + 1)))
                for x in range(ring):
                    copy_to(narrow[x], narrow.shape[1], rows[x], 0)
            _write_row(edges, probability, rows, i, r, low, high, (lowest, highest))
        row = rows[i % ring]
        first, last = np.int64(0), highest - lowest  # -1 or less: no path of distance up to k
        if last >= 0:
            first, last = trim(row[: last + 1])
        size = max(last - first + 1, np.int64(0))
        if first > 0:
            for d in range(size):
                row[d] = row[d + first]
        low[r], high[r] = lowest + first, lowest + last
        keep = _is_entered(stages, best, i, ring, row[:size]) or i >= stages[-1]
        if keep and size > 0:
            table = enlarge(table, used, size)
            copy_to(row, size, table, used)
            base[r] = used
            used += size
    return Tail(stages, best, Sums(table, base, low, high))


@njit(inline="always")
def chance(tail, node, rest):
    """The probability that a path from ``node`` on has distance ``rest``; 0 where not kept.

    ``tail``: `Tail`. ``node``: int64, from tail.stages[0] to the last node. ``rest``: int64; a
    negative one has probability 0.
    """
    sums, row = tail.sums, node - tail.stages[0]
    if sums.base[row] < 0 or rest < sums.low[row] or rest > sums.high[row]:
        return 0.0
    return sums.table[sums.base[row] + rest - sums.low[row]]


@njit()
def draw_to(edges, probability, node, goal, state, path, at):
    """Walk from ``node`` to the first node at or after ``goal``; its tokens go to path[at:].

    Returns that node, the end of the path, its distance and the state. ``path``: int32 [capacity],
    with space for a token a byte from index ``at`` on. Every node that is reached has a path to the
    end, so an edge of positive probability is always chosen.
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


@njit()
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


class Target(NamedTuple):
    """The distance to draw at, and the weight that makes it the mean distance."""

    k: np.int64
    z: np.float64


class Draws(NamedTuple):
    """The draws of one text.

    Invariant: a draw has at most a token for each byte of the text, and ``ids`` has space for the
    tokens of all draws.
    """

    states: np.ndarray  # uint64 [draws]: the state that each draw begins with
    ids: np.ndarray  # int32: where all draws of a batch are written
    ends: np.ndarray  # int64 [draws]: the end of each draw in ``ids``


@njit()
def draw_distances(kind, types, state, distance):
    """Draw the distances of blocks of types ``kind`` independently; returns their sum, the state.

    ``kind``: int64 [blocks], below the number of types, negative for unbroken blocks, which are
    left out. ``types``: `distances.Types` after `accumulate`. ``distance``: int64 [at least
    blocks], where the distance of block w is written to distance[w].
    """
    kind, types, distance = borrow(kind), borrow(types), borrow(distance)
    total = np.int64(0)
    for w in range(len(kind)):
        x = kind[w]
        if x >= 0:
            u, state = uniform(state)
            drawn = np.int64(0)  # inverse transform by counting, without unpredictable branches
            for b in range(types.row[x], types.row[x + 1]):
                for lane in range(LANES):
                    drawn += u >= types.threshold[b, lane]
            distance[w] = drawn
            total += drawn
    return total, state


@njit()
def draw_by_tail(tokens, store, kind, types, longs, target, draws, at):
    """Draws at the target distance by stages of the unbroken blocks; returns as `_draw_by_group`.

    ``kind``: int64 [blocks], the type of each block, or -1 - i for the i-th of ``longs``.
    ``types``: `distances.Types` of the other blocks. ``longs``: at least one `lattice.Edges`.
    ``target``: `Target`. ``draws``: `Draws`, appended to ``draws.ids`` from ``at`` on.
    """
    tokens, store, types = borrow(tokens), borrow(store), borrow(types)
    kind, out = borrow(kind), borrow(draws.ids)
    edges = joined(longs)
    mantissa, exponent = backward(edges, target.z)
    probability = edge_probabilities(edges, target.z, mantissa, exponent)
    tail = build_tail(edges, probability, target.k)
    path, distance = np.empty(len(edges.first), np.int32), np.empty(len(kind), np.int64)
    for d in range(len(draws.states)):
        state = draws.states[d]
        end = np.int64(-1)
        for _ in range(TRIES):
            total, state = draw_distances(kind, types, state, distance)
            node, end, before_tail, state = draw_to(
                edges, probability, np.int64(0), tail.stages[0], state, path, np.int64(0)
            )
            rest = target.k - total - before_tail
            u, state = uniform(state)
            if u * tail.best[0] < chance(tail, node, rest):
                end, state = draw_tail(edges, probability, tail, node, rest, state, path, end)
                break
            end = np.int64(-1)
        if end < 0:
            return at, d
        p = 0
        for w in range(len(kind)):
            if kind[w] >= 0:
                x = kind[w]
                at, state = draw(store, types.record[x], distance[w], state, out, at)
                continue
            size = len(longs[-kind[w] - 1].first) - 1
            while size > 0:
                out[at] = path[p]
                size -= tokens.offsets[path[p] + 1] - tokens.offsets[path[p]]
                at += 1
                p += 1
        draws.ends[d] = at
    return at, len(draws.states)


@njit()
def draw_by_table(edges, k, draws, at):
    """Draws at distance ``k`` by the logarithm of the number of paths from each node and distance.

    ``k``: at least 0. ``draws``: `Draws`, appended to ``draws.ids`` from ``at`` on. Returns the
    end, or NOT_DRAWN where the table would be too large or no path has the distance.
    """
    n = len(edges.first) - 1
    if (n + 1) * (k + 1) > TABLE:
        return np.int64(NOT_DRAWN)
    logs = np.full((n + 1, k + 1), -np.inf)
    logs[n, 0] = 0.0
    for i in range(n - 1, -1, -1):
        for e in range(edges.first[i], edges.first[i + 1]):
            j, cost = i + (edges.step[e] >> 1), edges.step[e] & 1
            for g in range(cost, k + 1):
                if logs[j, g - cost] > -np.inf:
                    logs[i, g] = np.logaddexp(logs[i, g], logs[j, g - cost])
    for d in range(len(draws.states)):
        state, i, rest = draws.states[d], np.int64(0), np.int64(k)
        while i < n:
            u, state = uniform(state)
            chosen = np.int64(-1)
            for e in range(edges.first[i], edges.first[i + 1]):
                j, cost = i + (edges.step[e] >> 1), edges.step[e] & 1
                if cost <= rest and logs[j, rest - cost] > -np.inf:
                    chosen = e
                    u -= np.exp(logs[j, rest - cost] - logs[i, rest])
                    if u < 0.0:
                        break
            if chosen < 0:
                return np.int64(NOT_DRAWN)
            draws.ids[at] = edges.token[chosen]
            at += 1
            rest -= edges.step[chosen] & 1
            i += edges.step[chosen] >> 1
        draws.ends[d] = at
    return at


@njit()
def convolve_group(types, kind, k):
    """`Sums` of n blocks of types ``kind`` (int64 [n]): row t is the summed distance of blocks[t:].

    Row n is the sum 0. Sums over k are left out.
    """
    types = borrow(types)
    n = len(kind)
    base = np.zeros(n + 1, np.int64)
    low, high = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    table = np.empty(64 * (n + 1))
    table[0] = 1.0
    used = np.int64(1)
    for t in range(n - 1, -1, -1):
        begin = types.start[kind[t]]
        farthest = types.start[kind[t] + 1] - begin - 1
        lowest, highest = low[t + 1], min(high[t + 1] + farthest, k)
        width = highest - lowest + 1
        table = enlarge(table, used, width)
        # Slices, in which the compiler sees that no index is negative: three times faster.
        row = table[used : used + width]
        later = table[base[t + 1] : base[t + 1] + high[t + 1] - low[t + 1] + 1]
        row[:] = 0.0
        for d in range(farthest + 1):
            p = types.probability[begin + d]
            if p > 0.0:
                size = min(len(later), len(row) - d)
                target, source = row[d : d + size], later[:size]
                for s in range(size):
                    target[s] += p * source[s]
        first, last = trim(row)
        base[t], low[t], high[t] = used + first, lowest + first, lowest + last
        used += last + 1
    return Sums(table, base, low, high)


@njit()
def group_size(blocks):
    """How many of ``blocks`` to convolve: the table grows with it, the attempts needed shrink.

    Draws depend on it. The factor of a third and the share of 1/64 were measured.
    """
    size = max(np.int64(blocks ** (2.0 / 3.0) / 3.0), min(blocks // 64, 1024), 48)
    return min(size, blocks)
