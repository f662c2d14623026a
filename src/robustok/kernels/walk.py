"""Distributions that walk a lattice from left to right: Unigram, GRaMPa and MaxMatch dropout.

A backward pass sums the weights of all paths from each node to the end, as logarithms, so that no
text is too long; a forward walk then picks each edge by its probability. Words are independent of
each other, so `walk_draws` does this word by word.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.compiler.jit import njit
from robustok.kernels.long import Edges, edges_of
from robustok.kernels.memory import borrow
from robustok.kernels.trie import borrow_trie, find_token

UNIGRAM, GRAMPA, MAXMATCH = 0, 1, 2


class StepRule(NamedTuple):
    """How the probabilities of a step follow from the edges at a node."""

    kind: int  # UNIGRAM, GRAMPA or MAXMATCH
    setting: float  # temperature (UNIGRAM: applied to ``logs`` already) or dropout probability
    least: int  # GRAMPA: bytes of the shortest token that may be taken freely
    logs: np.ndarray  # float64 [ids] under UNIGRAM, else empty: score over temperature
    fallback: np.ndarray  # bool [ids] under UNIGRAM, else empty: a byte of an unknown character


@njit(cache=True, nogil=True)
def borrow_rule(rule):
    """The same ``rule`` without reference counts; see `memory`."""
    return StepRule(rule.kind, rule.setting, rule.least, borrow(rule.logs), borrow(rule.fallback))


@njit(cache=True, nogil=True)
def borrow_edges(edges):
    """The same edges without reference counts; see `memory`."""
    return Edges(borrow(edges.first), borrow(edges.token), borrow(edges.step))


@njit(cache=True, nogil=True)
def log_weights(trie, edges, text, start, rule):
    """The logarithm of the weight of each edge itself, float64 [edges]; -inf: not allowed.

    ``edges``: the tokens of the span of ``text`` (uint8) that begins at ``start``. ``rule``:
    `StepRule`.

    `unigram`: the token's score over the temperature; a byte stands for an unknown character only.
    `grampa`: 0 for tokens of at least ``least`` bytes, and where no such token starts for the
    longest that does. `maxmatch`: 0.
    """
    trie, edges, text = borrow_trie(trie), borrow_edges(edges), borrow(text)
    rule = borrow_rule(rule)
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
        for i in range(n):
            longest = 0
            for e in range(first[i], first[i + 1]):
                longest = max(longest, step[e] >> 1)
            least = min(np.int64(rule.least), np.int64(longest))
            for e in range(first[i], first[i + 1]):
                if step[e] >> 1 < least:
                    weights[e] = -np.inf
    return weights


@njit(cache=True, nogil=True)
def log_totals(edges, weights):
    """The logarithm of the summed weight of all paths from each node to the end, float64 [n + 1].

    ``weights``: float64 [edges], as from :func:`log_weights`. -inf where there is no path.
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


@njit(cache=True, nogil=True)
def step_probabilities(edges, weights, total, i, kind, setting, out):
    """Write the probability of the x-th edge at node i to ``out[x]``; some path passes node i.

    ``weights``: float64 [edges], ``total``: float64 [n + 1], as from :func:`log_totals`. ``kind``
    and ``setting`` are those of the `StepRule`. ``out``: float64 [at least the edges at the node].
    """
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
def log_prob_walk(trie, text, ids, token_offsets, rule):
    """The log-probability that one walk over the whole text gives ``ids``; -inf where it cannot.

    ``text``: uint8 [n], the bytes of ``ids`` (int32). ``rule``: `StepRule`. The ids spell the text,
    so every one of them starts at a node before the last one.
    """
    edges = edges_of(trie, text, 0, len(text))
    weights = log_weights(trie, edges, text, 0, rule)
    total = log_totals(edges, weights)
    p = np.empty(len(edges.token) + 1)
    i = np.int64(0)
    log_prob = 0.0
    for t in ids:
        span = token_offsets[t + 1] - token_offsets[t]
        step_probabilities(edges, weights, total, i, rule.kind, rule.setting, p)
        chosen = -np.inf
        for e in range(edges.first[i], edges.first[i + 1]):
            if edges.token[e] == t and p[e - edges.first[i]] > 0.0:
                chosen = np.log(p[e - edges.first[i]])
        log_prob += chosen
        if chosen == -np.inf:
            break
        i += span
    return log_prob
