"""Cut texts into pre-tokens by a DFA, which `tokenizer.pattern` builds; find whole tokens."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.compiler import borrow, njit

END = 128  # the symbol of the end of a span; smaller ones are ASCII, larger ones other classes
UNKNOWN = 255  # the symbol of characters that were not looked up yet
UNKNOWN_CHARACTER, STUCK = -1, -2  # what `cut` returns where it cannot cut
TO_MERGE = -2  # in `PreTokens.token`: the token that merging the pre-token makes, or -1


class PreTokens(NamedTuple):
    """The spans that merges do not cross: those of text t are first[t]:first[t + 1]."""

    first: np.ndarray  # int64 [texts + 1]
    end: np.ndarray  # int64: end byte of each within the batch's values
    token: np.ndarray  # int32: the canonical token that is exactly this pre-token, -1 or TO_MERGE
    added: np.ndarray  # bool [ids]: added tokens, which are never cut


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


@njit()
def cut(step, symbols, text, edges, whole, ends):
    """Write the end of every pre-token to ``ends``; returns how many.

    Or UNKNOWN_CHARACTER at a character whose symbol is UNKNOWN, or STUCK where the pattern matches
    nothing. A byte that is not UTF-8 is a pre-token.
    ``step``: int16 [states, symbols], 2 * next state, plus 1 where a match ends before the symbol;
    next states are below the number of states, and no state is left at END except for state 0.
    ``symbols``: uint8 [0x110000], the symbol of each character, or UNKNOWN. ``text``: uint8.
    ``edges``: int64, ascending, from 0 to len(text): span s is text[edges[s]:edges[s + 1]].
    ``whole``: bool [spans]: the span is one pre-token. ``ends``: int64 [len(text)], enough because
    a pre-token has at least one byte.
    """
    step, symbols, text = borrow(step), borrow(symbols), borrow(text)
    edges, whole, ends = borrow(edges), borrow(whole), borrow(ends)
    count = np.int64(0)
    for s in range(len(edges) - 1):
        start, stop = edges[s], edges[s + 1]
        if whole[s] and start < stop:
            ends[count] = stop
            count += 1
            continue
        while start < stop:
            state, last, p = np.int64(1), start, start
            size = 1
            while True:
                symbol = np.int64(END)
                if p < stop:
                    symbol = np.int64(text[p])
                    size = 1
                    if symbol >= 128:
                        code, size = decode_character(text, p, stop)
                        size = 0 if 0xD800 <= code < 0xE000 else size  # a surrogate
                        symbol = np.int64(symbols[code]) if size else np.int64(END)
                        if symbol == UNKNOWN:
                            return np.int64(UNKNOWN_CHARACTER)
                to = np.int64(step[state, symbol])
                if to & 1:
                    last = p
                state = to >> 1
                if state == 0:
                    break
                p += size
            if last == start:
                if p > start or size > 0:
                    return np.int64(STUCK)
                last = start + 1  # a byte that is not UTF-8
            ends[count] = last
            count += 1
            start = last
    return count


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
