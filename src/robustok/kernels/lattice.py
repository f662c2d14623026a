"""The lattice of a whole row, and the list of tokenizations at an exact small distance."""

from __future__ import annotations

import numpy as np

from robustok.kernels.compiler.jit import njit
from robustok.kernels.long import Edges, append_edges, enlarged, mark_reference

MOST = 1 << 31  # tokens of all neighbors together


@njit(cache=True, nogil=True)
def row_edges(trie, text, token_offsets, ids, fixed):
    """The arrays of `kernels.long.Edges` of a row; a fixed id is one edge that no other crosses.

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


@njit(cache=True, nogil=True)
def at_distance(edges, distance):
    """Every path of cost exactly ``distance``, shorter tokens first.

    ``edges``: `kernels.long.Edges` of n bytes. Returns the ids (int32), the offsets of the paths
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
