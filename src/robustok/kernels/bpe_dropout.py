"""BPE with dropout: merges of one pre-token from a heap, where a coin decides about each.

How many coins keep their merges before one drops it is a single number. What becomes of a token's
pre-token if just the so-manieth coin drops one never changes, so it is remembered, and few
pre-tokens must be merged at all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.batch import borrow_batch
from robustok.kernels.jit import njit
from robustok.kernels.memory import borrow
from robustok.kernels.random import stream, uniform
from robustok.kernels.stochastok import find
from robustok.kernels.trie import borrow_trie

PROVILKOV, HF, SENTENCEPIECE = 0, 1, 2
BITS = 21  # of an id or a rank
_HASH = np.uint64(0x9E3779B97F4A7C15)
_MOST = 255  # coins thrown for a token; pre-tokens with more are merged every time
_FIRST, _CELLS = 8, 8  # outcomes that a token remembers, and how much room each has
_NEVER = 1 << 60


class Merges(NamedTuple):
    """The merge list: a hash of pairs of ids, and what each merge makes."""

    slots: np.ndarray  # int64 [power of two]: left, right and rank, 21 bits each, or -1
    result: np.ndarray  # int32 [merges]: the id a merge makes
    priority: np.ndarray  # int32 [merges]: lower goes first; the rank, or that of the result
    symbol: np.ndarray  # int32 [256]: the id of each single byte, or -1
    of_bytes: np.ndarray  # int32 [65536]: rank of two bytes, where all texts start from bytes; or 0
    coins: np.ndarray  # int16 [ids]: coins that are thrown for a token if none drops a merge;
    # -1: not counted yet, -2: merging does not make the token, or takes more than _MOST
    outcomes: np.ndarray  # int32 [ids, _FIRST, _CELLS]: if just coin k drops a merge, one more than
    # the coins after it, then one more than each id, then -1. All 0: not tried yet; -1: no room.
    # Each cell is 0 or final, so that threads may fill them without a lock.


class PreTokens(NamedTuple):
    """The pre-tokens that merges do not cross: those of text t are first[t]:first[t + 1]."""

    first: np.ndarray  # int64 [texts + 1]
    end: np.ndarray  # int64: end byte within the batch's values


@njit(cache=True, nogil=True)
def borrow_merges(merges):
    """The same merges, uncounted."""
    return Merges(
        borrow(merges.slots), borrow(merges.result), borrow(merges.priority), borrow(merges.symbol),
        borrow(merges.of_bytes), borrow(merges.coins), borrow(merges.outcomes),
    )  # fmt: skip


@njit(cache=True, nogil=True, inline="always")
def _slot(key, mask):
    return np.int64((np.uint64(key) * _HASH) >> np.uint64(32)) & mask


@njit(cache=True, nogil=True)
def fill(left, right, slots):
    """Hash every pair to its position; of equal pairs the last one holds."""
    mask = len(slots) - 1
    for r in range(len(left)):
        key = (np.int64(left[r]) << BITS) | np.int64(right[r])
        s = _slot(key, mask)
        while slots[s] >= 0 and slots[s] >> BITS != key:
            s = (s + 1) & mask
        slots[s] = (key << BITS) | r


@njit(cache=True, nogil=True, inline="always")
def rank_of(merges, left, right):
    """The rank of a pair of ids, or -1."""
    mask = len(merges.slots) - 1
    key = (np.int64(left) << BITS) | np.int64(right)
    s = _slot(key, mask)
    while True:
        k = merges.slots[s]
        if k >> BITS == key:
            return np.int32(k & ((1 << BITS) - 1))
        if k < 0:
            return np.int32(-1)
        s = (s + 1) & mask


@njit(cache=True, nogil=True)
def fill_bytes(merges):
    """The ranks of all pairs of bytes."""
    for a in range(256):
        for b in range(256):
            merges.of_bytes[a * 256 + b] = (
                rank_of(merges, merges.symbol[a], merges.symbol[b])
                if merges.symbol[a] >= 0 and merges.symbol[b] >= 0
                else -1
            )


@njit(cache=True, nogil=True, inline="always")
def _push(heap, size, key):
    at = size
    while at > 0:
        up = (at - 1) >> 1
        if heap[up] <= key:
            break
        heap[at] = heap[up]
        at = up
    heap[at] = key
    return size + 1


@njit(cache=True, nogil=True, inline="always")
def _pop(heap, size):
    top = heap[0]
    size -= 1
    key = heap[size]
    at = np.int64(0)
    while True:
        down = 2 * at + 1
        if down >= size:
            break
        if down + 1 < size and heap[down + 1] < heap[down]:
            down += 1
        if heap[down] >= key:
            break
        heap[at] = heap[down]
        at = down
    heap[at] = key
    return top, size


@njit(cache=True, nogil=True, inline="always")
def _symbols(trie, merges, text, start, end, token, rank):
    """The symbols a pre-token starts from: bytes, or characters and the bytes of unknown ones.

    Writes ids, and the rank of each with the next; returns how many, or -1 for a byte with no id.
    """
    n = 0
    if len(merges.of_bytes):
        for p in range(start, end):
            if merges.symbol[text[p]] < 0:
                return -1
            token[n] = merges.symbol[text[p]]
            if n:
                rank[n - 1] = merges.of_bytes[np.int64(text[p - 1]) * 256 + text[p]]
            n += 1
        return n
    p = start
    while p < end:
        after = p + 1
        while after < end and (text[after] & 0xC0) == 0x80:
            after += 1
        known = find(trie, text, p, after)
        for q in range(p, p + 1 if known >= 0 else after):
            token[n] = known if known >= 0 else merges.symbol[text[q]]
            if token[n] < 0:
                return -1
            if n:
                rank[n - 1] = rank_of(merges, token[n - 1], token[n])
            n += 1
        p = after
    return n


@njit(cache=True, nogil=True, inline="always")
def _gap(u, log_keep):
    """How many coins keep their merges before one drops it, from one uniform number."""
    return np.int64(min(np.log(max(u, 1e-17)) / log_keep, 1e18))


@njit(cache=True, nogil=True, inline="always")
def _merge(merges, n, rule, gap, further, log_keep, scratch, heap, skipped, state, out, at):
    """Merge the n symbols in ``scratch`` and append what is left; returns the coins thrown too.

    ``gap`` coins keep their merge before the first that drops it, and ``further`` before the
    second; -1 is for not known.

    scratch: id, previous, next, and rank with the next (-1: none, or no longer there). The three
    rules differ in when a coin is thrown and in what becomes of a merge it drops. `hf` throws it
    for entries that are out of date too, and such an entry brings the dropped ones back.
    """
    token, before, after, rank = scratch[0], scratch[1], scratch[2], scratch[3]
    rank[n - 1] = -1
    size, dropped, thrown = 0, 0, 0
    for i in range(n):
        before[i], after[i] = i - 1, i + 1
        if rank[i] >= 0:
            size = _push(heap, size, (np.int64(merges.priority[rank[i]]) << 32) | i)
    while size > 0:
        key, size = _pop(heap, size)
        i = key & 0xFFFFFFFF
        r = rank[i]
        if rule == HF:
            valid = r >= 0 and merges.result[r] == merges.result[key >> 32]
        else:
            valid = r >= 0 and merges.priority[r] == key >> 32
            if not valid:
                continue
        thrown += 1
        gap -= 1
        if gap < 0:
            gap = further
            further = np.int64(-1)
            if gap < 0:
                u, state = uniform(state)
                gap = _gap(u, log_keep)
            if rule != SENTENCEPIECE:
                skipped[dropped] = key
                dropped += 1
            continue
        for x in range(dropped):
            size = _push(heap, size, skipped[x])
        dropped = 0
        if not valid:
            continue
        j = after[i]
        token[i] = merges.result[r]
        after[i] = after[j]
        rank[j] = -1
        rank[i] = -1
        if after[j] < n:
            before[after[j]] = i
            rank[i] = rank_of(merges, token[i], token[after[i]])
            if rank[i] >= 0:
                size = _push(heap, size, (np.int64(merges.priority[rank[i]]) << 32) | i)
        if before[i] >= 0:
            b = before[i]
            rank[b] = rank_of(merges, token[b], token[i])
            if rank[b] >= 0:
                size = _push(heap, size, (np.int64(merges.priority[rank[b]]) << 32) | b)
    i = np.int64(0)
    while i < n:
        out[at] = token[i]
        at += 1
        i = np.int64(after[i])
    return at, thrown, state


@njit(cache=True, nogil=True)
def _try(trie, merges, text, start, end, rule, gap, scratch, heap, skipped, made):
    """Merge a pre-token when coin ``gap`` alone drops its merge.

    Writes ids to ``made``; returns how many, and the coins thrown.
    There are -1 ids where a symbol is missing.
    """
    trie, merges = borrow_trie(trie), borrow_merges(merges)
    text, scratch, heap, skipped = borrow(text), borrow(scratch), borrow(heap), borrow(skipped)
    made = borrow(made)
    n = _symbols(trie, merges, text, start, end, scratch[0], scratch[3])
    if n < 0:
        return np.int64(-1), np.int64(0)
    size, thrown, _ = _merge(
        merges, n, rule, gap, np.int64(_NEVER), -1.0, scratch, heap, skipped, np.uint64(0), made, 0
    )
    return np.int64(size), np.int64(thrown)


@njit(cache=True, nogil=True)
def draw_bpe_dropout(
    trie, merges, pre_tokens, added, ids, id_offsets, token_offsets, batch, p, rule, first, last,
    out, out_ends,
):  # fmt: skip
    """Draw texts first..last, which are bytes; returns ``last``, or the text with no symbols.

    ``ids`` are their canonical ids, of which those that are ``added`` stay. A pre-token that is one
    of them is that again if no coin drops a merge, and its known outcome if one does.
    """
    trie, merges, batch = borrow_trie(trie), borrow_merges(merges), borrow_batch(batch)
    pre_tokens = PreTokens(borrow(pre_tokens.first), borrow(pre_tokens.end))
    added, ids, token_offsets = borrow(added), borrow(ids), borrow(token_offsets)
    out, out_ends = borrow(out), borrow(out_ends)
    log_keep = np.log1p(-p)
    keeps = np.empty(_MOST + 1)  # the probability that so many coins drop nothing
    for x in range(_MOST + 1):
        keeps[x] = np.exp(x * log_keep) if x else 1.0
    most = np.int64(1)
    for t in range(first, last):
        begin = batch.offsets[t]
        for x in range(pre_tokens.first[t - first], pre_tokens.first[t - first + 1]):
            most = max(most, pre_tokens.end[x] - begin)
            begin = pre_tokens.end[x]
    scratch_memory, made_memory = np.empty((4, most), np.int32), np.empty(most, np.int32)
    heap_memory, skipped_memory = np.empty(3 * most, np.int64), np.empty(3 * most, np.int64)
    scratch, made = borrow(scratch_memory), borrow(made_memory)
    heap, skipped = borrow(heap_memory), borrow(skipped_memory)
    at = np.int64(0)
    for t in range(first, last):
        for d in range(batch.draws):
            state = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
            end = batch.offsets[t]
            v, there = id_offsets[t], end  # the canonical token that starts at byte ``there``
            for x in range(pre_tokens.first[t - first], pre_tokens.first[t - first + 1]):
                begin, end = end, pre_tokens.end[x]
                token = np.int32(-1)
                while there < end:
                    size = token_offsets[ids[v] + 1] - token_offsets[ids[v]]
                    if there == begin and there + size == end:
                        token = ids[v]
                    there += size
                    v += 1
                coins = np.int64(-2)
                if token >= 0:
                    if added[token]:
                        out[at] = token
                        at += 1
                        continue
                    coins = np.int64(merges.coins[token])
                    if coins == -1:
                        size, coins = _try(
                            trie, merges, batch.values, begin, end, rule, np.int64(_NEVER), scratch,
                            heap, skipped, made,
                        )  # fmt: skip
                        if size != 1 or made[0] != token or coins > _MOST:
                            coins = np.int64(-2)
                        merges.coins[token] = coins
                u, state = uniform(state)
                further = np.int64(-1)
                if coins < 0:
                    gap = _gap(u, log_keep)
                elif u < keeps[coins]:
                    out[at] = token
                    at += 1
                    continue
                else:
                    gap = min(_gap(u, log_keep), coins - 1)
                    if gap < _FIRST:
                        if merges.outcomes[token, gap, 0] == 0:
                            size, coins = _try(
                                trie, merges, batch.values, begin, end, rule, gap, scratch, heap,
                                skipped, made,
                            )  # fmt: skip
                            room = size + 2 <= _CELLS and coins <= _MOST
                            if room:
                                for y in range(size):
                                    merges.outcomes[token, gap, y + 1] = made[y] + 1
                                merges.outcomes[token, gap, size + 1] = -1
                            merges.outcomes[token, gap, 0] = coins - gap if room else -1
                        coins = np.int64(merges.outcomes[token, gap, 0]) - 1
                        if coins >= 0:
                            u, state = uniform(state)
                            if u < keeps[coins]:
                                y = 1
                                while merges.outcomes[token, gap, y] > 0:
                                    out[at + y - 1] = merges.outcomes[token, gap, y] - 1
                                    y += 1
                                if merges.outcomes[token, gap, y] < 0:
                                    at += y - 1
                                    continue
                                further = np.int64(_NEVER)  # another thread is writing it
                            else:
                                further = min(_gap(u, log_keep), coins - 1)
                n = _symbols(trie, merges, batch.values, begin, end, scratch[0], scratch[3])
                if n < 0:
                    return t
                at, _, state = _merge(
                    merges, n, rule, gap, further, log_keep, scratch, heap, skipped, state, out, at
                )
            out_ends[(t - first) * batch.draws + d] = at
    # The borrowed scratch lives for as long as its owners are in use.
    scratch_memory[0, 0], made_memory[0], heap_memory[0], skipped_memory[0] = 0, 0, 0, 0
    return last


def build_merges(
    left: np.ndarray, right: np.ndarray, result: np.ndarray, priority: np.ndarray,
    symbol: np.ndarray, from_bytes: bool, ids: int,
) -> Merges:  # fmt: skip
    """The merges of a vocabulary of so many ids as arrays, pair r being (left[r], right[r])."""
    slots = np.full(1 << int(max(16, len(left))).bit_length(), -1, np.int64)
    fill(left, right, slots)
    merges = Merges(
        slots, result, priority, symbol, np.zeros(65536 if from_bytes else 0, np.int32),
        np.full(ids, -1, np.int16), np.zeros((ids, _FIRST, _CELLS), np.int32),
    )  # fmt: skip
    if from_bytes:
        fill_bytes(merges)
    return merges
