"""Draws by a law of `kernels.walk`, with each word's steps kept by content because words repeat.

A record is the word's hash, its length, its bytes, where each node's edges begin, the edges, and
for each edge the probability that it or an earlier one at its node is taken. Whether a word was
there already changes the time a draw takes and never its result.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.batch import borrow_batch
from robustok.kernels.jit import njit
from robustok.kernels.long import edges_of
from robustok.kernels.memory import borrow
from robustok.kernels.random import stream, uniform
from robustok.kernels.tables import borrow_store, clear
from robustok.kernels.trie import borrow_trie
from robustok.kernels.walk import (
    borrow_edges,
    borrow_law,
    log_totals,
    log_weights,
    step_probabilities,
)
from robustok.kernels.words import LONG, word_ends

_HEAD = 2
FULL, IMPOSSIBLE = -1, -2


@njit(cache=True, nogil=True, inline="always")
def _hash(text, start, end):
    h = np.uint64(0xCBF29CE484222325)
    for p in range(start, end):
        h = (h ^ np.uint64(text[p])) * np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(29)
    return np.int64(h)


@njit(cache=True, nogil=True)
def _steps(trie, law, text, start, end):
    """The edges of a stretch, and the probability of each or an earlier one of its node."""
    edges = edges_of(trie, text, start, end)
    weights = log_weights(trie, edges, text, start, law)
    total = log_totals(edges, weights)
    upto = np.ones(len(edges.token))
    p = np.empty(max(1, np.diff(edges.first).max()))
    for i in range(end - start):
        begin, after = edges.first[i], edges.first[i + 1]
        if after - begin < 2 or total[i] == -np.inf:
            continue
        step_probabilities(edges, weights, total, i, law.kind, law.setting, p)
        last, so_far = begin, 0.0
        for e in range(begin, after):
            so_far += p[e - begin]
            upto[e] = so_far
            if p[e - begin] > 0.0:
                last = e
        upto[last:after] = 1.0
    return edges, upto, total[0] > -np.inf


@njit(cache=True, nogil=True)
def _build(store, trie, law, text, start, end, h):
    """A new record, or FULL, or IMPOSSIBLE."""
    edges, upto, possible = _steps(trie, law, text, start, end)
    if not possible:
        return np.int64(IMPOSSIBLE)
    n, count = end - start, len(edges.token)
    record = store.used[0]
    first = record + _HEAD + (n + 7) // 8
    after = first + (n + 2) // 2 + 2 * count
    if after > len(store.words):
        return np.int64(FULL)
    store.words[record], store.words[record + 1] = h, n
    for p in range(n):
        store.bytes[(record + _HEAD) * 8 + p] = text[start + p]
    for i in range(n + 1):
        store.ints[first * 2 + i] = edges.first[i]
    at = first + (n + 2) // 2
    for e in range(count):
        store.words[at + 2 * e] = (np.int64(edges.token[e]) << 32) | (edges.step[e] >> 1)
        store.floats[at + 2 * e + 1] = upto[e]
    store.used[0] = after
    store.used[1] += 1
    return record


@njit(cache=True, nogil=True, inline="always")
def _lookup(store, trie, law, text, start, end):
    """The record of a word, made if new; FULL when there is no room, or IMPOSSIBLE."""
    mask = len(store.slots) - 1
    h = _hash(text, start, end)
    slot = h & mask
    while store.slots[slot] != 0:
        record = store.slots[slot] - 1
        if store.words[record] == h and store.words[record + 1] == end - start:
            same = True
            for p in range(start, end):
                if store.bytes[(record + _HEAD) * 8 + p - start] != text[p]:
                    same = False
            if same:
                return record
        slot = (slot + 1) & mask
    if 2 * store.used[1] >= len(store.slots):
        return np.int64(FULL)
    record = _build(store, trie, law, text, start, end, h)
    if record >= 0:
        store.slots[slot] = record + 1
    return record


@njit(cache=True, nogil=True)
def _walk_long(trie, law, text, start, end, state, out, at):
    """One walk over a stretch too long to keep; the position is IMPOSSIBLE where none exists."""
    edges, upto, possible = _steps(trie, law, text, start, end)
    if not possible:
        return np.int64(IMPOSSIBLE), state
    at, state = _walk(edges, upto, end - start, state, out, at)
    return at, state


@njit(cache=True, nogil=True)
def _walk(edges, upto, n, state, out, at):
    """Follow edges from byte 0 to byte ``n``; the caller owns the arrays for the whole walk."""
    edges, upto, out = borrow_edges(edges), borrow(upto), borrow(out)
    i = np.int64(0)
    while i < n:
        e = edges.first[i]
        if edges.first[i + 1] - e > 1:
            u, state = uniform(state)
            while upto[e] <= u:
                e += 1
        out[at] = edges.token[e]
        at += 1
        i += edges.step[e] >> 1
    return at, state


@njit(cache=True, nogil=True)
def _draw_text(trie, store, law, text, start, end, ends, state, out, at):
    """One draw of one text, word by word; FULL or IMPOSSIBLE instead of the end."""
    trie, store, law = borrow_trie(trie), borrow_store(store), borrow_law(law)
    text, ends, out = borrow(text), borrow(ends), borrow(out)
    begin = start
    for w in range(word_ends(trie, text, start, end, ends)):
        if ends[w] - begin > LONG:
            at, state = _walk_long(trie, law, text, begin, ends[w], state, out, at)
            if at < 0:
                return at, state
            begin = ends[w]
            continue
        record = _lookup(store, trie, law, text, begin, ends[w])
        if record < 0:
            return record, state
        n = store.words[record + 1]
        first = record + _HEAD + (n + 7) // 8
        edges = first + (n + 2) // 2
        i = np.int64(0)
        while i < n:
            e = edges + 2 * store.ints[first * 2 + i]
            if store.ints[first * 2 + i + 1] - store.ints[first * 2 + i] > 1:
                u, state = uniform(state)
                while store.floats[e + 1] <= u:
                    e += 2
            out[at] = store.words[e] >> 32
            at += 1
            i += store.words[e] & 0xFFFFFFFF
        begin = ends[w]
    return at, state


@njit(cache=True, nogil=True)
def draw_walk(trie, store, batch, law, first, last, out, out_ends):
    """Draw texts first..last, which are bytes; returns the first text not drawn.

    That is one which the store had no room for, or IMPOSSIBLE where a text has no walk.
    """
    trie, store, batch = borrow_trie(trie), borrow_store(store), borrow_batch(batch)
    law, out, out_ends = borrow_law(law), borrow(out), borrow(out_ends)
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
                trie, store, law, batch.values, batch.offsets[t], batch.offsets[t + 1], ends,
                state, out, at,
            )  # fmt: skip
            if end == IMPOSSIBLE:
                return np.int64(IMPOSSIBLE)
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
