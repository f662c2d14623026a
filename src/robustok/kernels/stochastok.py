"""StochasTok: repeated splits of uniformly picked tokens (paper, Algorithm `stok`)."""

from __future__ import annotations

import numpy as np

from robustok.kernels.batch import borrow_batch
from robustok.kernels.jit import njit
from robustok.kernels.memory import borrow
from robustok.kernels.random import below, stream, uniform
from robustok.kernels.tables import SEGMENTS, borrow_store, clear, draw, grades_of, lookup, ways_of
from robustok.kernels.trie import borrow_trie, child


@njit(cache=True, nogil=True)
def find(trie, text, start, end):
    """The token that is text[start:end], or -1."""
    node = np.int32(0)
    for p in range(start, end):
        node = child(trie, node, text[p])
        if node < 0:
            return np.int32(-1)
    return trie.token[node]


@njit(cache=True, nogil=True)
def pairs_of(trie, token_bytes, token_offsets, ordinary):
    """Every way to cut a token into two tokens: CSR over ids, left and right token."""
    size = len(ordinary)
    start = np.zeros(size + 1, np.int64)
    left = np.empty(len(token_bytes), np.int32)
    right = np.empty(len(token_bytes), np.int32)
    n = 0
    for t in range(size):
        if ordinary[t]:
            b, e = token_offsets[t], token_offsets[t + 1]
            node = np.int32(0)
            for cut in range(b + 1, e):
                node = child(trie, node, token_bytes[cut - 1])
                if node < 0:
                    break
                if trie.token[node] >= 0:
                    other = find(trie, token_bytes, cut, e)
                    if other >= 0:
                        left[n], right[n] = trie.token[node], other
                        n += 1
        start[t + 1] = n
    return start, left[:n].copy(), right[:n].copy()


@njit(cache=True, nogil=True)
def draw_stochastok(start, left, right, batch, alpha, first, last, out, out_ends):
    """Two-way splits; the sequence is a linked list, so a uniform index is a uniform position."""
    start, left, right, batch = borrow(start), borrow(left), borrow(right), borrow_batch(batch)
    out, out_ends = borrow(out), borrow(out_ends)
    longest = np.int64(0)
    for t in range(first, last):
        m = batch.offsets[t + 1] - batch.offsets[t]
        longest = max(longest, m + np.int64(np.ceil(alpha * m)))
    token = np.empty(longest + 1, np.int32)
    after = np.empty(longest + 1, np.int32)
    at = np.int64(0)
    for t in range(first, last):
        b, e = batch.offsets[t], batch.offsets[t + 1]
        m = e - b
        picks = np.int64(np.ceil(alpha * m))
        for d in range(batch.draws):
            state = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
            for i in range(m):
                token[i] = batch.values[b + i]
                after[i] = i + 1
            if m:
                after[m - 1] = -1
            n = m
            for _ in range(picks):
                i, state = below(state, n)
                first_pair = start[token[i]]
                ways = start[token[i] + 1] - first_pair
                if ways:
                    x, state = below(state, ways)
                    token[n] = right[first_pair + x]
                    token[i] = left[first_pair + x]
                    after[n] = after[i]
                    after[i] = n
                    n += 1
            i = np.int32(0) if m else np.int32(-1)
            while i >= 0:
                out[at] = token[i]
                at += 1
                i = after[i]
            out_ends[(t - first) * batch.draws + d] = at
    return last


@njit(cache=True, nogil=True, inline="always")
def _split_up_to(trie, store, token_bytes, token_offsets, t, key, ways, state, pieces):
    """Cut token t by one of its expansions into 2..ways pieces, uniform over all of them.

    Returns how many pieces (0: no expansion, -1: the store is full) and the state.
    """
    trie, store, pieces = borrow_trie(trie), borrow_store(store), borrow(pieces)
    token_bytes, token_offsets, key = borrow(token_bytes), borrow(token_offsets), borrow(key)
    b, e = token_offsets[t], token_offsets[t + 1]
    if e - b < 2:
        return np.int64(0), state
    key[0] = t
    entry = lookup(store, trie, SEGMENTS, key, 0, 1, token_bytes, b, e, token_offsets)
    if entry < 0:
        return np.int64(-1), state
    w0 = ways_of(store, entry)
    most = min(np.int64(ways), grades_of(store, entry))
    total = 0.0
    for s in range(2, most + 1):
        total += store.floats[w0 + s]
    if total == 0.0:
        return np.int64(0), state
    u, state = uniform(state)
    left = u * total
    segments = 2
    for s in range(2, most + 1):
        if store.floats[w0 + s] > 0.0:
            segments = s
            left -= store.floats[w0 + s]
            if left < 0.0:
                break
    count, state = draw(store, entry, segments, state, pieces, 0)
    return count, state


@njit(cache=True, nogil=True)
def draw_stochastok_ways(
    trie, store, token_bytes, token_offsets, batch, alpha, ways, first, last, out, out_ends
):
    """As `draw_stochastok`, with all expansions into up to ``ways`` pieces listed together."""
    trie, store, batch = borrow_trie(trie), borrow_store(store), borrow_batch(batch)
    token_bytes, token_offsets = borrow(token_bytes), borrow(token_offsets)
    out, out_ends = borrow(out), borrow(out_ends)
    longest = np.int64(0)
    for t in range(first, last):
        m = batch.offsets[t + 1] - batch.offsets[t]
        longest = max(longest, m + np.int64(np.ceil(alpha * m)) * (ways - 1))
    token = np.empty(longest + 1, np.int32)
    after = np.empty(longest + 1, np.int32)
    pieces = np.empty(ways, np.int32)
    key = np.empty(1, np.int32)
    at = np.int64(0)
    for t in range(first, last):
        b, e = batch.offsets[t], batch.offsets[t + 1]
        m = e - b
        picks = np.int64(np.ceil(alpha * m))
        for d in range(batch.draws):
            state = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
            for i in range(m):
                token[i] = batch.values[b + i]
                after[i] = i + 1
            if m:
                after[m - 1] = -1
            n = m
            pick = 0
            while pick < picks:
                before = state
                i, state = below(state, n)
                count, state = _split_up_to(
                    trie, store, token_bytes, token_offsets, token[i], key, ways, state, pieces
                )
                if count < 0:
                    if store.used[0] == 0:
                        return t
                    clear(store)
                    state = before
                    continue
                if count:
                    token[i] = pieces[0]
                    for x in range(1, count):
                        token[n] = pieces[x]
                        after[n] = after[i]
                        after[i] = n
                        i = n
                        n += 1
                pick += 1
            i = np.int64(0) if m else np.int64(-1)
            while i >= 0:
                out[at] = token[i]
                at += 1
                i = np.int64(after[i])
            out_ends[(t - first) * batch.draws + d] = at
    return last
