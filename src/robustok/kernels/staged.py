"""Draws at an exact distance of texts with long unbroken blocks, by stages (`kernels.tail`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.batch import borrow_tokens
from robustok.kernels.coefficient import edge_probabilities
from robustok.kernels.compiler.jit import njit
from robustok.kernels.distances import LANES, borrow_types
from robustok.kernels.long import backward, joined
from robustok.kernels.memory import borrow
from robustok.kernels.random import uniform
from robustok.kernels.record import draw
from robustok.kernels.tables import borrow_store
from robustok.kernels.tail import TRIES, build_tail, chance, draw_tail, draw_to


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


@njit(cache=True, nogil=True)
def draw_distances(kind, types, state, distance):
    """Draw the distances of words of types ``kind`` independently; returns their sum and the state.

    ``kind``: int64 [words], below the number of types, negative for unbroken words, which are left
    out. ``types``: `distances.Types` after `accumulate`. ``distance``: int64 [at least words],
    where the distance of word w is written to distance[w].
    """
    kind, types, distance = borrow(kind), borrow_types(types), borrow(distance)
    total = np.int64(0)
    for w in range(len(kind)):
        x = kind[w]
        if x >= 0:
            u, state = uniform(state)
            drawn = np.int64(0)  # inverse transform by counting, without unpredictable branches
            for b in range(types.block[x], types.block[x + 1]):
                for lane in range(LANES):
                    drawn += u >= types.threshold[b, lane]
            distance[w] = drawn
            total += drawn
    return total, state


@njit(cache=True, nogil=True)
def draw_by_tail(tokens, store, kind, types, longs, target, draws, at):
    """Draws at the target distance by stages of the unbroken words; returns as `_draw_by_block`.

    ``kind``: int64 [words], the type of each word, or -1 - i for the i-th of ``longs``. ``types``:
    `distances.Types` of the other words. ``longs``: at least one `long.Edges`. ``target``:
    `Target`. ``draws``: `Draws`, appended to ``draws.ids`` from ``at`` on.
    """
    tokens, store, types = borrow_tokens(tokens), borrow_store(store), borrow_types(types)
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
                degree = types.lowest[x] + distance[w]
                at, state = draw(store, types.record[x], degree, state, out, at)
                continue
            size = len(longs[-kind[w] - 1].first) - 1
            while size > 0:
                out[at] = path[p]
                size -= tokens.offsets[path[p] + 1] - tokens.offsets[path[p]]
                at += 1
                p += 1
        draws.ends[d] = at
    return at, len(draws.states)
