"""Uniform draws at an exact distance from the reference (paper: Uni-k, without its n·k table).

Give every token that is not the reference's a weight z. Words are independent under the product
of weights, so each draws its own distance; a draw whose distances sum to k is uniform over
distance k, whatever z. z is chosen so that the expected sum is k. Draws of another sum are
rejected, early: the last words are drawn from the convolution of their distances (`convolve_block`,
`sum_tree`), or the last part of the unbroken stretches is (`tail`). Only then are tokens drawn.

Every loop of rejections is bounded. Where one uses up its tries (the distance is feasible but very
rare at any z), the text is drawn from a table of positions by distances.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.batch import borrow_batch, spell
from robustok.kernels.cost_table import draw_by_table
from robustok.kernels.distances import (
    block_size,
    convolve_block,
    copy_ways,
    feasible,
    solve,
    solve_far,
)
from robustok.kernels.feasible import largest_feasible
from robustok.kernels.jit import njit
from robustok.kernels.long import backward, draw_long, edges_of, mark_reference
from robustok.kernels.memory import borrow
from robustok.kernels.random import stream, uniform
from robustok.kernels.staged import draw_by_tail, draw_distances
from robustok.kernels.sum_tree import SumTree, build_tree, draw_tree
from robustok.kernels.tables import (
    DISTANCE,
    NO_ROOM,
    NOT_DRAWN,
    borrow_store,
    clear,
    draw,
    find,
    grades_of,
    insert,
)
from robustok.kernels.trie import borrow_trie
from robustok.kernels.words import LONG, word_ends

TABLED = 256  # bytes of the longest word whose distances are tabled
SHORT = 24  # the same in a text of which over MOST_LARGE bytes are in longer words
MOST_LARGE = 1 << 16  # their tables take up to 1 kB a byte
STAGED = 1024  # bytes of unbroken stretches beyond which their last part is drawn apart
TREE = 1024  # words of the largest block that is convolved one word after another
TRIES = 4096  # of a draw by block; the longest expect some 100


class Words(NamedTuple):
    """A text cut into words: blocks of the lattice, between positions that no token spans.

    Sized for the longest text of a call: ``text`` and ``ends`` by its bytes, the others by its
    tokens. A text has at most as many words as tokens, and at most as many types as words.
    """

    text: np.ndarray  # uint8: bytes of one word
    ends: np.ndarray  # int64: cut positions within one stretch of bytes
    stop: np.ndarray  # int64: index of the token after each word
    size: np.ndarray  # int64: bytes of each word
    kind: np.ndarray  # int64: type of each word, or -1 - i for the i-th unbroken one
    record: np.ndarray  # int64: record of each type in the store
    times: np.ndarray  # int64: how often each type occurs


@njit(cache=True, nogil=True)
def _borrow_words(words):
    """The same words without reference counts; see `memory`."""
    return Words(
        borrow(words.text), borrow(words.ends), borrow(words.stop), borrow(words.size),
        borrow(words.kind), borrow(words.record), borrow(words.times),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _cut_words(trie, token_bytes, token_offsets, ids, start, end, words):
    """Cut the text ids[start:end] into words; returns how many, and the longest with a table.

    A word ends where no token holds the two bytes that meet; a long one is searched for further
    cuts. Words beyond the returned size are drawn as unbroken. It depends on the text alone, never
    on the store, so that draws do not depend on the batch.
    """
    trie, ids, words = borrow_trie(trie), borrow(ids), _borrow_words(words)
    token_bytes, token_offsets = borrow(token_bytes), borrow(token_offsets)
    count, large = np.int64(0), np.int64(0)
    first = start
    size = np.int64(0)
    for v in range(start, end):
        t = ids[v]
        size += token_offsets[t + 1] - token_offsets[t]
        if v + 1 < end:
            last_byte = np.int64(token_bytes[token_offsets[t + 1] - 1])
            if trie.joined[last_byte * 256 + token_bytes[token_offsets[ids[v + 1]]]]:
                continue
        if size <= LONG:
            words.stop[count], words.size[count] = v + 1, size
            large += size if size > SHORT else 0
            count += 1
        else:
            spell(token_bytes, token_offsets, ids, first, v + 1, words.text, 0)
            position, stop, previous = np.int64(0), first, np.int64(0)
            for c in range(word_ends(trie, words.text, 0, size, words.ends)):
                while position < words.ends[c]:
                    position += token_offsets[ids[stop] + 1] - token_offsets[ids[stop]]
                    stop += 1
                words.stop[count], words.size[count] = stop, position - previous
                large += position - previous if position - previous > SHORT else 0
                previous = position
                count += 1
        first = v + 1
        size = 0
    return count, np.int64(TABLED) if large <= MOST_LARGE else np.int64(SHORT)


@njit(cache=True, nogil=True)
def _index_words(
    trie, store, token_bytes, token_offsets, ids, start, words, count, longest, longs
):  # fmt: skip
    """Find the type of each of ``count`` words; returns how many types, or a code of `tables`.

    Words over ``longest`` bytes are appended to ``longs`` as edges.
    """
    trie, store, ids, words = (
        borrow_trie(trie), borrow_store(store), borrow(ids), _borrow_words(words)
    )  # fmt: skip
    token_bytes, token_offsets = borrow(token_bytes), borrow(token_offsets)
    store.used[2] += 1  # a new stamp: which records this text has met
    stamp = store.used[2]
    types = np.int64(0)
    first = np.int64(start)
    for w in range(count):
        stop, size = words.stop[w], words.size[w]
        if size > longest:
            spell(token_bytes, token_offsets, ids, first, stop, words.text, 0)
            edges = edges_of(trie, words.text, 0, size)
            mark_reference(edges, ids, first, stop, token_offsets)
            longs.append(edges)
            words.kind[w] = -len(longs)
            first = stop
            continue
        record = find(store, DISTANCE, ids, first, stop)
        if record < 0:
            spell(token_bytes, token_offsets, ids, first, stop, words.text, 0)
            record = insert(
                store, trie, DISTANCE, ids, first, stop, words.text, 0, size, token_offsets
            )
            if record < 0:
                return record
        if store.words[record + 2] != stamp:
            store.words[record + 2], store.words[record + 3] = stamp, types
            words.record[types], words.times[types] = record, 0
            types += 1
        words.kind[w] = store.words[record + 3]
        words.times[words.kind[w]] += 1
        first = stop
    return types


@njit(cache=True, nogil=True)
def _draw_block(pmf, start, block, block_words, table, base, low, high, rest, state, distance):
    """Distances of the block's words given that they sum to ``rest``."""
    pmf, table, distance = borrow(pmf), borrow(table), borrow(distance)
    for t in range(len(block)):
        at = start[block[t]]
        u, state = uniform(state)
        left = u * table[base[t] + rest - low[t]]
        chosen = np.int64(0)
        for d in range(min(start[block[t] + 1] - at - 1, rest) + 1):
            s = rest - d
            if low[t + 1] <= s <= high[t + 1]:
                p = pmf[at + d] * table[base[t + 1] + s - low[t + 1]]
                if p > 0.0:
                    chosen = d
                    left -= p
                    if left < 0.0:
                        break
        distance[block_words[t]] = chosen
        rest -= chosen
    return state


@njit(cache=True, nogil=True)
def _draw_by_block(
    store, words, kind, types, longs, z, pmf, start, upto, middle, k, state0, out, at, ends
):
    """Draws at distance k whose last block of words is drawn given the sum of the others.

    Returns the end, and how many draws were made before one used up its tries.
    """
    store, out, kind, types = borrow_store(store), borrow(out), borrow(kind), borrow(types)
    long_ways = [backward(longs[x], z) for x in range(len(longs))]
    tabled = 0
    for w in range(words):
        tabled += kind[w] >= 0
    size = block_size(tabled)
    block, block_words = np.empty(size, np.int64), np.empty(size, np.int64)
    begin = words  # words from here on are the block's, apart from the long ones among them
    taken = 0
    while taken < size:
        begin -= 1
        if kind[begin] >= 0:
            taken += 1
            block[size - taken], block_words[size - taken] = kind[begin], begin
    base = np.empty(size + 1, np.int64)
    low, high = np.empty(size + 1, np.int64), np.empty(size + 1, np.int64)
    tree = SumTree(pmf[:0], base[:0], low[:0], high[:0])
    if size > TREE:
        tree = build_tree(pmf, start, block)
        table, best = tree.table, 0.0
        base[0], low[0], high[0] = tree.base[1], tree.low[1], tree.high[1]
        for s in range(high[0] - low[0] + 1):
            best = max(best, table[base[0] + s])
    else:
        table, best = convolve_block(pmf, start, block, k, base, low, high)

    distance = np.empty(words, np.int64)
    bound = np.int64(1)
    for x in range(len(longs)):
        bound += len(longs[x].first)
    path = np.empty(bound, np.int32)
    path_ends = np.zeros(len(longs) + 1, np.int64)
    for d in range(len(state0)):
        state = state0[d]
        accepted = False
        for _ in range(TRIES):
            rest = k
            for x in range(len(longs)):
                ways = long_ways[x]
                path_ends[x + 1], far, state = draw_long(
                    longs[x], z, ways[0], ways[1], state, path, path_ends[x]
                )
                rest -= far
            total, state = draw_distances(kind, begin, start, upto, middle, state, distance)
            rest -= total
            if low[0] <= rest <= high[0]:
                u, state = uniform(state)
                if u * best < table[base[0] + rest - low[0]]:
                    accepted = True
                    break
        if not accepted:
            return at, d
        if size > TREE:
            state = draw_tree(tree, block_words, rest, state, distance)
        else:
            state = _draw_block(
                pmf, start, block, block_words, table, base, low, high, rest, state, distance
            )
        for w in range(words):
            if kind[w] >= 0:
                at, state = draw(store, types[kind[w]], distance[w], state, out, at)
            else:
                x = -kind[w] - 1
                for p in range(path_ends[x], path_ends[x + 1]):
                    out[at] = path[p]
                    at += 1
        ends[d] = at
    return at, len(state0)


@njit(cache=True, nogil=True)
def _draw_text(store, token_offsets, words, kind, types, times, longs, k, state0, out, at, ends):
    """Draws of one text at distance k; draw d starts from state0[d] and ends at ends[d].

    Returns the end, and how many draws were made before one used up its tries.
    """
    start = np.empty(len(types) + 1, np.int64)
    start[0] = 0
    for x in range(len(types)):
        start[x + 1] = start[x] + grades_of(store, types[x]) + 1
    pmf, upto = np.empty(start[-1]), np.empty(start[-1])
    copy_ways(store, types, start, upto)
    long_bytes = np.int64(0)
    for x in range(len(longs)):
        long_bytes += len(longs[x].first) - 1
    if long_bytes > STAGED:
        slope, by_words, by_longs = solve_far(upto, start, times, longs, k, pmf)
    else:
        slope = solve(upto, start, times, longs, k, pmf)
        by_words, by_longs = 1.0, 0.0
    z = np.exp(slope)
    middle = np.empty(len(types), np.int64)
    for x in range(len(types)):
        total = 0.0
        middle[x] = start[x]
        for d in range(start[x], start[x + 1]):
            total += pmf[d]
            upto[d] = total
            middle[x] += total < 0.5
    if long_bytes > STAGED and (by_longs > by_words or words == len(longs)):
        return draw_by_tail(
                store, token_offsets, words, kind, types, longs, z, start, upto, middle, k, state0,
                out, at, ends,
            )  # fmt: skip
    return _draw_by_block(
        store, words, kind, types, longs, z, pmf, start, upto, middle, k, state0, out, at, ends
    )


@njit(cache=True, nogil=True)
def _whole(trie, token_bytes, token_offsets, ids, start, end, text):
    """The lattice of a whole text, with the ids as reference; ``text`` has room for its bytes."""
    size = spell(token_bytes, token_offsets, ids, start, end, text, 0)
    edges = edges_of(trie, text, 0, size)
    mark_reference(edges, ids, start, end, token_offsets)
    return edges


@njit(cache=True, nogil=True)
def draw_uniform_k(
    trie, store, token_bytes, token_offsets, batch, alpha, fixed_k, first, last, out, out_ends
):
    """Distance ceil(alpha·m) for each text of m tokens, or ``fixed_k`` where that is not negative.

    Returns the first text that the store had no room for, or NO_PATH or NOT_DRAWN.
    """
    trie, store, batch = borrow_trie(trie), borrow_store(store), borrow_batch(batch)
    token_bytes, token_offsets = borrow(token_bytes), borrow(token_offsets)
    out, out_ends = borrow(out), borrow(out_ends)
    size, bytes_ = np.int64(0), np.int64(0)
    for t in range(first, last):
        size = max(size, batch.offsets[t + 1] - batch.offsets[t])
        spelled = np.int64(0)
        for v in range(batch.offsets[t], batch.offsets[t + 1]):
            spelled += token_offsets[batch.values[v] + 1] - token_offsets[batch.values[v]]
        bytes_ = max(bytes_, spelled)
    words = Words(
        np.empty(bytes_, np.uint8), np.empty(bytes_, np.int64), np.empty(size, np.int64),
        np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64),
        np.empty(size, np.int64),
    )  # fmt: skip
    states = np.empty(batch.draws, np.uint64)
    at = np.int64(0)
    for t in range(first, last):
        b, e = batch.offsets[t], batch.offsets[t + 1]
        k = np.int64(fixed_k) if fixed_k >= 0 else np.int64(np.ceil(alpha * (e - b)))
        drawn = out_ends[(t - first) * batch.draws : (t - first + 1) * batch.draws]
        if k > 0:
            longs = [edges_of(trie, words.text, 0, 0)]
            longs.pop()
            count, longest = _cut_words(trie, token_bytes, token_offsets, batch.values, b, e, words)
            types = _index_words(
                trie, store, token_bytes, token_offsets, batch.values, b, words, count, longest,
                longs,
            )  # fmt: skip
            if types == NO_ROOM:
                if store.used[0] == 0:
                    return np.int64(t)
                clear(store)
                longs.clear()
                types = _index_words(
                    trie, store, token_bytes, token_offsets, batch.values, b, words, count,
                    longest, longs,
                )  # fmt: skip
            if types < 0:
                return np.int64(t) if types == NO_ROOM else types
            wanted = k
            k = feasible(store, words.record[:types], words.times[:types], longs, wanted)
            if k < 0:
                edges = _whole(trie, token_bytes, token_offsets, batch.values, b, e, words.text)
                k = largest_feasible(edges, wanted)
                if k < 0:
                    return np.int64(NOT_DRAWN)
        if k == 0:
            for d in range(batch.draws):
                for v in range(b, e):
                    out[at] = batch.values[v]
                    at += 1
                drawn[d] = at
            continue
        for d in range(batch.draws):
            states[d] = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
        at, done = _draw_text(
            store, token_offsets, count, words.kind, words.record[:types], words.times[:types],
            longs, k, states, out, at, drawn,
        )  # fmt: skip
        if done < batch.draws:
            edges = _whole(trie, token_bytes, token_offsets, batch.values, b, e, words.text)
            at = draw_by_table(edges, k, states[done:], out, at, drawn[done:])
            if at < 0:
                return np.int64(NOT_DRAWN)
    return np.int64(last)
