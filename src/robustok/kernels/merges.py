"""The merge list of a BPE vocabulary: ranks by pair of ids, symbols, queue of merges, pre-tokens.

Arguments of one meaning in this module: ``merges``: `Merges`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.compiler import borrow, njit
from robustok.kernels.trie import fill, find_token, look_up

BITS = 21  # of an id or a rank
MOST_TRIALS = 255  # trials that are counted for a token; pre-tokens with more are always merged
FIRST, CELLS = 8, 8  # outcomes that are cached for a token, and the int32 cells of each


class PreTokens(NamedTuple):
    """The spans that merges do not cross: those of text t are first[t]:first[t + 1]."""

    first: np.ndarray  # int64 [texts + 1]
    end: np.ndarray  # int64: end byte of each within the batch's values
    token: np.ndarray  # int32: the canonical token that is exactly this pre-token, or -1
    added: np.ndarray  # bool [ids]: added tokens, which are never cut


class Merges(NamedTuple):
    """The merge list: a hash table of pairs of ids, and what each merge makes.

    ``trials`` and ``outcomes`` are caches, filled by several threads without a lock: each cell is
    0 (or -1 in ``trials``) or has its final value, the same whoever writes it.
    """

    slots: np.ndarray  # int64 [power of two]: left, right and rank, BITS each, or -1; one is free
    result: np.ndarray  # int32 [merges]: the id a merge makes
    priority: np.ndarray  # int32 [merges]: lower goes first; the rank, or that of the result
    symbol: np.ndarray  # int32 [256]: the id of each single byte, or -1
    character: np.ndarray  # int32 [65536]: the id of each character below, or -1; [0] where all
    # texts start from bytes
    of_bytes: np.ndarray  # int32 [65536]: rank of two bytes, or of two ASCII characters, or -1
    trials: np.ndarray  # int16 [ids]: trials that merging a token takes if none drops its merge;
    # -1: not counted yet, -2: merging does not make the token, or takes more than MOST_TRIALS
    outcomes: np.ndarray  # int32 [ids, FIRST, CELLS]: the result of dropping only merge k: one
    # more than the trials after it, then one more than each id, then -1. The first cell is 0 where
    # it was not tried yet, -1 where the result does not fit.


@njit(inline="always")
def rank_of(merges, left, right):
    """The rank of the pair of ids ``left`` and ``right``, or -1; int32."""
    return np.int32(look_up(merges.slots, np.int64(left) << BITS | np.int64(right), BITS))


@njit()
def fill_bytes(merges):
    """The ranks of all pairs of bytes, or of ASCII characters where texts start from characters."""
    symbol = merges.character[:128] if len(merges.character) else merges.symbol
    for a in range(len(symbol)):
        for b in range(len(symbol)):
            if symbol[a] >= 0 and symbol[b] >= 0:
                merges.of_bytes[a * 256 + b] = rank_of(merges, symbol[a], symbol[b])


@njit(inline="always")
def decode_character(text, p, stop):
    """The code point of text[p:stop] (uint8) at ``p`` and its size in bytes; size 0 if not UTF-8.

    For a character of several bytes. Surrogates pass, as in Python's JSON.
    """
    a = np.int64(text[p])
    size = 2 if a < 0xE0 else 3 if a < 0xF0 else 4
    if a < 0xC2 or a > 0xF4 or p + size > stop:
        return np.int64(0), 0
    code = a & (0x3F >> (size - 1))
    for q in range(p + 1, p + size):
        b = np.int64(text[q])
        if b & 0xC0 != 0x80:
            return np.int64(0), 0
        code = code << 6 | (b & 0x3F)
    # Overlong, or beyond Unicode.
    if (size == 3 and code < 0x800) or (size == 4 and (code < 0x10000 or code > 0x10FFFF)):
        return np.int64(0), 0
    return code, size


@njit(inline="always")
def _code_point(text, p, after):
    """The code point of text[p:after] (uint8), a first byte and all continuation bytes after it.

    -1 where it needs more than 16 bits, or is not UTF-8.
    """
    if text[p] < 0x80:
        return np.int64(text[p]) if after == p + 1 else np.int64(-1)
    code, size = decode_character(text, p, after)
    return code if 0 < size < 4 and p + size == after else np.int64(-1)


@njit(inline="always")
def symbols_of(trie, merges, text, start, end, token, rank):
    """Write the symbols that text[start:end] starts from; returns how many, or -1.

    Symbols are bytes, or characters and the bytes of unknown ones; -1 where one has no id.
    ``text``: uint8. ``token``, ``rank``: int32 [end - start]: the id of each, and the rank of its
    merge with the next one (not written for the last). A symbol has at least one byte, so they fit.
    """
    n = 0
    if len(merges.character) == 0:
        for p in range(start, end):
            if merges.symbol[text[p]] < 0:
                return -1
            token[n] = merges.symbol[text[p]]
            if n:
                rank[n - 1] = merges.of_bytes[np.int64(text[p - 1]) * 256 + text[p]]
            n += 1
        return n
    p = start
    plain = False  # whether the previous symbol is an ASCII character
    while p < end:
        after = p + 1
        while after < end and (text[after] & 0xC0) == 0x80:
            after += 1
        code = _code_point(text, p, after)
        known = merges.character[code] if code >= 0 else find_token(trie, text, p, after)
        for q in range(p, p + 1 if known >= 0 else after):
            token[n] = known if known >= 0 else merges.symbol[text[q]]
            if token[n] < 0:
                return -1
            if n:
                rank[n - 1] = (
                    merges.of_bytes[np.int64(text[q - 1]) * 256 + text[q]]
                    if plain and 0 <= code < 128 and known >= 0
                    else rank_of(merges, token[n - 1], token[n])
                )
            n += 1
        plain = 0 <= code < 128 and known >= 0
        p = after
    return n


@njit(inline="always")
def push(heap, size, key):
    """Push ``key`` onto a binary min-heap of ``size`` entries; returns the new size.

    ``heap``: int64 [more than ``size``].
    """
    at = size
    while at > 0:
        up = (at - 1) >> 1
        if heap[up] <= key:
            break
        heap[at] = heap[up]
        at = up
    heap[at] = key
    return size + 1


@njit(inline="always")
def pop(heap, size):
    """The smallest entry of a heap that is not empty, and the new size.

    ``heap``: int64 [``size`` or more], its first ``size`` entries in use.
    """
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


@njit()
def whole_tokens(first, end, begin, ids, offsets, token_offsets):
    """The canonical token that is exactly each pre-token, int32 [pre-tokens], or -1.

    ``first``, ``end``: as in `PreTokens`. ``begin``: int64 [texts + 1], the first byte of each
    text. ``ids``: the canonical ids; those of text t, ids[offsets[t]:offsets[t + 1]], spell its
    bytes. ``offsets``: int64 [texts + 1]. ``token_offsets``: int64 [ids + 1], bytes before each
    token.
    """
    first, end, begin = borrow(first), borrow(end), borrow(begin)
    ids, offsets, token_offsets = borrow(ids), borrow(offsets), borrow(token_offsets)
    token = np.full(len(end), -1, np.int32)
    for t in range(len(offsets) - 1):
        v, at = offsets[t], begin[t]  # token v starts at byte at
        start = at
        for x in range(first[t], first[t + 1]):
            while at < end[x]:
                size = token_offsets[ids[v] + 1] - token_offsets[ids[v]]
                if at == start and at + size == end[x]:
                    token[x] = ids[v]
                at += size
                v += 1
            start = end[x]
    return token


def build_merges(
    left: np.ndarray,
    right: np.ndarray,
    result: np.ndarray,
    priority: np.ndarray,
    symbol: np.ndarray,
    character: np.ndarray,
    ids: int,
) -> Merges:
    """The merges of a vocabulary of so many ids as arrays, pair r being (left[r], right[r]).

    ``symbol``, ``character``: as in `Merges`.
    """
    slots = np.full(1 << int(max(16, len(left))).bit_length(), -1, np.int64)
    fill(slots, left.astype(np.int64) << BITS | right, np.arange(len(left)), BITS)
    merges = Merges(
        slots,
        result,
        priority,
        symbol,
        character,
        np.full(65536, -1, np.int32),
        np.full(ids, -1, np.int16),
        np.zeros((ids, FIRST, CELLS), np.int32),
    )
    fill_bytes(merges)
    return merges
