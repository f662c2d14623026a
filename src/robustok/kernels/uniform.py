"""Uniform draws over all tokenizations of each text (DESIGN: `uniform`)."""

from __future__ import annotations

import numpy as np

from robustok.kernels.batch import borrow_batch
from robustok.kernels.jit import njit
from robustok.kernels.long import backward, draw_long, edges_of
from robustok.kernels.memory import borrow
from robustok.kernels.random import stream
from robustok.kernels.tables import ALL, NO_PATH, borrow_store, clear, draw, lookup
from robustok.kernels.trie import borrow_trie
from robustok.kernels.words import LONG, word_ends


@njit(cache=True, nogil=True)
def _draw_stretch(trie, text, start, end, state, out, at):
    """One draw of a stretch too long to table; the position is NO_PATH where it has none."""
    edges = edges_of(trie, text, start, end)
    mantissa, exponent = backward(edges, 1.0)
    if mantissa[0] == 0.0:
        return np.int64(NO_PATH), state
    at, _, state = draw_long(edges, 1.0, mantissa, exponent, state, out, at)
    return at, state


@njit(cache=True, nogil=True)
def _draw_text(trie, store, text, start, end, ends, state, out, at):
    """One draw of one text, word by word; the position is NO_ROOM or NO_PATH where it fails."""
    trie, store = borrow_trie(trie), borrow_store(store)
    text, ends, out = borrow(text), borrow(ends), borrow(out)
    begin = start
    for w in range(word_ends(trie, text, start, end, ends)):
        if ends[w] - begin > LONG:
            at, state = _draw_stretch(trie, text, begin, ends[w], state, out, at)
            if at < 0:
                return at, state
        else:
            entry = lookup(store, trie, ALL, text, begin, ends[w], text, begin, ends[w], ends)
            if entry < 0:
                return entry, state
            at, state = draw(store, entry, 0, state, out, at)
        begin = ends[w]
    return at, state


@njit(cache=True, nogil=True)
def draw_uniform(trie, store, batch, first, last, out, out_ends):
    """Draw texts first..last; returns the first text the store had no room for, or NO_PATH."""
    trie, store, batch = borrow_trie(trie), borrow_store(store), borrow_batch(batch)
    out, out_ends = borrow(out), borrow(out_ends)
    longest = np.int64(0)
    for t in range(first, last):
        longest = max(longest, batch.offsets[t + 1] - batch.offsets[t])
    ends = np.empty(longest + 1, np.int64)
    at = np.int64(0)
    for t in range(first, last):
        d = 0
        fresh = store.used[0] == 0
        while d < batch.draws:
            state = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
            end, state = _draw_text(
                trie, store, batch.values, batch.offsets[t], batch.offsets[t + 1], ends, state,
                out, at,
            )  # fmt: skip
            if end == NO_PATH:
                return np.int64(NO_PATH)
            if end < 0:
                if fresh:
                    return np.int64(t)
                clear(store)
                fresh = True
                continue
            at = end
            out_ends[(t - first) * batch.draws + d] = at
            d += 1
    return np.int64(last)
