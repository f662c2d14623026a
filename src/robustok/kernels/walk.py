"""Schemes that draw each block of a text by itself: uniform, Unigram, GRaMPa and MaxMatch dropout.

A uniform draw takes the record of a block from the store, or walks through a block that is too long
for one. The other schemes walk from left to right by a `StepRule`. A backward pass sums the weights
of all paths from each node to the end, as logarithms, so that no text is too long; a forward walk
then picks each edge by its probability.

The steps of each block are cached, because blocks repeat. The cache is a `store.Store` with records
of its own kind: size and key as in every record, so that `store.find` looks them up, then the edges
of each node and, for each edge, the probability that it or an earlier one at its node is taken.
Whether a block is in the cache changes the time a draw takes and never its result.

Arguments of one meaning in this module: ``rule``: `StepRule`. ``text``: uint8; a block or span is
text[start:end]. ``upto``: float64 [edges], see `_cumulative_steps`. ``out``: int32, with space for
an id for each byte from index ``at`` on: an edge has at least one byte.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.blocks import LONG, block_ends
from robustok.kernels.compiler import borrow, njit
from robustok.kernels.lattice import backward, draw_long, edges_of
from robustok.kernels.numbers import stream, uniform
from robustok.kernels.store import ALL, DRAWN, HEAD, NO_PATH, NO_ROOM, add_slot, draw, find, insert
from robustok.kernels.trie import find_token

UNIGRAM, GRAMPA, MAXMATCH = 0, 1, 2


class StepRule(NamedTuple):
    """How the probabilities of a step follow from the edges at a node."""

    kind: int  # UNIGRAM, GRAMPA or MAXMATCH
    setting: float  # temperature (UNIGRAM: applied to ``logs`` already) or dropout probability
    least: int  # GRAMPA: bytes of the shortest token that may be taken freely
    logs: np.ndarray  # float64 [ids] under UNIGRAM, else empty: score over temperature
    fallback: np.ndarray  # bool [ids] under UNIGRAM, else empty: a byte of an unknown character


@njit()
def _log_weights(trie, edges, text, start, rule):
    """The logarithm of the weight of each edge itself, float64 [edges]; -inf: not allowed.

    ``edges``: the tokens of the span of ``text`` (uint8) that begins at ``start``. ``rule``:
    `StepRule`.

    `unigram`: the token's score over the temperature; a byte stands for an unknown character only.
    `grampa`: of the tokens that some path to the end takes, 0 for those of at least ``least``
    bytes, or else for the longest. `maxmatch`: 0.
    """
    trie, edges, text = borrow(trie), borrow(edges), borrow(text)
    rule = borrow(rule)
    first, step = edges.first, edges.step
    n = len(first) - 1
    weights = np.zeros(len(step))
    if rule.kind == UNIGRAM:
        for i in range(n):
            single = -1
            for e in range(first[i], first[i + 1]):
                t = edges.token[e]
                weights[e] = rule.logs[t]
                if rule.fallback[t]:
                    if single < 0:
                        end = start + i + 1
                        while end < start + n and (text[end] & 0xC0) == 0x80:
                            end += 1
                        known = find_token(trie, text, start + i, end)
                        single = 1 if known >= 0 and not rule.fallback[known] else 0
                    if single:
                        weights[e] = -np.inf
    elif rule.kind == GRAMPA:
        reaches_end = np.zeros(n + 1, np.bool_)
        reaches_end[n] = True
        for i in range(n - 1, -1, -1):
            longest = np.int64(0)
            for e in range(first[i], first[i + 1]):
                size = np.int64(step[e] >> 1)
                if reaches_end[i + size]:
                    longest = max(longest, size)
            reaches_end[i] = longest > 0
            least = min(np.int64(rule.least), longest)
            for e in range(first[i], first[i + 1]):
                if step[e] >> 1 < least:
                    weights[e] = -np.inf
    return weights


@njit()
def _log_totals(edges, weights):
    """The logarithm of the summed weight of all paths from each node to the end, float64 [n + 1].

    ``weights``: float64 [edges], as from `_log_weights`. -inf where there is no path.
    """
    first, step = borrow(edges.first), borrow(edges.step)
    weights = borrow(weights)
    n = len(first) - 1
    total = np.full(n + 1, -np.inf)
    total[n] = 0.0
    for i in range(n - 1, -1, -1):
        top = -np.inf
        for e in range(first[i], first[i + 1]):
            top = max(top, weights[e] + total[i + (step[e] >> 1)])
        if top == -np.inf:
            continue
        if first[i + 1] - first[i] == 1:
            total[i] = top
            continue
        s = 0.0
        for e in range(first[i], first[i + 1]):
            s += np.exp(weights[e] + total[i + (step[e] >> 1)] - top)
        total[i] = top + np.log(s)
    return total


@njit()
def _step_probabilities(edges, weights, total, i, kind, setting, p):
    """Write the probabilities of the edges at node i, from which some path leads to the end.

    ``weights``: float64 [edges], ``total``: float64 [n + 1], as from `_log_weights` and
    `_log_totals`. ``kind`` and ``setting`` are those of the `StepRule`. ``p``: float64 [edges].
    """
    edges, weights, total = borrow(edges), borrow(weights), borrow(total)
    p = borrow(p)
    begin, end = edges.first[i], edges.first[i + 1]
    if kind == MAXMATCH:  # the longest match first, each passed over with probability `setting`
        shortest = end
        for e in range(end - 1, begin - 1, -1):
            if total[i + (edges.step[e] >> 1)] > -np.inf:
                shortest = e
        left = 1.0
        for e in range(end - 1, begin - 1, -1):
            p[e] = 0.0
            if total[i + (edges.step[e] >> 1)] > -np.inf:
                p[e] = left if e == shortest else left * (1.0 - setting)
                left -= p[e]
        return
    power = 1.0 / setting if kind == GRAMPA else 1.0
    top = -np.inf
    for e in range(begin, end):
        p[e] = power * (weights[e] + total[i + (edges.step[e] >> 1)])
        top = max(top, p[e])
    s = 0.0
    for e in range(begin, end):
        p[e] = np.exp(p[e] - top)
        s += p[e]
    for e in range(begin, end):
        p[e] /= s


@njit()
def log_prob_walk(trie, text, ids, token_offsets, rule):
    """The log-probability that one walk over the whole text gives ``ids``; -inf where it cannot.

    ``text``: uint8 [n], the bytes of ``ids`` (int32). ``rule``: `StepRule`. The ids spell the text,
    so every one of them starts at a node before the last one.
    """
    edges = edges_of(trie, text, 0, len(text))
    weights = _log_weights(trie, edges, text, 0, rule)
    total = _log_totals(edges, weights)
    p = np.zeros(len(edges.token))
    power = 1.0 / rule.setting if rule.kind == GRAMPA else 1.0
    i = np.int64(0)
    log_prob = 0.0
    for t in ids:
        # Not from the probabilities, which underflow.
        chosen, top, s = -np.inf, -np.inf, 0.0
        for e in range(edges.first[i], edges.first[i + 1]):
            top = max(top, power * (weights[e] + total[i + (edges.step[e] >> 1)]))
        for e in range(edges.first[i], edges.first[i + 1]):
            log_weight = power * (weights[e] + total[i + (edges.step[e] >> 1)])
            if log_weight > -np.inf:
                s += np.exp(log_weight - top)
            if edges.token[e] == t:
                chosen = log_weight
        if rule.kind == MAXMATCH:
            _step_probabilities(edges, weights, total, i, rule.kind, rule.setting, p)
            top, s = 0.0, 1.0
            for e in range(edges.first[i], edges.first[i + 1]):
                if edges.token[e] == t:
                    chosen = np.log(p[e]) if p[e] > 0.0 else -np.inf
        if chosen == -np.inf:
            return -np.inf
        log_prob += chosen - top - np.log(s)
        i += token_offsets[t + 1] - token_offsets[t]
    return log_prob


@njit(inline="always")
def _first_at(record, n):
    """Where in ``words`` a record keeps the first edge of each of its nodes, int32 [n + 1].

    ``record``: the position of the record. ``n``: bytes of its block, which are its key.
    """
    return record + HEAD + (n + 7) // 8


@njit(inline="always")
def _edges_at(record, n):
    """Where in ``words`` a record keeps its edges.

    ``record``: the position of the record. ``n``: bytes of its block. Each edge has two words: its
    token << 32 | its bytes, and the probability that it or an earlier one is taken.
    """
    return _first_at(record, n) + (n + 2) // 2


@njit()
def _cumulative_steps(trie, rule, text, start, end):
    """The edges of text[start:end], ``upto`` of each, and whether there is a path to the end.

    ``upto``: the probability that an edge or an earlier one at its node is taken. The last possible
    edge of a node has 1.0, so that a search for u < 1 ends there. 0 at nodes without a path to the
    end, which no walk reaches.
    """
    edges = edges_of(trie, text, start, end)
    weights = _log_weights(trie, edges, text, start, rule)
    total = _log_totals(edges, weights)
    upto = np.zeros(len(edges.token))
    for i in range(end - start):
        if total[i] == -np.inf:
            continue
        _step_probabilities(edges, weights, total, i, rule.kind, rule.setting, upto)
        begin, after = edges.first[i], edges.first[i + 1]
        last, so_far = begin, 0.0
        for e in range(begin, after):
            if upto[e] > 0.0:
                last = e
            so_far += upto[e]
            upto[e] = so_far
        upto[last:after] = 1.0
    return edges, upto, total[0] > -np.inf


@njit()
def _build(store, trie, rule, text, start, end):
    """A new record of the block text[start:end]; NO_ROOM, or NO_PATH where it has no path."""
    if 2 * store.used[1] >= len(store.slots):
        return np.int64(NO_ROOM)
    edges, upto, possible = _cumulative_steps(trie, rule, text, start, end)
    if not possible:
        return np.int64(NO_PATH)
    n, count = end - start, len(edges.token)
    record = store.used[0]
    first, at = _first_at(record, n), _edges_at(record, n)
    after = at + 2 * count
    if after > len(store.words):
        return np.int64(NO_ROOM)
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


@njit()
def _walk(edges, upto, n, state, out, at):
    """Follow edges from byte 0 to byte ``n``; returns the end and the state.

    ``edges``, ``upto``: from `_cumulative_steps`, with a path, so that the search at a node ends
    at its last possible edge. ``out``: int32, with space for n ids from index ``at`` on. The caller
    owns the arrays for the whole walk.
    """
    edges, upto, out = borrow(edges), borrow(upto), borrow(out)
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


@njit(inline="always")
def _walk_record(store, record, state, out, at):
    """One walk over a cached block; returns the end and the state.

    ``record``: position of a record of `_build` in the store. ``out``: int32, with space for an id
    for each byte of the block from index ``at`` on.
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


@njit()
def _draw_text(tokens, store, rule, text, edges, state, out, at):
    """One draw of the blocks between ``edges``; the end is NO_ROOM or NO_PATH where it fails.

    ``edges``: int64 [blocks + 1], ascending, positions in ``text`` (uint8). ``rule``: as for
    `draw_blocks`. ``out``: int32, with space for an id for each byte of the blocks from index
    ``at`` on.
    """
    tokens, store = borrow(tokens), borrow(store)
    text, edges, out = borrow(text), borrow(edges), borrow(out)
    for w in range(len(edges) - 1):
        begin, end = edges[w], edges[w + 1]
        if end - begin > LONG:  # too long to cache
            if rule is None:
                lattice = edges_of(tokens.trie, text, begin, end)
                mantissa, exponent = backward(lattice, 1.0)
                if mantissa[0] == 0.0:
                    return np.int64(NO_PATH), state
                at, _, state = draw_long(lattice, 1.0, mantissa, exponent, state, out, at)
            else:
                lattice, upto, possible = _cumulative_steps(tokens.trie, rule, text, begin, end)
                if not possible:
                    return np.int64(NO_PATH), state
                at, state = _walk(lattice, upto, end - begin, state, out, at)
            continue
        record = find(store, ALL, text, begin, end)
        if rule is None:
            if record < 0:
                record = insert(store, tokens, ALL, text[begin:end], text[begin:end])
            if record < 0:
                return record, state
            at, state = draw(store, record, 0, state, out, at)
        else:
            if record < 0:
                record = _build(store, tokens.trie, rule, text, begin, end)
            if record < 0:
                return record, state
            at, state = _walk_record(store, record, state, out, at)
    return at, state


@njit()
def draw_blocks(tokens, store, batch, rule, first, last, rows):
    """Draw texts first..last, which are bytes; returns the text reached and a code of `store`.

    ``last`` and DRAWN, or the first text that was not drawn, and NO_ROOM or NO_PATH. ``rule``:
    `StepRule`, or None: uniform over all tokenizations. ``rows``: `batch.Rows` of the texts
    first..last.
    """
    tokens, store = borrow(tokens), borrow(store)
    batch, rows = borrow(batch), borrow(rows)
    longest = np.int64(0)
    for t in range(first, last):
        longest = max(longest, batch.offsets[t + 1] - batch.offsets[t])
    edges = np.empty(longest + 2, np.int64)
    at = np.int64(0)
    for t in range(first, last):
        begin, end = batch.offsets[t], batch.offsets[t + 1]
        edges[0] = begin
        blocks = block_ends(tokens.trie, batch.values, begin, end, edges[1:])
        for d in range(batch.draws):
            state = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
            at, state = _draw_text(
                tokens, store, rule, batch.values, edges[: blocks + 1], state, rows.ids, at
            )
            if at < 0:
                return np.int64(t), at
            rows.ends[(t - first) * batch.draws + d] = at
    return np.int64(last), np.int64(DRAWN)
