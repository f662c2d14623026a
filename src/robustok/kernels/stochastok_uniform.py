"""StochasTok-uni: split counts from a Dirichlet-multinomial, then uniform segmentations.

With one unit of concentration per token the counts are uniform over all ways to write N as m
ordered parts, which one pass over N stars and m - 1 bars draws (paper, section 4 and the appendix
on split counts).
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.batch import borrow_batch
from robustok.kernels.jit import njit
from robustok.kernels.memory import borrow
from robustok.kernels.pairwise import MOST, is_pairwise, reachable_sizes, spans
from robustok.kernels.random import stream, uniform
from robustok.kernels.stochastok import picks_of
from robustok.kernels.tables import (
    NO_PATH,
    NOT_DRAWN,
    SEGMENTS,
    borrow_store,
    clear,
    draw,
    grades_of,
    is_listed,
    lookup,
    ways_of,
)
from robustok.kernels.trie import borrow_trie

# Draws of one token's segmentation under pairwise. One in 2,000 is accepted for the worst tokens
# of real vocabularies (64 equal characters), so all are rejected with probability exp(-32).
TRIES = 1 << 16


@njit(cache=True, nogil=True, inline="always")
def _entry(trie, store, token_bytes, token_offsets, t, key, pairwise, cuts, merged):
    """The table of token t by segments; under pairwise, what repeated splits cannot reach goes.

    From a list the paths themselves are taken out; a walked table only loses the numbers of
    segments that nothing reaches, and its draws have to be tested.
    """
    trie, store, key = borrow_trie(trie), borrow_store(store), borrow(key)
    token_bytes, token_offsets = borrow(token_bytes), borrow(token_offsets)
    b, e = token_offsets[t], token_offsets[t + 1]
    key[0] = t
    known = store.used[0]
    record = lookup(store, trie, SEGMENTS, key, 0, 1, token_bytes, b, e, token_offsets)
    if pairwise and record == known:
        table = spans(trie, token_bytes, b, e)
        if is_listed(store, record):
            _keep_pairwise(store, record, table, token_offsets, cuts, merged)
        else:
            reachable = reachable_sizes(table)
            for s in range(2, grades_of(store, record) + 1):
                if not reachable[s]:
                    store.floats[ways_of(store, record) + s] = 0.0
    return record


@njit(cache=True, nogil=True)
def _keep_pairwise(store, record, table, token_offsets, cuts, merged):
    """Take out of a record's lists what repeated two-way splits cannot reach."""
    ways = ways_of(store, record)
    most = grades_of(store, record)
    for s in range(3, most + 1):
        group = store.words[ways + most + 1 + s]
        base, stride = group >> 16, group & 0xFFFF
        kept = 0
        for p in range(np.int64(store.floats[ways + s])):
            path = store.ints[base + p * stride + 1 : base + p * stride + 1 + s]
            if is_pairwise(table, path, s, token_offsets, cuts, merged):
                store.ints[base + kept * stride + 1 : base + kept * stride + 1 + s] = path
                kept += 1
        store.floats[ways + s] = kept


@njit(cache=True, nogil=True)
def draw_stochastok_uniform(
    trie, store, token_bytes, token_offsets, batch, alpha, pairwise, first, last, out, out_ends
):
    """Draw texts first..last; returns the first text the store had no room for, or a code.

    The code is NO_PATH, or NOT_DRAWN where TRIES draws of a token's segmentation in a row were
    none that two-way splits reach.
    """
    trie, store, batch = borrow_trie(trie), borrow_store(store), borrow_batch(batch)
    token_bytes, token_offsets = borrow(token_bytes), borrow(token_offsets)
    out, out_ends = borrow(out), borrow(out_ends)
    key = np.empty(1, np.int32)
    cuts = np.empty(MOST + 1, np.int64)
    merged = np.empty((MOST + 1, MOST + 1) if pairwise else (1, 1), np.bool_)
    at = np.int64(0)
    for t in range(first, last):
        b, e = batch.offsets[t], batch.offsets[t + 1]
        m = e - b
        splits = picks_of(alpha, m)
        d = 0
        fresh = store.used[0] == 0
        while d < batch.draws:
            state = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
            begin = at
            full = False
            stars, bars = splits, m - 1
            for v in range(b, e):
                share = stars if v == e - 1 else 0
                if stars and v < e - 1:
                    while True:
                        u, state = uniform(state)
                        if u * (stars + bars) >= stars:
                            bars -= 1
                            break
                        stars -= 1
                        share += 1
                token = batch.values[v]
                length = token_offsets[token + 1] - token_offsets[token]
                if share == 0 or length < 2 or (pairwise and length > MOST):
                    out[at] = token
                    at += 1
                    continue
                entry = _entry(
                    trie, store, token_bytes, token_offsets, token, key, pairwise, cuts, merged
                )
                if entry == NO_PATH:
                    return np.int64(NO_PATH)
                if entry < 0:
                    full = True
                    break
                w0 = ways_of(store, entry)
                segments = min(share + 1, grades_of(store, entry))
                while segments > 1 and store.floats[w0 + segments] == 0.0:
                    segments -= 1
                if segments == 1:
                    out[at] = token
                    at += 1
                    continue
                end, state = draw(store, entry, segments, state, out, at)
                if pairwise and segments > 2 and not is_listed(store, entry):
                    table = spans(trie, token_bytes, token_offsets[token], token_offsets[token + 1])
                    tries = 1
                    while not is_pairwise(
                        table, out[at:end], segments, token_offsets, cuts, merged
                    ):
                        if tries == TRIES:
                            return np.int64(NOT_DRAWN)
                        tries += 1
                        end, state = draw(store, entry, segments, state, out, at)
                at = end
            if full:
                at = begin
                if fresh:
                    return t
                clear(store)
                fresh = True
                continue
            out_ends[(t - first) * batch.draws + d] = at
            d += 1
    return last
