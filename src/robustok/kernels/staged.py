"""Draws at an exact distance of texts with long unbroken stretches, by stages (`kernels.tail`)."""

from __future__ import annotations

import numpy as np

from robustok.kernels.coefficient import edge_probabilities
from robustok.kernels.jit import njit
from robustok.kernels.long import backward, joined
from robustok.kernels.memory import borrow
from robustok.kernels.random import uniform
from robustok.kernels.tables import borrow_store, draw
from robustok.kernels.tail import TRIES, build_tail, chance, draw_tail, draw_to


@njit(cache=True, nogil=True)
def draw_distances(kind, words, start, upto, middle, state, distance):
    """The distances of the first ``words`` words, each by itself; returns their sum, the state."""
    kind, start, upto = borrow(kind), borrow(start), borrow(upto)
    middle, distance = borrow(middle), borrow(distance)
    total = np.int64(0)
    for w in range(words):
        x = kind[w]
        if x >= 0:
            u, state = uniform(state)
            there = middle[x]  # the median, so that few steps are left
            while there > start[x] and u < upto[there - 1]:
                there -= 1
            while there < start[x + 1] - 1 and u >= upto[there]:
                there += 1
            distance[w] = there - start[x]
            total += distance[w]
    return total, state


@njit(cache=True, nogil=True)
def draw_by_tail(
    store, token_offsets, words, kind, types, longs, z, start, upto, middle, k, state0, out, at,
    ends,
):  # fmt: skip
    """Draws at distance k by stages of the unbroken stretches; returns as `_draw_by_block`."""
    store, out, kind, types = borrow_store(store), borrow(out), borrow(kind), borrow(types)
    token_offsets = borrow(token_offsets)
    edges = joined(longs)
    mantissa, exponent = backward(edges, z)
    probability = edge_probabilities(edges, z, mantissa, exponent)
    tail = build_tail(edges, probability, k)
    path, distance = np.empty(len(edges.first), np.int32), np.empty(words, np.int64)
    for d in range(len(state0)):
        state = state0[d]
        end = np.int64(-1)
        for _ in range(TRIES):
            total, state = draw_distances(kind, words, start, upto, middle, state, distance)
            node, end, far, state = draw_to(
                edges, probability, np.int64(0), tail.stages[0], state, path, np.int64(0)
            )
            rest = k - total - far
            u, state = uniform(state)
            if u * tail.best[0] < chance(tail, node, rest):
                end, state = draw_tail(edges, probability, tail, node, rest, state, path, end)
                break
            end = np.int64(-1)
        if end < 0:
            return at, d
        p = 0
        for w in range(words):
            if kind[w] >= 0:
                at, state = draw(store, types[kind[w]], distance[w], state, out, at)
                continue
            size = len(longs[-kind[w] - 1].first) - 1
            while size > 0:
                out[at] = path[p]
                size -= token_offsets[path[p] + 1] - token_offsets[path[p]]
                at += 1
                p += 1
        ends[d] = at
    return at, len(state0)
