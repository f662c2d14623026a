"""Draws that walk a lattice from left to right: by weights of tokens, by counts, or by length.

What a walk may still become is kept as logarithms, which no text is too long for. A text is taken
in runs of whole words: the lattice falls apart between words, and so do these laws.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from robustok.kernels.batch import borrow_batch
from robustok.kernels.long import edges_of
from robustok.kernels.memory import borrow
from robustok.kernels.random import stream, uniform
from robustok.kernels.stochastok import find
from robustok.kernels.trie import borrow_trie
from robustok.kernels.words import word_ends

UNIGRAM, GRAMPA, MAXMATCH = 0, 1, 2
_RUN = 1024  # bytes; a run ends with the word that passes this


@njit(cache=True, nogil=True)
def log_weights(trie, edges, text, start, law, setting, logs, fallback):
    """The weight of each edge before what follows it counts, as a logarithm; -inf: not allowed.

    `unigram`: the token's score over the temperature; a byte stands for an unknown character only.
    `grampa`: 0 for tokens of at least ``setting`` bytes, and where no such token starts for the
    longest that does. `maxmatch`: 0.
    """
    first, step = edges.first, edges.step
    n = len(first) - 1
    weights = np.zeros(len(step))
    if law == UNIGRAM:
        for i in range(n):
            single = -1
            for e in range(first[i], first[i + 1]):
                t = edges.token[e]
                weights[e] = logs[t]
                if fallback[t]:
                    if single < 0:
                        end = start + i + 1
                        while end < start + n and (text[end] & 0xC0) == 0x80:
                            end += 1
                        known = find(trie, text, start + i, end)
                        single = 1 if known >= 0 and not fallback[known] else 0
                    if single:
                        weights[e] = -np.inf
    elif law == GRAMPA:
        for i in range(n):
            longest = 0
            for e in range(first[i], first[i + 1]):
                longest = max(longest, step[e] >> 1)
            least = min(np.int64(setting), np.int64(longest))
            for e in range(first[i], first[i + 1]):
                if step[e] >> 1 < least:
                    weights[e] = -np.inf
    return weights


@njit(cache=True, nogil=True)
def log_totals(edges, weights):
    """For each node the logarithm of the summed weight of all paths on to the end."""
    first, step = edges.first, edges.step
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


@njit(cache=True, nogil=True)
def step_probabilities(edges, weights, total, i, law, setting, out):
    """out[x]: the probability of the x-th edge at node i; the walk must be able to get here."""
    begin, end = edges.first[i], edges.first[i + 1]
    if law == MAXMATCH:  # the longest match first, each passed over with probability `setting`
        shortest = end
        for e in range(end - 1, begin - 1, -1):
            if total[i + (edges.step[e] >> 1)] > -np.inf:
                shortest = e
        left = 1.0
        for e in range(end - 1, begin - 1, -1):
            alive = total[i + (edges.step[e] >> 1)] > -np.inf
            out[e - begin] = 0.0
            if alive:
                out[e - begin] = left if e == shortest else left * (1.0 - setting)
                left -= out[e - begin]
        return
    power = 1.0 / setting if law == GRAMPA else 1.0
    top = -np.inf
    for e in range(begin, end):
        out[e - begin] = power * (weights[e] + total[i + (edges.step[e] >> 1)])
        top = max(top, out[e - begin])
    s = 0.0
    for e in range(begin, end):
        out[e - begin] = np.exp(out[e - begin] - top)
        s += out[e - begin]
    for e in range(begin, end):
        out[e - begin] /= s


@njit(cache=True, nogil=True)
def _draw_run(trie, text, start, end, law, setting, least, logs, fallback, state, out, at):
    """Append one walk over text[start:end]; -1 where there is none."""
    edges = edges_of(trie, text, start, end)
    bound = np.float64(least) if law == GRAMPA else setting
    weights = log_weights(trie, edges, text, start, law, bound, logs, fallback)
    total = log_totals(edges, weights)
    n = end - start
    if total[0] == -np.inf:
        return np.int64(-1), state
    most = 1
    for i in range(n):
        most = max(most, edges.first[i + 1] - edges.first[i])
    p = np.empty(most)
    i = np.int64(0)
    while i < n:
        begin = edges.first[i]
        width = edges.first[i + 1] - begin
        chosen = begin
        if width > 1:
            step_probabilities(edges, weights, total, i, law, setting, p)
            u, state = uniform(state)
            for x in range(width):
                if p[x] > 0.0:
                    chosen = begin + x
                    u -= p[x]
                    if u < 0.0:
                        break
        out[at] = edges.token[chosen]
        at += 1
        i += edges.step[chosen] >> 1
    return at, state


@njit(cache=True, nogil=True)
def draw_walk(trie, batch, law, setting, least, logs, fallback, first, last, out, out_ends):
    """Draw texts first..last, which are bytes; returns ``last``, or the text that has no walk."""
    trie, batch = borrow_trie(trie), borrow_batch(batch)
    logs, fallback, out, out_ends = borrow(logs), borrow(fallback), borrow(out), borrow(out_ends)
    longest = np.int64(0)
    for t in range(first, last):
        longest = max(longest, batch.offsets[t + 1] - batch.offsets[t])
    ends = np.empty(longest + 1, np.int64)
    at = np.int64(0)
    for t in range(first, last):
        words = word_ends(trie, batch.values, batch.offsets[t], batch.offsets[t + 1], ends)
        for d in range(batch.draws):
            state = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
            begin = batch.offsets[t]
            for w in range(words):
                if w + 1 < words and ends[w] - begin < _RUN:
                    continue
                at, state = _draw_run(
                    trie, batch.values, begin, ends[w], law, setting, least, logs, fallback,
                    state, out, at,
                )  # fmt: skip
                if at < 0:
                    return t
                begin = ends[w]
            out_ends[(t - first) * batch.draws + d] = at
    return last


@njit(cache=True, nogil=True)
def log_prob_walk(trie, text, ids, token_offsets, law, setting, least, logs, fallback):
    """The log-probability that one walk over the whole text gives ``ids``."""
    edges = edges_of(trie, text, 0, len(text))
    bound = np.float64(least) if law == GRAMPA else setting
    weights = log_weights(trie, edges, text, 0, law, bound, logs, fallback)
    total = log_totals(edges, weights)
    p = np.empty(len(edges.token) + 1)
    i = np.int64(0)
    found = 0.0
    for t in ids:
        span = token_offsets[t + 1] - token_offsets[t]
        step_probabilities(edges, weights, total, i, law, setting, p)
        chosen = -np.inf
        for e in range(edges.first[i], edges.first[i + 1]):
            if edges.token[e] == t and p[e - edges.first[i]] > 0.0:
                chosen = np.log(p[e - edges.first[i]])
        found += chosen
        if chosen == -np.inf:
            break
        i += span
    return found
