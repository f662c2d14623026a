"""Laws that walk a lattice from left to right: by weights of tokens, by counts, or by length.

What a walk may still become is kept as logarithms, which no text is too long for. The lattice
falls apart between words, and so do these laws.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.jit import njit
from robustok.kernels.long import Edges, edges_of
from robustok.kernels.memory import borrow
from robustok.kernels.stochastok import find
from robustok.kernels.trie import borrow_trie

UNIGRAM, GRAMPA, MAXMATCH = 0, 1, 2


class Law(NamedTuple):
    """Which law, and its settings."""

    kind: int
    setting: float  # temperature or probability
    least: int  # bytes of the shortest token that may be taken freely
    logs: np.ndarray  # float64 [ids] under UNIGRAM, else empty
    fallback: np.ndarray  # bool [ids] under UNIGRAM, else empty


@njit(cache=True, nogil=True)
def borrow_law(law):
    """The same law, uncounted."""
    return Law(law.kind, law.setting, law.least, borrow(law.logs), borrow(law.fallback))


@njit(cache=True, nogil=True)
def borrow_edges(edges):
    """The same edges, uncounted."""
    return Edges(borrow(edges.first), borrow(edges.token), borrow(edges.step))


@njit(cache=True, nogil=True)
def log_weights(trie, edges, text, start, law):
    """The weight of each edge before what follows it counts, as a logarithm; -inf: not allowed.

    `unigram`: the token's score over the temperature; a byte stands for an unknown character only.
    `grampa`: 0 for tokens of at least ``least`` bytes, and where no such token starts for the
    longest that does. `maxmatch`: 0.
    """
    trie, edges, text = borrow_trie(trie), borrow_edges(edges), borrow(text)
    law = borrow_law(law)
    first, step = edges.first, edges.step
    n = len(first) - 1
    weights = np.zeros(len(step))
    if law.kind == UNIGRAM:
        for i in range(n):
            single = -1
            for e in range(first[i], first[i + 1]):
                t = edges.token[e]
                weights[e] = law.logs[t]
                if law.fallback[t]:
                    if single < 0:
                        end = start + i + 1
                        while end < start + n and (text[end] & 0xC0) == 0x80:
                            end += 1
                        known = find(trie, text, start + i, end)
                        single = 1 if known >= 0 and not law.fallback[known] else 0
                    if single:
                        weights[e] = -np.inf
    elif law.kind == GRAMPA:
        for i in range(n):
            longest = 0
            for e in range(first[i], first[i + 1]):
                longest = max(longest, step[e] >> 1)
            least = min(np.int64(law.least), np.int64(longest))
            for e in range(first[i], first[i + 1]):
                if step[e] >> 1 < least:
                    weights[e] = -np.inf
    return weights


@njit(cache=True, nogil=True)
def log_totals(edges, weights):
    """For each node the logarithm of the summed weight of all paths on to the end."""
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


@njit(cache=True, nogil=True)
def step_probabilities(edges, weights, total, i, kind, setting, out):
    """out[x]: the probability of the x-th edge at node i; the walk must be able to get here."""
    edges, weights, total = borrow_edges(edges), borrow(weights), borrow(total)
    out = borrow(out)
    begin, end = edges.first[i], edges.first[i + 1]
    if kind == MAXMATCH:  # the longest match first, each passed over with probability `setting`
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
    power = 1.0 / setting if kind == GRAMPA else 1.0
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
def log_prob_walk(trie, text, ids, token_offsets, law):
    """The log-probability that one walk over the whole text gives ``ids``."""
    edges = edges_of(trie, text, 0, len(text))
    weights = log_weights(trie, edges, text, 0, law)
    total = log_totals(edges, weights)
    p = np.empty(len(edges.token) + 1)
    i = np.int64(0)
    found = 0.0
    for t in ids:
        span = token_offsets[t + 1] - token_offsets[t]
        step_probabilities(edges, weights, total, i, law.kind, law.setting, p)
        chosen = -np.inf
        for e in range(edges.first[i], edges.first[i + 1]):
            if edges.token[e] == t and p[e - edges.first[i]] > 0.0:
                chosen = np.log(p[e - edges.first[i]])
        found += chosen
        if chosen == -np.inf:
            break
        i += span
    return found
