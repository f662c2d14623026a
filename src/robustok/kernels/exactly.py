"""Uniform draws among the tokenizations with a given number of segments, or of new boundaries.

Paths weighted z**cost are uniform among those of one cost, whatever z is; so z is chosen to make
the wanted cost the usual one, and draws of another cost are thrown away.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.batch import borrow_batch
from robustok.kernels.jit import njit
from robustok.kernels.long import backward, draw_long, edges_of, moments
from robustok.kernels.memory import borrow
from robustok.kernels.random import stream
from robustok.kernels.trie import borrow_trie

_MOST_WANTED = 2.0**59  # clipped as a float: an int64 cast of more than 2**63 is undefined
_NO_DRAW_YET = 1 << 60  # more than any gap to a wanted cost
_FAR = 30.0  # of log z: beyond it the mean hardly moves


@njit(cache=True, nogil=True)
def _mark_boundaries(edges, ids, start, end, token_offsets):
    """Cost 0 for edges that end where a reference token does."""
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
def _solve(edges, wanted):
    """z that makes the mean cost about ``wanted``, with its backward pass."""
    low, high = -_FAR, _FAR
    middle = 0.0
    mantissa, exponent = backward(edges, 1.0)
    for _ in range(50):
        mean, var = moments(edges, np.exp(middle), mantissa, exponent)
        if abs(mean - wanted) < 0.1 * np.sqrt(var) + 0.01:
            break
        if mean < wanted:
            low = middle
        else:
            high = middle
        middle = 0.5 * (low + high)
        mantissa, exponent = backward(edges, np.exp(middle))
    return np.exp(middle), mantissa, exponent


@njit(cache=True, nogil=True)
def draw_exactly_uniform(
    trie, text, byte_offsets, token_offsets, batch, ratio, by_splits, tries, first, last, out,
    out_ends,
):  # fmt: skip
    """⌈ratio·m⌉ segments or splits; after ``tries`` draws the nearest of them."""
    trie, batch, text = borrow_trie(trie), borrow_batch(batch), borrow(text)
    byte_offsets, token_offsets = borrow(byte_offsets), borrow(token_offsets)
    out, out_ends = borrow(out), borrow(out_ends)
    at = np.int64(0)
    for t in range(first, last):
        begin, end = batch.offsets[t], batch.offsets[t + 1]
        wanted = np.int64(min(np.ceil(ratio * (end - begin) - 1e-9), _MOST_WANTED))
        edges = edges_of(trie, text, byte_offsets[t], byte_offsets[t + 1])
        if by_splits:
            _mark_boundaries(edges, batch.values, begin, end, token_offsets)
        z, mantissa, exponent = _solve(edges, wanted)
        for d in range(batch.draws):
            state = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
            best = np.empty(0, np.int32)
            nearest = _NO_DRAW_YET
            stop = at
            for _ in range(tries):
                stop, cost, state = draw_long(edges, z, mantissa, exponent, state, out, at)
                gap = abs(cost - wanted)
                if gap < nearest:
                    nearest = gap
                    if gap == 0:
                        break
                    best = out[at:stop].copy()
            if nearest != 0:
                stop = at + len(best)
                out[at:stop] = best
            at = stop
            out_ends[(t - first) * batch.draws + d] = at
    return last
