"""Uniform draws at an exact cost, such as the distance from the reference (paper: Uni-k).

The paper's table of positions by distances is not built. The cost is a sum over the tokens of a
draw: the distance, the splits, or the segments (`Goal`).

1. The text is cut into words: blocks of the lattice, between positions that no token spans. Equal
   words are one type, whose counts by cost are in the store; large blocks are `longs`.
2. Every token of cost 1 has weight z, chosen by Newton's method such that the expected cost is k
   (`distances`). Words are independent under the product of weights.
3. Each word draws its own cost. A draw whose costs sum to k is uniform over cost k, whatever z is;
   others are rejected. To reject few, the last words are drawn given their sum, from convolutions
   (`convolve_block`, `sum_tree`), or the last part of the unbroken blocks is (`tail`).
4. Each word draws a tokenization of its cost.

Every loop of rejections is bounded. Where one uses up its tries (the cost is feasible but very rare
for every z), the text is drawn from a table of positions by costs (`cost_table`).

Arguments of one meaning, unless documented otherwise: ``types``: `distances.Types` of the text.
``longs``: a list of `long.Edges`, one for each unbroken word. ``kind``: int64 [words], the type of
each word, or -1 - i for the i-th of ``longs``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.batch import borrow_batch, borrow_rows, borrow_tokens, spell
from robustok.kernels.compiler.jit import njit
from robustok.kernels.cost_table import draw_by_table
from robustok.kernels.distances import (
    accumulate,
    block_size,
    borrow_types,
    convolve_block,
    feasible,
    read_types,
    solve,
    solve_unbroken,
)
from robustok.kernels.feasible import largest_feasible
from robustok.kernels.long import backward, draw_long, edges_of
from robustok.kernels.memory import borrow
from robustok.kernels.nearest_cost import nearest_of_paths, nearest_of_words
from robustok.kernels.random import stream, uniform
from robustok.kernels.record import DISTANCE, draw
from robustok.kernels.staged import Draws, Target, draw_by_tail, draw_distances
from robustok.kernels.sum_tree import build_tree, draw_tree
from robustok.kernels.sums import borrow_sums, largest
from robustok.kernels.tables import NO_ROOM, NOT_DRAWN, borrow_store, priced_edges
from robustok.kernels.text_words import index_words, new_words

STAGED = 1024  # bytes of unbroken words beyond which their last part is drawn by stages
TREE = 1024  # words of the largest block that is convolved one word after another
TRIES = 4096  # of a draw by block; the longest texts expect some 100


class Goal(NamedTuple):
    """The cost that texts are drawn at."""

    mode: np.int64  # what is counted: DISTANCE, SPLITS or SEGMENTS of `record`
    ratio: np.float64  # at least 0; the cost of a text of m tokens is ceil(ratio * m),
    fixed: np.int64  # or this one where it is not negative


@njit(cache=True, nogil=True)
def _last_words(kind):
    """The words of the block that is drawn last; int64, in order.

    The block is of `block_size` words without the unbroken ones. ``kind``: int64 [words].
    """
    typed = 0
    for w in range(len(kind)):
        typed += kind[w] >= 0
    words = np.empty(block_size(typed), np.int64)
    left, w = len(words), len(kind)
    while left > 0:
        w -= 1
        if kind[w] >= 0:
            left -= 1
            words[left] = w
    return words


@njit(cache=True, nogil=True)
def _draw_block(types, kind, words, sums, rest, state, distance):
    """Draw the distances of a block's words given that they sum to ``rest``; returns the state.

    ``words``: int64 [n], which words of the text, none of them unbroken; ``kind``: int64 [words of
    the text]. ``types``: those of the text. ``sums`` are those of `convolve_block` of these words,
    with a positive probability of ``rest`` in row 0. Word t's ``distance`` (int64) is written to
    distance[words[t]].
    """
    types, sums, distance = borrow_types(types), borrow_sums(sums), borrow(distance)
    table, base, low, high = sums
    for t in range(len(words)):
        x = kind[words[t]]
        begin, most = types.start[x], types.start[x + 1] - types.start[x] - 1
        u, state = uniform(state)
        left = u * table[base[t] + rest - low[t]]
        chosen = np.int64(0)
        for d in range(min(most, rest) + 1):
            s = rest - d
            if low[t + 1] <= s <= high[t + 1]:
                p = types.probability[begin + d] * table[base[t + 1] + s - low[t + 1]]
                if p > 0.0:
                    chosen = d
                    left -= p
                    if left < 0.0:
                        break
        distance[words[t]] = chosen
        rest -= chosen
    return state


@njit(cache=True, nogil=True)
def _draw_by_block(store, kind, types, longs, target, draws, at):
    """Draws at the target distance whose last block of words is drawn given the others' sum.

    ``kind``: int64 [words], the type of each word, or -1 - i for the i-th of ``longs``. ``types``:
    after `accumulate`. ``target``: `Target`. ``draws``: `Draws`, appended to ``draws.ids`` from
    ``at`` on. Returns the end, and how many draws there are: fewer than ``draws`` has states where
    one used up its tries.
    """
    store, types, kind = borrow_store(store), borrow_types(types), borrow(kind)
    out = borrow(draws.ids)
    weights = [backward(longs[x], target.z) for x in range(len(longs))]
    block = _last_words(kind)
    before = block[0] if len(block) else len(kind)  # words that draw their own distance
    use_tree = len(block) > TREE
    if use_tree:
        sums, root = build_tree(types, kind[block]), 1
        best = largest(sums, root)
    else:
        sums, best = convolve_block(types, kind[block], target.k)
        root = 0
    base, low, high = sums.base[root], sums.low[root], sums.high[root]

    distance = np.empty(len(kind), np.int64)
    most_tokens = np.int64(1)
    for x in range(len(longs)):
        most_tokens += len(longs[x].first)
    path = np.empty(most_tokens, np.int32)
    path_ends = np.zeros(len(longs) + 1, np.int64)
    for d in range(len(draws.states)):
        state = draws.states[d]
        accepted = False
        for _ in range(TRIES):
            rest = target.k
            for x in range(len(longs)):
                mantissa, exponent = weights[x]
                path_ends[x + 1], drawn, state = draw_long(
                    longs[x], target.z, mantissa, exponent, state, path, path_ends[x]
                )
                rest -= drawn
            total, state = draw_distances(kind[:before], types, state, distance)
            rest -= total
            if low <= rest <= high:
                u, state = uniform(state)
                if u * best < sums.table[base + rest - low]:
                    accepted = True
                    break
        if not accepted:
            return at, d
        if use_tree:
            state = draw_tree(sums, rest, state, block, distance)
        else:
            state = _draw_block(types, kind, block, sums, rest, state, distance)
        for w in range(len(kind)):
            x = kind[w]
            if x >= 0:
                degree = types.lowest[x] + distance[w]
                at, state = draw(store, types.record[x], degree, state, out, at)
                continue
            for p in range(path_ends[-x - 1], path_ends[-x]):
                out[at] = path[p]
                at += 1
        draws.ends[d] = at
    return at, len(draws.states)


@njit(cache=True, nogil=True)
def _draw_text(tokens, store, kind, types, longs, k, draws, at):
    """Draws of one text at distance ``k``; returns as `_draw_by_block`.

    ``kind``: int64 [words]. ``types``: those of the text, whose probabilities are set here. ``k``:
    a distance that some tokenization has: of ``types`` from the smallest on. ``draws``: `Draws`,
    appended to ``draws.ids`` from ``at`` on.
    """
    long_bytes = np.int64(0)
    for x in range(len(longs)):
        long_bytes += len(longs[x].first) - 1
    if long_bytes > STAGED:
        slope, var_words, var_longs = solve_unbroken(types, longs, k)
    else:
        slope = solve(types, longs, k)
        var_words, var_longs = 1.0, 0.0
    accumulate(types)
    target = Target(np.int64(k), np.exp(slope))
    if long_bytes > STAGED and (var_longs > var_words or len(kind) == len(longs)):
        return draw_by_tail(tokens, store, kind, types, longs, target, draws, at)
    return _draw_by_block(store, kind, types, longs, target, draws, at)


@njit(cache=True, nogil=True)
def _whole(tokens, mode, ids, start, end, text):
    """The lattice of the text ids[start:end], where an edge costs what ``mode`` counts.

    ``ids``: int32 [ids]. ``text``: uint8 [capacity], scratch with space for its bytes.
    """
    size = spell(tokens.bytes, tokens.offsets, ids, start, end, text, 0)
    return priced_edges(tokens, mode, ids, start, end, text, size)


@njit(cache=True, nogil=True)
def _wanted_cost(goal, m):
    """The cost that a text of ``m`` tokens (int64) should have; ``goal``: `Goal`."""
    if goal.fixed >= 0:
        return np.int64(goal.fixed)
    slack = 0.0 if goal.mode == DISTANCE else 1e-9  # the strength of a draw, divided and multiplied
    return np.int64(np.ceil(goal.ratio * m - slack))


@njit(cache=True, nogil=True)
def _possible_cost(mode, types, longs, k):
    """``k`` (int64), or what replaces it where no tokenization has it; -1: the words cannot tell.

    A distance is replaced by the next one below, any other cost by the nearest one. ``mode``: what
    the cost counts.
    """
    if mode == DISTANCE:
        return feasible(types, longs, k)
    return nearest_of_words(types, longs, k)


@njit(cache=True, nogil=True)
def draw_uniform_k(tokens, store, batch, goal, first, last, rows):
    """Draw texts first..last at the cost of ``goal``, or at the nearest one that is possible.

    ``tokens``, ``batch`` and ``rows`` are those of `kernels.batch`. ``goal``: `Goal`; a distance
    that no tokenization has is replaced by the next one below. Returns ``last``, the first text
    that the store had no space for, or NO_PATH or NOT_DRAWN of `kernels.tables`.
    """
    tokens, store = borrow_tokens(tokens), borrow_store(store)
    batch, rows = borrow_batch(batch), borrow_rows(rows)
    words = new_words(tokens, batch, first, last)
    states = np.empty(batch.draws, np.uint64)
    mode = np.int64(goal.mode)
    at = np.int64(0)
    for t in range(first, last):
        b, e = batch.offsets[t], batch.offsets[t + 1]
        wanted = _wanted_cost(goal, e - b)
        ends = rows.ends[(t - first) * batch.draws : (t - first + 1) * batch.draws]
        longs = [edges_of(tokens.trie, words.text, 0, 0)]
        longs.pop()
        same = mode == DISTANCE and wanted == 0
        count, distinct = index_words(
            tokens, store, mode, batch.values, b, b if same else e, words, longs
        )
        if distinct < 0:
            return np.int64(t) if distinct == NO_ROOM else distinct
        types = read_types(store, words.record[:distinct], words.times[:distinct])
        lowest = (types.lowest * types.times).sum()
        k = np.int64(0)
        if not same:
            k = _possible_cost(mode, types, longs, wanted - lowest)
            if k < 0:
                edges = _whole(tokens, mode, batch.values, b, e, words.text)
                if mode == DISTANCE:
                    k = largest_feasible(edges, wanted)
                else:
                    k = nearest_of_paths(edges, wanted) - lowest
                if k < 0:
                    return np.int64(NOT_DRAWN)
        if mode == DISTANCE and k == 0:
            for d in range(batch.draws):
                for v in range(b, e):
                    rows.ids[at] = batch.values[v]
                    at += 1
                ends[d] = at
            continue
        for d in range(batch.draws):
            states[d] = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
        at, done = _draw_text(
            tokens, store, words.kind[:count], types, longs, k, Draws(states, rows.ids, ends), at
        )
        if done < batch.draws:
            edges = _whole(tokens, mode, batch.values, b, e, words.text)
            left = Draws(states[done:], rows.ids, ends[done:])
            at = draw_by_table(edges, k + lowest, left, at)
            if at < 0:
                return np.int64(NOT_DRAWN)
    return np.int64(last)
