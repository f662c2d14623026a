"""Draws by a step rule of `kernels.walk`; the steps of each word are cached, because words repeat.

The cache is a `tables.Store` with records of its own kind: size and key as in every record, so that
`tables.find` looks them up, then the edges of each node and, for each edge, the probability that it
or an earlier one at its node is taken. Whether a word is in the cache changes the time a draw takes
and never its result.

Arguments of one meaning in this module: ``rule``: `walk.StepRule`. ``text``: uint8; a word or span
is text[start:end]. ``upto``: float64 [edges], see `_steps`. ``out``: int32, with space for an id
for each byte from index ``at`` on: an edge has at least one byte.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.batch import borrow_batch, borrow_rows
from robustok.kernels.compiler.jit import njit
from robustok.kernels.long import edges_of
from robustok.kernels.memory import borrow
from robustok.kernels.random import stream, uniform
from robustok.kernels.record import ALL, HEAD
from robustok.kernels.tables import add_slot, borrow_store, find
from robustok.kernels.trie import borrow_trie
from robustok.kernels.walk import (
    borrow_edges,
    borrow_rule,
    log_totals,
    log_weights,
    step_probabilities,
)
from robustok.kernels.words import LONG, word_ends

FULL, IMPOSSIBLE = -1, -2


@njit(cache=True, nogil=True, inline="always")
def _first_at(record, n):
    """Where in ``words`` a record keeps the first edge of each of its nodes, int32 [n + 1].

    ``record``: the position of the record. ``n``: bytes of its word, which are its key.
    """
    return record + HEAD + (n + 7) // 8


@njit(cache=True, nogil=True, inline="always")
def _edges_at(record, n):
    """Where in ``words`` a record keeps its edges.

    ``record``: the position of the record. ``n``: bytes of its word. Each edge has two words: its
    token << 32 | its bytes, and the probability that it or an earlier one is taken.
    """
    return _first_at(record, n) + (n + 2) // 2


@njit(cache=True, nogil=True)
def _steps(trie, rule, text, start, end):
    """The edges of text[start:end], the cumulative probabilities, and whether there is a path.

    The probabilities (float64 [edges]) are summed over the edges of one node; its last possible
    edge has 1.0, so that a search for u < 1 ends there.
    """
    edges = edges_of(trie, text, start, end)
    weights = log_weights(trie, edges, text, start, rule)
    total = log_totals(edges, weights)
    upto = np.ones(len(edges.token))
    p = np.empty(max(1, np.diff(edges.first).max()))
    for i in range(end - start):
        begin, after = edges.first[i], edges.first[i + 1]
        if after - begin < 2 or total[i] == -np.inf:
            continue
        step_probabilities(edges, weights, total, i, rule.kind, rule.setting, p)
        last, so_far = begin, 0.0
        for e in range(begin, after):
            so_far += p[e - begin]
            upto[e] = so_far
            if p[e - begin] > 0.0:
                last = e
        upto[last:after] = 1.0
    return edges, upto, total[0] > -np.inf


@njit(cache=True, nogil=True)
def _build(store, trie, rule, text, start, end):
    """A new record of the word text[start:end]; FULL, or IMPOSSIBLE where it has no path."""
    if 2 * store.used[1] >= len(store.slots):
        return np.int64(FULL)
    edges, upto, possible = _steps(trie, rule, text, start, end)
    if not possible:
        return np.int64(IMPOSSIBLE)
    n, count = end - start, len(edges.token)
    record = store.used[0]
    first, at = _first_at(record, n), _edges_at(record, n)
    after = at + 2 * count
    if after > len(store.words):
        return np.int64(FULL)
    store.words[record] = n
    for p in range(n):
        store.bytes[(record + HEAD) * 8 + p] = text[start + p]
    for i in range(n + 1):
        store.ints[first * 2 + i] = edges.first[i]
    for e in range(count):
        store.words[at + 2 * e] = (np.int64(edges.token[e]) << 32) | (edges.step[e] >> 1)
        store.floats[at + 2 * e + 1] = upto[e]
    store.used[0] = after
    store.used[1] += 1
    add_slot(store, text, start, end, record)
    return record


@njit(cache=True, nogil=True)
def _walk_long(trie, rule, text, start, end, state, out, at):
    """One walk over text[start:end], too long to cache; returns the end and the state.

    ``out``: int32, with space for an id a byte from index ``at`` on. The end is IMPOSSIBLE where
    there is no path.
    """
    edges, upto, possible = _steps(trie, rule, text, start, end)
    if not possible:
        return np.int64(IMPOSSIBLE), state
    at, state = _walk(edges, upto, end - start, state, out, at)
    return at, state


@njit(cache=True, nogil=True)
def _walk(edges, upto, n, state, out, at):
    """Follow edges from byte 0 to byte ``n``; returns the end and the state.

    ``edges`` and ``upto`` are those of `_steps` with a path, so the search at a node ends at its
    last possible edge. ``out``: int32, with space for n ids from index ``at`` on. The caller owns
    the arrays for the whole walk.
    """
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


@njit(cache=True, nogil=True, inline="always")
def _walk_record(store, record, state, out, at):
    """One walk over a cached word; returns the end and the state.

    ``record``: position of a record of `_build` in the store. ``out``: int32, with space for an id
    for each byte of the word from index ``at`` on.
    """
    n = store.words[record]
    first, edges = _first_at(record, n), _edges_at(record, n)
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
    return at, state


@njit(cache=True, nogil=True)
def _draw_words(trie, store, rule, text, edges, state, out, at):
    """One draw of the words between ``edges``; the end is FULL or IMPOSSIBLE where it fails.

    ``edges``: int64 [words + 1], ascending, positions in ``text`` (uint8). ``out``: int32, with
    space for an id for each byte of the words from index ``at`` on.
    """
    trie, store, rule = borrow_trie(trie), borrow_store(store), borrow_rule(rule)
    text, edges, out = borrow(text), borrow(edges), borrow(out)
    for w in range(len(edges) - 1):
        begin, end = edges[w], edges[w + 1]
        if end - begin > LONG:
            at, state = _walk_long(trie, rule, text, begin, end, state, out, at)
            if at < 0:
                return at, state
            continue
        record = find(store, ALL, text, begin, end)
        if record < 0:
            record = _build(store, trie, rule, text, begin, end)
            if record < 0:
                return record, state
        at, state = _walk_record(store, record, state, out, at)
    return at, state


@njit(cache=True, nogil=True)
def draw_walk(trie, store, batch, rule, first, last, rows):
    """Draw texts first..last, which are bytes; returns ``last``.

    Or the first text that the store had no space for, or IMPOSSIBLE where a text has no path.
    ``rows``: `batch.Rows` of the texts first..last.
    """
    trie, store, batch = borrow_trie(trie), borrow_store(store), borrow_batch(batch)
    rule, rows = borrow_rule(rule), borrow_rows(rows)
    longest = np.int64(0)
    for t in range(first, last):
        longest = max(longest, batch.offsets[t + 1] - batch.offsets[t])
    edges = np.empty(longest + 2, np.int64)
    at = np.int64(0)
    for t in range(first, last):
        begin, end = batch.offsets[t], batch.offsets[t + 1]
        edges[0] = begin
        words = word_ends(trie, batch.values, begin, end, edges[1:])
        for d in range(batch.draws):
            state = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
            at, state = _draw_words(
                trie, store, rule, batch.values, edges[: words + 1], state, rows.ids, at
            )
            if at < 0:
                return np.int64(IMPOSSIBLE) if at == IMPOSSIBLE else np.int64(t)
            rows.ends[(t - first) * batch.draws + d] = at
    return np.int64(last)
