"""Uniform draws among the tokenizations with a given number of segments, or of new boundaries.

Paths weighted z**cost are uniform among those of one cost, whatever z is. z makes the wanted cost
the mean cost, and draws of another cost are rejected.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.batch import borrow_batch, borrow_rows, borrow_tokens
from robustok.kernels.jit import njit
from robustok.kernels.long import backward, draw_long, edges_of, moments, write_backward
from robustok.kernels.random import stream

_MOST_WANTED = 2.0**59  # clipped as a float: an int64 cast of more than 2**63 is undefined
_NO_DRAW_YET = 1 << 60  # more than any gap to a wanted cost
_STEEPEST = 30.0  # |log z|: beyond it the mean hardly changes


class Wanted(NamedTuple):
    """The cost to draw at: ceil(ratio * m) for a text of m tokens."""

    ratio: np.float64
    by_splits: bool  # the cost is the number of new boundaries, else of segments
    tries: np.int64  # draws of a text after which the nearest of them is taken


@njit(cache=True, nogil=True)
def _mark_boundaries(edges, ids, start, end, token_offsets):
    """Set cost 0 for edges that end where a token of the reference ids[start:end] (int32) ends.

    ``edges``: those of the text that the reference spells, changed in place: its bytes are as many
    as the nodes after node 0, so every boundary is a node.
    """
    n = len(edges.first) - 1
    boundary = np.zeros(n + 1, np.bool_)
    at = np.int64(0)
    for v in range(start, end):
        at += token_offsets[ids[v] + 1] - token_offsets[ids[v]]
        boundary[at] = True
    for i in range(n):
        for e in range(edges.first[i], edges.first[i + 1]):
            span = edges.step[e] >> 1
            edges.step[e] = span * 2 + (0 if boundary[i + span] else 1)


@njit(cache=True, nogil=True)
def _solve(edges, cost):
    """z for which the mean cost is about ``cost``, by bisection, with its backward pass.

    ``edges``: with a path. Returns z, mantissa and exponent. Bisection needs few passes here,
    because the tolerance is a tenth of a standard deviation.
    """
    low, high = -_STEEPEST, _STEEPEST
    middle = 0.0
    mantissa, exponent = backward(edges, 1.0)
    for _ in range(50):
        mean, var = moments(edges, np.exp(middle), mantissa, exponent)
        if abs(mean - cost) < 0.1 * np.sqrt(var) + 0.01:
            break
        if mean < cost:
            low = middle
        else:
            high = middle
        middle = 0.5 * (low + high)
        write_backward(edges, np.exp(middle), mantissa, exponent)
    return np.exp(middle), mantissa, exponent


@njit(cache=True, nogil=True)
def draw_exactly_uniform(tokens, texts, batch, wanted, first, last, rows):
    """Draw texts first..last at the wanted cost; returns ``last``.

    ``tokens``, ``batch`` and ``rows`` are those of `kernels.batch`; ``texts`` is the same batch as
    bytes. ``wanted``: `Wanted`.
    """
    tokens, texts = borrow_tokens(tokens), borrow_batch(texts)
    batch, rows = borrow_batch(batch), borrow_rows(rows)
    out = rows.ids
    at = np.int64(0)
    for t in range(first, last):
        begin, end = batch.offsets[t], batch.offsets[t + 1]
        cost = np.int64(min(np.ceil(wanted.ratio * (end - begin) - 1e-9), _MOST_WANTED))
        edges = edges_of(tokens.trie, texts.values, texts.offsets[t], texts.offsets[t + 1])
        if wanted.by_splits:
            _mark_boundaries(edges, batch.values, begin, end, tokens.offsets)
        z, mantissa, exponent = _solve(edges, cost)
        for d in range(batch.draws):
            state = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
            nearest = np.empty(0, np.int32)
            smallest_gap = _NO_DRAW_YET
            stop = at
            for _ in range(wanted.tries):
                stop, drawn, state = draw_long(edges, z, mantissa, exponent, state, out, at)
                gap = abs(drawn - cost)
                if gap < smallest_gap:
                    smallest_gap = gap
                    if gap == 0:
                        break
                    nearest = out[at:stop].copy()
            if smallest_gap != 0:
                stop = at + len(nearest)
                out[at:stop] = nearest
            at = stop
            rows.ends[(t - first) * batch.draws + d] = at
    return last
