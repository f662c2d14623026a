"""What merging with dropout reads and writes: the symbols of a pre-token, their merges, its queue.

Arguments of one meaning in this module: ``merges``: `Merges`. ``scratch``: `Scratch`, with
space for the symbols of the longest pre-token.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.compiler.jit import njit
from robustok.kernels.heap import push
from robustok.kernels.memory import borrow
from robustok.kernels.merges import Merges, borrow_merges, rank_of
from robustok.kernels.random import uniform
from robustok.kernels.trie import Trie, borrow_trie


class Scratch(NamedTuple):
    """Memory for merging one pre-token of up to n symbols.

    Invariant: n merges push fewer than 3 n entries on the heap, and each may be dropped once.
    """

    token: np.ndarray  # int32 [n]: the id of a symbol
    before: np.ndarray  # int32 [n]: the previous symbol, or -1
    after: np.ndarray  # int32 [n]: the next symbol, or n
    rank: np.ndarray  # int32 [n]: of the merge with the next symbol; -1: none, or merged away
    heap: np.ndarray  # int64 [3 n]: priority << 32 | symbol
    dropped: np.ndarray  # int64 [3 n]: entries that come back after the next merge
    ids: np.ndarray  # int32 [n]: the outcome of a trial run


class Dropout(NamedTuple):
    """All that a draw of a pre-token needs."""

    trie: Trie
    merges: Merges
    text: np.ndarray  # uint8
    rule: int  # PROVILKOV, HF or SENTENCEPIECE
    log_keep: float  # log(1 - p)
    keep: np.ndarray  # float64 [MOST_TRIALS + 1]: the probability that so many trials drop nothing
    scratch: Scratch
    by_blocks: int  # bytes of the shortest pre-token that is merged by blocks (`dropout_blocks`)


@njit(cache=True, nogil=True)
def _borrow_scratch(scratch):
    """The same scratch without reference counts; see `memory`."""
    return Scratch(
        borrow(scratch.token), borrow(scratch.before), borrow(scratch.after), borrow(scratch.rank),
        borrow(scratch.heap), borrow(scratch.dropped), borrow(scratch.ids),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def borrow_dropout(dropout):
    """The same ``dropout`` without reference counts; see `memory`."""
    return Dropout(
        borrow_trie(dropout.trie), borrow_merges(dropout.merges), borrow(dropout.text),
        dropout.rule, dropout.log_keep, borrow(dropout.keep), _borrow_scratch(dropout.scratch),
        dropout.by_blocks,
    )  # fmt: skip


@njit(cache=True, nogil=True, inline="always")
def push_symbol(merges, scratch, size, i):
    """Push the merge of symbol ``i`` with the next one, if there is one; returns the new size.

    ``size``: entries of ``scratch.heap``, which has space for another one (see `Scratch`).
    """
    rank = scratch.rank[i]
    if rank >= 0:
        size = push(scratch.heap, size, (np.int64(merges.priority[rank]) << 32) | i)
    return size


@njit(cache=True, nogil=True, inline="always")
def kept_merges(u, log_keep):
    """The number of merges kept before the next dropped one, geometric; int64.

    ``u``: float64 in [0, 1), a uniform number. ``log_keep``: float64, log(1 - p), negative.
    """
    return np.int64(min(np.log(max(u, 1e-17)) / log_keep, 1e18))


@njit(cache=True, nogil=True, inline="always")
def next_kept(kept_after, log_keep, state):
    """The number of merges kept before the next dropped one, and the state.

    ``kept_after``: int64, this number, or -1 where it is not drawn yet. ``log_keep``: float64, as
    in `kept_merges`. ``state``: uint64, of the random numbers.
    """
    kept = kept_after
    if kept < 0:
        u, state = uniform(state)
        kept = kept_merges(u, log_keep)
    return kept, state


@njit(cache=True, nogil=True, inline="always")
def join(merges, scratch, n, i):
    """Merge symbol ``i`` with the next one, and set the ranks of the new pairs.

    ``n``: number of symbols of all blocks. scratch.rank[i] is a merge, so symbol i has a next one
    below n.
    """
    token, before, after, rank = scratch.token, scratch.before, scratch.after, scratch.rank
    j = after[i]
    token[i] = merges.result[rank[i]]
    after[i] = after[j]
    rank[j] = -1
    rank[i] = -1
    if after[j] < n:
        before[after[j]] = i
        rank[i] = rank_of(merges, token[i], token[after[i]])
    if before[i] >= 0:
        b = before[i]
        rank[b] = rank_of(merges, token[b], token[i])


@njit(cache=True, nogil=True, inline="always")
def apply(merges, scratch, n, size, i):
    """Merge symbol ``i`` with the next one and push the new pairs' merges; returns the heap size.

    ``n``: number of symbols that the pre-token started from. ``size``: entries of
    ``scratch.heap``. scratch.rank[i] is a merge, so symbol i has a next one below n.
    """
    join(merges, scratch, n, i)
    size = push_symbol(merges, scratch, size, i)
    if scratch.before[i] >= 0:
        size = push_symbol(merges, scratch, size, scratch.before[i])
    return size


@njit(cache=True, nogil=True, inline="always")
def append_symbols(scratch, n, out, at):
    """Append the ids of the symbols that are left of ``n`` to ``out`` from ``at``; returns the end.

    ``out``: int32 [at least ``at + n``].
    """
    i = np.int64(0)
    while i < n:
        out[at] = scratch.token[i]
        at += 1
        i = np.int64(scratch.after[i])
    return at
