"""Lattices as arrays of edges: built from a text, weighted, drawn from and listed.

A path is drawn with weight z**cost by a backward pass, then a walk. Sums over paths exceed the
range of floats, so each node has a mantissa and a binary exponent.

``z`` is a float64, the weight of an edge of cost 1. ``mantissa`` (float64 [n + 1]) and ``exponent``
(int64 [n + 1]) are those of `backward` for the same z.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.batch import copy_to
from robustok.kernels.compiler import borrow, njit
from robustok.kernels.numbers import exponent_of, two_to, uniform
from robustok.kernels.trie import ROOT, descend, token_of

MOST = 1 << 31  # tokens of all neighbors together


class Edges(NamedTuple):
    """All tokens in a text of n bytes; the edges of byte i are first[i]:first[i + 1].

    Invariant: a step is from 1 byte to the rest of the text, so an edge of byte i ends in
    i + 1 ... n. The edges of a byte are sorted by length.
    """

    first: np.ndarray  # int64 [n + 1], ascending from 0
    token: np.ndarray  # int32 [edges]
    step: np.ndarray  # int32 [edges]: byte length * 2 + cost (1 unless it is in the reference)


@njit()
def enlarged(array, size):
    """A copy of ``array`` (int32 [values] or of any other dtype) with space for ``size`` values."""
    larger = np.empty(size, array.dtype)
    copy_to(array, len(array), larger, 0)
    return larger


@njit()
def edges_of(trie, text, start, end):
    """The `Edges` of text[start:end] (uint8), every cost 1."""
    n = end - start
    first = np.empty(n + 1, np.int64)
    token = np.empty(4 * n + 16, np.int32)
    step = np.empty(4 * n + 16, np.int32)
    token, step, count = append_edges(trie, text, start, end, first, token, step, np.int64(0))
    return Edges(first, token[:count], step[:count])


@njit()
def append_edges(trie, text, start, end, first, token, step, count):
    """Append the edges of text[start:end] (uint8), every cost 1, after ``count`` others.

    A search along the trie stops at ``end``, so no edge ends after it. ``first``: int64 [end -
    start + 1], written. ``token``, ``step``: int32 [capacity], of which ``count`` places are in
    use; returned, enlarged where they were full, with the new count. A byte starts at most as many
    tokens as the longest one has bytes, so the search writes within the capacity without a check.
    """
    trie, text, first = borrow(trie), borrow(text), borrow(first)
    n = end - start
    for p in range(n):
        first[p] = count
        most = min(n - p, trie.longest)
        if count + most > len(token):
            size = 2 * count + most
            token, step = enlarged(token, size), enlarged(step, size)
        node = ROOT
        for q in range(p, p + most):
            node = descend(trie, node, text, start + p, start + q)
            if node < 0:
                break
            # Whether a token ends here is unpredictable: written at every node, kept at a token.
            token[count], step[count] = token_of(trie, node), (q + 1 - p) * 2 + 1
            count += token[count] >= 0
    first[n] = count
    return token, step, count


@njit()
def mark_reference(edges, ids, id_start, id_end, token_offsets):
    """Set cost 0 for the edges of the reference ids[id_start:id_end] (int32), and their ids.

    ``edges``: those of the whole text, changed in place. The reference may have another id for the
    same bytes than the trie. It spells the whole text, so each of its tokens starts at a node
    before the last one.
    """
    node = np.int64(0)
    for r in range(id_start, id_end):
        span = token_offsets[ids[r] + 1] - token_offsets[ids[r]]
        for e in range(edges.first[node], edges.first[node + 1]):
            if edges.step[e] >> 1 == span:
                edges.step[e] = span * 2
                edges.token[e] = ids[r]
        node += span


@njit()
def longest_edge(edges):
    """The most bytes of an edge, at least 1."""
    longest = np.int64(1)
    for e in range(len(edges.step)):
        longest = max(longest, np.int64(edges.step[e] >> 1))
    return longest


@njit()
def extremes(edges):
    """For each node the smallest and the largest cost of a path to the end; int64 [n + 1] each.

    Both are -1 where there is no path.
    """
    n = len(edges.first) - 1
    low, high = np.full(n + 1, -1, np.int64), np.full(n + 1, -1, np.int64)
    low[n] = high[n] = 0
    for i in range(n - 1, -1, -1):
        for e in range(edges.first[i], edges.first[i + 1]):
            j, cost = i + (edges.step[e] >> 1), edges.step[e] & 1
            if low[j] >= 0:
                low[i] = low[j] + cost if low[i] < 0 else min(low[i], low[j] + cost)
                high[i] = max(high[i], high[j] + cost)
    return low, high


@njit()
def joined(longs):
    """A list of lattices as one, one after another.

    ``longs``: a list of `Edges`; edges of lattice x end within it, and so do those of its copy.
    """
    nodes, count = np.int64(0), np.int64(0)
    for x in range(len(longs)):
        nodes += len(longs[x].first) - 1
        count += len(longs[x].token)
    first = np.empty(nodes + 1, np.int64)
    token, step = np.empty(count, np.int32), np.empty(count, np.int32)
    node, at = np.int64(0), np.int64(0)
    for x in range(len(longs)):
        n, edges = len(longs[x].first) - 1, len(longs[x].token)
        for i in range(n):
            first[node + i] = longs[x].first[i] + at
        copy_to(longs[x].token, edges, token, at)
        copy_to(longs[x].step, edges, step, at)
        node, at = node + n, at + edges
    first[nodes] = count
    return Edges(first, token, step)


@njit()
def backward(edges, z):
    """The summed weight of all paths from each node to the end, each z**cost.

    Returns mantissas (float64 [n + 1], in [1, 2) or 0 where there is no path) and binary exponents
    (int64 [n + 1]).
    """
    n = len(edges.first) - 1
    mantissa, exponent = np.empty(n + 1), np.empty(n + 1, np.int64)
    write_backward(edges, z, mantissa, exponent)
    return mantissa, exponent


@njit(inline="always")
def _weight(edges, e, i, z, mantissa, exponent, base):
    """The weight of all paths from node ``i`` along edge ``e``, over 2**``base``; float64.

    Reads the mantissas and exponents of later nodes alone. ``base``: int64, about the binary
    exponent of the weight of node i. A weight below 2**-1000 is 0: it changes no sum, and `two_to`
    has no smaller powers.
    """
    j = i + (edges.step[e] >> 1)
    gap = exponent[j] - base
    if mantissa[j] == 0.0 or gap < -1000:
        return 0.0
    scale = z if edges.step[e] & 1 else 1.0
    return mantissa[j] * scale * two_to(gap)


@njit()
def write_backward(edges, z, mantissa, exponent):
    """Write the result of `backward` to ``mantissa`` and ``exponent``.

    For Newton's method: memory that every step allocates anew is cleared by the system every time.
    """
    edges = borrow(edges)
    mantissa, exponent = borrow(mantissa), borrow(exponent)
    n = len(edges.first) - 1
    mantissa[n], exponent[n] = 1.0, 0
    for i in range(n - 1, -1, -1):
        top = np.int64(-(1 << 60))
        for e in range(edges.first[i], edges.first[i + 1]):
            j = i + (edges.step[e] >> 1)
            if mantissa[j] > 0.0:
                top = max(top, exponent[j])
        total = 0.0
        for e in range(edges.first[i], edges.first[i + 1]):
            total += _weight(edges, e, i, z, mantissa, exponent, top)
        mantissa[i], exponent[i] = 0.0, 0
        if total > 0.0:
            shift = exponent_of(total)
            mantissa[i] = total * two_to(-shift)
            exponent[i] = top + shift


@njit(inline="always")
def _slot_after(slot, span, ring):
    """The slot ``span`` nodes after ``slot``, both below ``ring``: below ``ring``, too."""
    later = slot + span
    return later - ring if later >= ring else later


@njit()
def moments(edges, z, mantissa, exponent):
    """Mean and variance of the distance of a path drawn with weight z**distance.

    Keeps a ring of one node more than an edge spans.
    """
    edges = borrow(edges)
    mantissa, exponent = borrow(mantissa), borrow(exponent)
    n = len(edges.first) - 1
    ring = longest_edge(edges) + 1
    mean, var = np.zeros(ring), np.zeros(ring)  # of node i at its slot, i modulo ring
    chance = np.empty(ring)  # a node has at most one edge for each length
    slot = n % ring
    for i in range(n - 1, -1, -1):
        slot = slot - 1 if slot > 0 else ring - 1
        if mantissa[i] == 0.0:
            mean[slot], var[slot] = 0.0, 0.0
            continue
        begin, end = edges.first[i], edges.first[i + 1]
        m1, m2 = 0.0, 0.0
        for e in range(begin, end):
            p = _weight(edges, e, i, z, mantissa, exponent, exponent[i]) / mantissa[i]
            later = _slot_after(slot, edges.step[e] >> 1, ring)
            m1 += p * (mean[later] + (edges.step[e] & 1))
            chance[e - begin] = p
        for e in range(begin, end):
            later = _slot_after(slot, edges.step[e] >> 1, ring)
            m2 += chance[e - begin] * (var[later] + (mean[later] + (edges.step[e] & 1) - m1) ** 2)
        mean[slot], var[slot] = m1, m2
    return mean[0], var[0]  # node 0 is at slot 0


@njit()
def draw_long(edges, z, mantissa, exponent, state, out, at):
    """Append a path drawn with weight z**distance; returns the end, its distance, the state.

    ``out``: int32, with space for an id a byte from index ``at`` on. The lattice must have a path:
    mantissa[0] > 0. Then every node that is reached has one to the end, so an edge is always
    chosen.
    """
    edges = borrow(edges)
    mantissa, exponent, out = borrow(mantissa), borrow(exponent), borrow(out)
    n = len(edges.first) - 1
    i = np.int64(0)
    distance = np.int64(0)
    while i < n:
        u, state = uniform(state)
        left = u * mantissa[i]
        chosen = np.int64(-1)
        for e in range(edges.first[i], edges.first[i + 1]):
            weight = _weight(edges, e, i, z, mantissa, exponent, exponent[i])
            if weight > 0.0:
                chosen = e
                left -= weight
                if left < 0.0:
                    break
        out[at] = edges.token[chosen]
        at += 1
        distance += edges.step[chosen] & 1
        i += edges.step[chosen] >> 1
    return at, distance, state


@njit()
def row_edges(trie, text, token_offsets, ids, fixed):
    """The arrays of `kernels.lattice.Edges` of a row; a fixed id is one edge that no other crosses.

    ``text``: uint8 [n], the bytes of ``ids`` (int32). ``fixed``: bool [ids]. Every id has at
    least one byte, so every step is at least 1.
    """
    n = len(text)
    first = np.empty(n + 1, np.int64)
    token = np.empty(4 * n + 16, np.int32)
    step = np.empty(4 * n + 16, np.int32)
    count, begin, v = np.int64(0), np.int64(0), 0
    while v < len(ids):
        if fixed[v]:
            span = token_offsets[ids[v] + 1] - token_offsets[ids[v]]
            if count + 1 > len(token):
                token, step = enlarged(token, 2 * count + 1), enlarged(step, 2 * count + 1)
            token[count], step[count] = ids[v], span * 2
            first[begin] = count
            count += 1
            first[begin + 1 : begin + span] = count
            begin += span
            v += 1
            continue
        start = v
        end = begin
        while v < len(ids) and not fixed[v]:
            end += token_offsets[ids[v] + 1] - token_offsets[ids[v]]
            v += 1
        part = first[begin : end + 1]
        token, step, count = append_edges(trie, text, begin, end, part, token, step, count)
        mark_reference(Edges(part, token, step), ids, start, v, token_offsets)
        begin = end
    first[n] = count
    return first, token[:count].copy(), step[:count].copy()


@njit()
def at_distance(edges, distance):
    """Every path of cost exactly ``distance``, shorter tokens first.

    ``edges``: `kernels.lattice.Edges` of n bytes. Returns the ids (int32), the offsets of the paths
    (int64 [paths + 1]) and whether they were listed: not where they have over MOST ids together,
    at which the counts saturate. A depth-first search that enters a node only where a path to the
    end has the cost left. Every edge has at least 1 byte, so a path has at most n edges.
    """
    first, token, step = edges.first, edges.token, edges.step
    n = len(first) - 1
    paths = np.zeros((n + 1, distance + 1), np.int64)
    tokens = np.zeros((n + 1, distance + 1), np.int64)
    paths[n, 0] = 1
    for i in range(n - 1, -1, -1):
        for e in range(first[i], first[i + 1]):
            cost, j = step[e] & 1, i + (step[e] >> 1)
            for g in range(cost, distance + 1):
                paths[i, g] = min(paths[i, g] + paths[j, g - cost], MOST)
                more = paths[j, g - cost] + tokens[j, g - cost]
                tokens[i, g] = min(tokens[i, g] + more, MOST)
    if tokens[0, distance] >= MOST:
        return np.empty(0, np.int32), np.zeros(1, np.int64), False
    out = np.empty(tokens[0, distance], np.int32)
    offsets = np.zeros(paths[0, distance] + 1, np.int64)
    if paths[0, distance] == 0:
        return out, offsets, True
    node, left = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    edge = np.zeros(n + 1, np.int64)
    path = np.empty(n + 1, np.int32)
    left[0], edge[0] = distance, first[0]
    depth, row, at = 0, 0, 0
    while depth >= 0:
        if node[depth] == n:
            for x in range(depth):
                out[at + x] = path[x]
            at += depth
            row += 1
            offsets[row] = at
            depth -= 1
            continue
        e = edge[depth]
        if e == first[node[depth] + 1]:
            depth -= 1
            continue
        edge[depth] += 1
        cost, j = step[e] & 1, node[depth] + (step[e] >> 1)
        if cost > left[depth] or paths[j, left[depth] - cost] == 0:
            continue
        path[depth] = token[e]
        depth += 1
        node[depth], left[depth], edge[depth] = j, left[depth - 1] - cost, first[j]
    return out, offsets, True


@njit()
def edge_probabilities(edges, z, mantissa, exponent):
    """The probability of each edge at its node under weight z**cost, float64 [edges]."""
    out = np.zeros(len(edges.step))
    for i in range(len(edges.first) - 1):
        if mantissa[i] == 0.0:
            continue
        for e in range(edges.first[i], edges.first[i + 1]):
            out[e] = _weight(edges, e, i, z, mantissa, exponent, exponent[i]) / mantissa[i]
    return out
