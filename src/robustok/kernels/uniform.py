"""Uniform draws over all tokenizations of each text: each block of a text is drawn by itself."""

from __future__ import annotations

import numpy as np

from robustok.kernels.blocks import LONG, block_ends
from robustok.kernels.compiler.borrow import borrow
from robustok.kernels.compiler.jit import njit
from robustok.kernels.lattice import backward, draw_long, edges_of
from robustok.kernels.numbers import stream
from robustok.kernels.record import draw
from robustok.kernels.store import NO_PATH, NO_ROOM, lookup_block


@njit(cache=True, nogil=True)
def _draw_blocks(tokens, store, text, start, ends, state, out, at):
    """One draw of the blocks of a text; returns the end, or NO_ROOM or NO_PATH, and the state.

    ``text``: uint8; the text begins at ``start``, its blocks end at ``ends`` (int64 [blocks]).
    ``out``: int32, with space for an id a byte from index ``at`` on.
    """
    tokens, store = borrow(tokens), borrow(store)
    text, ends, out = borrow(text), borrow(ends), borrow(out)
    begin = start
    for w in range(len(ends)):
        if ends[w] - begin > LONG:  # too long for a record
            edges = edges_of(tokens.trie, text, begin, ends[w])
            mantissa, exponent = backward(edges, 1.0)
            if mantissa[0] == 0.0:
                return np.int64(NO_PATH), state
            at, _, state = draw_long(edges, 1.0, mantissa, exponent, state, out, at)
        else:
            record = lookup_block(store, tokens, text, begin, ends[w])
            if record < 0:
                return record, state
            at, state = draw(store, record, 0, state, out, at)
        begin = ends[w]
    return at, state


@njit(cache=True, nogil=True)
def draw_uniform(tokens, store, batch, first, last, rows):
    """Draw texts first..last, whose values are bytes.

    ``tokens``, ``batch`` and ``rows`` are those of `kernels.batch`. Returns ``last``, the first
    text that the store had no space for, or NO_PATH.
    """
    tokens, store = borrow(tokens), borrow(store)
    batch, rows = borrow(batch), borrow(rows)
    longest = np.int64(0)
    for t in range(first, last):
        longest = max(longest, batch.offsets[t + 1] - batch.offsets[t])
    ends = np.empty(longest, np.int64)
    at = np.int64(0)
    for t in range(first, last):
        b, e = batch.offsets[t], batch.offsets[t + 1]
        count = block_ends(tokens.trie, batch.values, b, e, ends)
        for d in range(batch.draws):
            state = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
            at, state = _draw_blocks(
                tokens, store, batch.values, b, ends[:count], state, rows.ids, at
            )
            if at < 0:
                return np.int64(t if at == NO_ROOM else at)
            rows.ends[(t - first) * batch.draws + d] = at
    return np.int64(last)
