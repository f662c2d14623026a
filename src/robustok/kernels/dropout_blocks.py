"""BPE-dropout of a long pre-token by its blocks, with the same draws as from one queue.

A pre-token has one queue of merges, so which of them are dropped depends on the order of all merges
of the pre-token, which is the whole text where a tokenizer has no pre-tokens. No merge crosses the
border of two blocks of the lattice (`words`). Hence, for the rule of Provilkov et al.:

1. Each short block is merged alone, in the order of its own queue. These merges are its *steps*.
2. Sorted by rank and position, the steps of all blocks are in the order of the common queue.
3. The trials go through the sorted steps. A dropped step returns after the next one that is kept,
   so the two change places if they belong to different blocks and nothing else comes between.
4. Where that does not hold, the block becomes *live*: it returns to the moment before the dropped
   step, and its pairs go to a heap, from which `bpe_dropout` merges. So do, from the beginning,
   long blocks and those whose steps are not sorted by rank and position.

Arguments of one meaning in this module: ``dropout``: `Dropout`. ``blocks``: `Blocks`. ``steps``:
`Steps`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.compiler.jit import njit
from robustok.kernels.dropout_queue import (
    append_symbols,
    apply,
    borrow_dropout,
    join,
    next_kept,
    push_symbol,
)
from robustok.kernels.heap import pop, push
from robustok.kernels.memory import borrow
from robustok.kernels.merges import symbols_of
from robustok.kernels.words import word_ends

SHORT = 24  # symbols of the longest block whose best pair is found by a search of all pairs
_NONE = 1 << 30  # more than any rank
_NOTHING = -1  # less than any key of a step


class Blocks(NamedTuple):
    """The blocks of a pre-token; block b has the symbols first[b]:first[b + 1] of the scratch."""

    begin: int  # the first byte of the pre-token in ``dropout.text``
    end: np.ndarray  # int64 [blocks]: end byte of each
    first: np.ndarray  # int64 [blocks + 1]
    live: np.ndarray  # bool [blocks]: its pairs are in the heap, and its steps are void


class Steps(NamedTuple):
    """The merges of blocks that are merged alone; a block has fewer steps than symbols."""

    key: np.ndarray  # int64 [symbols]: rank << 32 | symbol
    other: np.ndarray  # int32 [symbols]: rank of the best other pair of the block then, or _NONE
    block: np.ndarray  # int32 [symbols]


@njit(cache=True, nogil=True)
def _borrow_blocks(blocks):
    """The same ``blocks`` without reference counts; see `memory`."""
    return Blocks(blocks.begin, borrow(blocks.end), borrow(blocks.first), borrow(blocks.live))


@njit(cache=True, nogil=True)
def _borrow_steps(steps):
    """The same ``steps`` without reference counts; see `memory`."""
    return Steps(borrow(steps.key), borrow(steps.other), borrow(steps.block))


@njit(cache=True, nogil=True)
def _read_blocks(dropout, blocks, start, stop):
    """Write the symbols of blocks start..stop, not merged; returns their end, or -1.

    -1 where a byte has no symbol. Writes ``blocks.first`` after ``start``, which is set. A block
    has at most as many symbols as bytes, so those of the pre-token fit in the scratch.
    """
    dropout, blocks = borrow_dropout(dropout), _borrow_blocks(blocks)
    scratch = dropout.scratch
    at = blocks.first[start]
    for b in range(start, stop):
        left, right = blocks.begin if b == 0 else blocks.end[b - 1], blocks.end[b]
        n = symbols_of(
            dropout.trie, dropout.merges, dropout.text, left, right,
            scratch.token[at:], scratch.rank[at:],
        )  # fmt: skip
        if n < 0:
            return np.int64(-1)
        for i in range(at, at + n):
            scratch.before[i], scratch.after[i] = i - 1, i + 1
        scratch.before[at] = -1
        scratch.rank[at + n - 1] = -1
        at += n
        blocks.first[b + 1] = at
    return np.int64(at)


@njit(cache=True, nogil=True)
def _merge_blocks(dropout, blocks, steps, start, stop, count, until):
    """Merge blocks start..stop up to the step with key ``until`` (int64); returns a count.

    The steps are written after ``count`` others. A block that is too long, or whose steps are not
    in order, becomes live and has no steps.
    """
    dropout, blocks, steps = borrow_dropout(dropout), _borrow_blocks(blocks), _borrow_steps(steps)
    scratch, merges = dropout.scratch, dropout.merges
    rank, after = scratch.rank, scratch.after
    for b in range(start, stop):
        first, end = blocks.first[b], blocks.first[b + 1]
        count_before, previous = count, np.int64(_NOTHING)
        while end - first > 1:
            best, least, other = np.int64(-1), np.int32(_NONE), np.int32(_NONE)
            i = first
            while i < end:
                r = rank[i]
                if 0 <= r < other:
                    if r < least:
                        best, least, other = i, r, least
                    else:
                        other = r
                i = np.int64(after[i])
            key = (np.int64(least) << 32) | best
            if best < 0 or key >= until:
                break
            if key <= previous or end - first > SHORT:
                blocks.live[b] = True
                count = count_before
                break
            steps.key[count], steps.other[count], steps.block[count] = key, other, b
            count += 1
            previous = key
            join(merges, scratch, end, best)
    return np.int64(count)


@njit(cache=True, nogil=True)
def _push_pairs(dropout, first, end, size, key):
    """Push the pairs of the block with the symbols first..end but the one of ``key`` (int64).

    ``size``: entries of the heap; returns the new size. A block is pushed once, and a symbol has
    one pair, so the heap has space (`Scratch`).
    """
    dropout = borrow_dropout(dropout)
    scratch = dropout.scratch
    i = first
    while i < end:
        if (np.int64(scratch.rank[i]) << 32) | i != key:
            size = push_symbol(dropout.merges, scratch, size, i)
        i = np.int64(scratch.after[i])
    return np.int64(size)


@njit(cache=True, nogil=True)
def _make_live(dropout, blocks, steps, b, count, key, size):
    """Return block ``b`` to the moment before its step ``key``, and push its other pairs.

    ``count``: the number of steps, after which this writes. Returns the new size of the heap.
    """
    _read_blocks(dropout, blocks, b, b + 1)
    _merge_blocks(dropout, blocks, steps, b, b + 1, count, key)
    blocks.live[b] = True
    return _push_pairs(dropout, blocks.first[b], blocks.first[b + 1], size, key)


@njit(cache=True, nogil=True)
def _sorted_steps(key, merges):
    """The steps by rank, equal ones as they come: indices of ``key``, int32.

    ``key``: int64 [steps], as `Steps.key`. ``merges``: the number of ranks. Radix sort in two
    passes.
    """
    key = borrow(key)
    bits = 1
    while 1 << (2 * bits) < merges:
        bits += 1
    mask = (1 << bits) - 1
    order, sorted_once = np.empty(len(key), np.int32), np.empty(len(key), np.int32)
    low, high = np.zeros(mask + 2, np.int64), np.zeros(mask + 2, np.int64)
    for x in range(len(key)):
        low[((key[x] >> 32) & mask) + 1] += 1
        high[(key[x] >> (32 + bits)) + 1] += 1
    for d in range(mask + 1):
        low[d + 1] += low[d]
        high[d + 1] += high[d]
    for x in range(len(key)):
        d = (key[x] >> 32) & mask
        sorted_once[low[d]] = x
        low[d] += 1
    for x in sorted_once:
        d = key[x] >> (32 + bits)
        order[high[d]] = x
        high[d] += 1
    return order


@njit(cache=True, nogil=True)
def _run_trials(dropout, blocks, steps, order, size, kept, kept_after, state):
    """Drop and keep the merges of all blocks; returns the state of the random numbers.

    ``order``: int32 [steps], from `_sorted_steps`, changed in place. ``size``: entries of the heap,
    the pairs of live blocks. ``kept``, ``kept_after``: as in `bpe_dropout`.
    """
    dropout, blocks, steps = borrow_dropout(dropout), _borrow_blocks(blocks), _borrow_steps(steps)
    order = borrow(order)
    scratch, merges = dropout.scratch, dropout.merges
    heap, live = scratch.heap, blocks.live
    count, n = len(order), blocks.first[len(blocks.end)]
    t, dropped = np.int64(0), np.int64(0)
    while True:
        while t < count and live[steps.block[order[t]]]:
            t += 1
        while size > 0 and scratch.rank[heap[0] & 0xFFFFFFFF] != heap[0] >> 32:
            _, size = pop(heap, size)  # not a pair any more
        from_heap = size > 0 and (t == count or heap[0] < steps.key[order[t]])
        if not from_heap and t == count:
            return state
        kept -= 1
        if kept >= 0:
            if from_heap:
                key, size = pop(heap, size)
                size = apply(merges, scratch, n, size, key & 0xFFFFFFFF)
            else:
                t += 1
            for x in range(dropped):
                size = push(heap, size, scratch.dropped[x])
            dropped = 0
            continue
        kept, state = next_kept(kept_after, dropout.log_keep, state)
        kept_after = np.int64(-1)
        if from_heap:
            scratch.dropped[dropped], size = pop(heap, size)
            dropped += 1
            continue
        step = order[t]
        later = t + 1
        while later < count and live[steps.block[order[later]]]:
            later += 1
        if kept > 0 and later < count:
            key = steps.key[order[later]]
            apart = steps.block[order[later]] != steps.block[step]
            if apart and steps.other[step] > key >> 32 and (size == 0 or heap[0] > key):
                t = later - 1  # the steps that are skipped are void
                order[t], order[later] = order[later], step
                continue
        key = steps.key[step]
        size = _make_live(dropout, blocks, steps, steps.block[step], count, key, size)
        scratch.dropped[dropped] = key
        dropped += 1


@njit(cache=True, nogil=True)
def merge_by_blocks(dropout, begin, end, kept, kept_after, state, out, at):
    """Append the merged pre-token to ``out``; returns the end, or -1, and the state.

    The pre-token is bytes begin..end of ``dropout.text``; -1 where a byte has no symbol. ``kept``,
    ``kept_after``: as in `bpe_dropout`. ``out``: int32, with space for end - begin ids from ``at``
    on.
    """
    ends = np.empty(end - begin, np.int64)
    count = word_ends(dropout.trie, dropout.text, begin, end, ends)
    blocks = Blocks(begin, ends[:count], np.zeros(count + 1, np.int64), np.zeros(count, np.bool_))
    n = _read_blocks(dropout, blocks, 0, count)
    if n < 0:
        return n, state
    # A block that becomes live writes its steps once more, after the others.
    steps = Steps(
        np.empty(n + SHORT, np.int64), np.empty(n + SHORT, np.int32), np.empty(n + SHORT, np.int32)
    )
    number = _merge_blocks(dropout, blocks, steps, 0, count, 0, np.int64(_NONE) << 32)
    size = np.int64(0)
    for b in range(count):
        if blocks.live[b]:
            size = _make_live(dropout, blocks, steps, b, number, np.int64(_NOTHING), size)
    order = _sorted_steps(steps.key[:number], len(dropout.merges.result))
    state = _run_trials(dropout, blocks, steps, order, size, kept, kept_after, state)
    at = append_symbols(dropout.scratch, n, out, at)
    return at, state
