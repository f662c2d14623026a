"""Uniform draws at an exact distance from the reference (paper: Uni-k, without its n·k table).

1. The text is cut into words: blocks of the lattice, between positions that no token spans. Equal
   words are one type, whose counts by distance are in the store; large blocks are `longs`.
2. Every token that is not the reference's has weight z, chosen by Newton's method such that the
   expected distance is k (`distances`). Words are independent under the product of weights.
3. Each word draws its own distance. A draw whose distances sum to k is uniform over distance k,
   whatever z is; others are rejected. To reject few, the last words are drawn given their sum, from
   convolutions (`convolve_block`, `sum_tree`), or the last part of the unbroken blocks is (`tail`).
4. Each word draws a tokenization of its distance.

Every loop of rejections is bounded. Where one uses up its tries (the distance is feasible but very
rare for every z), the text is drawn from a table of positions by distances (`cost_table`).

Arguments of one meaning, unless documented otherwise: ``words``: `Words`. ``types``:
`distances.Types` of the text. ``longs``: a list of `long.Edges`, one for each unbroken word.
``kind``: int64 [words], the type of each word, or -1 - i for the i-th of ``longs``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.batch import borrow_batch, borrow_rows, borrow_tokens, spell
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
from robustok.kernels.jit import njit
from robustok.kernels.long import backward, draw_long, edges_of, mark_reference
from robustok.kernels.memory import borrow
from robustok.kernels.random import stream, uniform
from robustok.kernels.record import DISTANCE, draw, next_stamp, number_of, set_number
from robustok.kernels.staged import Draws, Target, draw_by_tail, draw_distances
from robustok.kernels.sum_tree import build_tree, draw_tree
from robustok.kernels.sums import borrow_sums, largest
from robustok.kernels.tables import NO_ROOM, NOT_DRAWN, borrow_store, find, insert
from robustok.kernels.words import LONG, word_ends

TABLED = 256  # bytes of the longest word whose distances are tabled
SHORT = 24  # the same in a text of which over MOST_LARGE bytes are in longer words
MOST_LARGE = 1 << 16  # their tables take up to 1 kB a byte
STAGED = 1024  # bytes of unbroken words beyond which their last part is drawn by stages
TREE = 1024  # words of the largest block that is convolved one word after another
TRIES = 4096  # of a draw by block; the longest texts expect some 100


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
def _new_words(tokens, batch, first, last):
    """`Words` for the longest of the texts first..last."""
    most_tokens, most_bytes = np.int64(0), np.int64(0)
    for t in range(first, last):
        begin, end = batch.offsets[t], batch.offsets[t + 1]
        most_tokens = max(most_tokens, end - begin)
        size = np.int64(0)
        for v in range(begin, end):
            size += tokens.offsets[batch.values[v] + 1] - tokens.offsets[batch.values[v]]
        most_bytes = max(most_bytes, size)
    return Words(
        np.empty(most_bytes, np.uint8), np.empty(most_bytes, np.int64),
        np.empty(most_tokens, np.int64), np.empty(most_tokens, np.int64),
        np.empty(most_tokens, np.int64), np.empty(most_tokens, np.int64),
        np.empty(most_tokens, np.int64),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _cut_words(tokens, ids, start, end, words):
    """Cut the text ids[start:end] into words; returns how many, and the largest size of a type.

    A word ends where no token holds the two bytes that meet; a long one is searched for further
    cuts. Larger words are unbroken. The size depends on the text alone, never on the store, so that
    draws do not depend on the batch. ``ids``: int32. Writes ``words.stop`` and ``words.size``.
    """
    tokens, ids, words = borrow_tokens(tokens), borrow(ids), _borrow_words(words)
    count, large = np.int64(0), np.int64(0)
    begin = start
    size = np.int64(0)
    following = tokens.border[ids[start]] if start < end else np.int64(0)
    for v in range(start, end):
        border = following
        size += border >> 16
        is_end = True
        if v + 1 < end:
            following = tokens.border[ids[v + 1]]
            is_end = not tokens.trie.joined[(border & 0xFF) << 8 | (following >> 8 & 0xFF)]
        if size <= LONG:
            # Cuts are unpredictable: written at every token, kept at a cut.
            words.stop[count], words.size[count] = v + 1, size
            large += size if is_end and size > SHORT else 0
            count += is_end
            begin = v + 1 if is_end else begin
            size = 0 if is_end else size
            continue
        if is_end:
            spell(tokens.bytes, tokens.offsets, ids, begin, v + 1, words.text, 0)
            position, stop, previous = np.int64(0), begin, np.int64(0)
            for c in range(word_ends(tokens.trie, words.text, 0, size, words.ends)):
                while position < words.ends[c]:
                    position += tokens.offsets[ids[stop] + 1] - tokens.offsets[ids[stop]]
                    stop += 1
                words.stop[count], words.size[count] = stop, position - previous
                large += position - previous if position - previous > SHORT else 0
                previous = position
                count += 1
            begin = v + 1
            size = 0
    return count, np.int64(TABLED) if large <= MOST_LARGE else np.int64(SHORT)


@njit(cache=True, nogil=True)
def _index_words(tokens, store, ids, start, words, count, largest_type, longs):
    """Find the type of each of ``count`` words; returns how many types, or a code of `tables`.

    Words over ``largest_type`` bytes are appended to ``longs`` as edges. ``ids``: int32; the text
    begins at ``start``. Writes ``words.kind``, ``words.record`` and ``words.times``.
    """
    tokens, store, ids, words = (
        borrow_tokens(tokens), borrow_store(store), borrow(ids), _borrow_words(words)
    )  # fmt: skip
    stamp = next_stamp(store)
    types = np.int64(0)
    begin = np.int64(start)
    for w in range(count):
        stop, size = words.stop[w], words.size[w]
        if size > largest_type:
            spell(tokens.bytes, tokens.offsets, ids, begin, stop, words.text, 0)
            edges = edges_of(tokens.trie, words.text, 0, size)
            mark_reference(edges, ids, begin, stop, tokens.offsets)
            longs.append(edges)
            words.kind[w] = -len(longs)
            begin = stop
            continue
        record = find(store, DISTANCE, ids, begin, stop)
        if record < 0:
            spell(tokens.bytes, tokens.offsets, ids, begin, stop, words.text, 0)
            record = insert(store, tokens, DISTANCE, ids[begin:stop], words.text[:size])
            if record < 0:
                return record
        number = number_of(store, record, stamp)
        if number < 0:
            number = types
            set_number(store, record, stamp, number)
            words.record[types], words.times[types] = record, 0
            types += 1
        words.kind[w] = number
        words.times[number] += 1
        begin = stop
    return types


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
                at, state = draw(store, types.record[x], distance[w], state, out, at)
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
    a distance that some tokenization has. ``draws``: `Draws`, appended to ``draws.ids`` from ``at``
    on.
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
def _whole(tokens, ids, start, end, text):
    """The lattice of the text ids[start:end], with these ids as reference.

    ``text``: uint8 scratch with space for its bytes.
    """
    size = spell(tokens.bytes, tokens.offsets, ids, start, end, text, 0)
    edges = edges_of(tokens.trie, text, 0, size)
    mark_reference(edges, ids, start, end, tokens.offsets)
    return edges


@njit(cache=True, nogil=True)
def draw_uniform_k(tokens, store, batch, alpha, fixed_k, first, last, rows):
    """Draw texts first..last at distance ceil(alpha * m), m tokens, or ``fixed_k`` if not negative.

    ``alpha``: float64, at least 0; not read if ``fixed_k`` is not negative. A distance that no
    tokenization has is replaced by the next one below. ``tokens``, ``batch`` and ``rows`` are those
    of `kernels.batch`. Returns ``last``, the first text that the store had no space for, or NO_PATH
    or NOT_DRAWN of `kernels.tables`.
    """
    tokens, store = borrow_tokens(tokens), borrow_store(store)
    batch, rows = borrow_batch(batch), borrow_rows(rows)
    words = _new_words(tokens, batch, first, last)
    states = np.empty(batch.draws, np.uint64)
    at = np.int64(0)
    for t in range(first, last):
        b, e = batch.offsets[t], batch.offsets[t + 1]
        k = np.int64(fixed_k) if fixed_k >= 0 else np.int64(np.ceil(alpha * (e - b)))
        ends = rows.ends[(t - first) * batch.draws : (t - first + 1) * batch.draws]
        longs = [edges_of(tokens.trie, words.text, 0, 0)]
        longs.pop()
        count, largest_type = _cut_words(tokens, batch.values, b, e if k > 0 else b, words)
        distinct = _index_words(tokens, store, batch.values, b, words, count, largest_type, longs)
        if distinct < 0:
            return np.int64(t) if distinct == NO_ROOM else distinct
        types = read_types(store, words.record[:distinct], words.times[:distinct])
        if k > 0:
            wanted = k
            k = feasible(types, longs, wanted)
            if k < 0:
                k = largest_feasible(_whole(tokens, batch.values, b, e, words.text), wanted)
                if k < 0:
                    return np.int64(NOT_DRAWN)
        if k == 0:
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
            edges = _whole(tokens, batch.values, b, e, words.text)
            at = draw_by_table(edges, k, Draws(states[done:], rows.ids, ends[done:]), at)
            if at < 0:
                return np.int64(NOT_DRAWN)
    return np.int64(last)
