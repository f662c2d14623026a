"""Whether rows of ids spell their texts: the one check of canonical encoding, as a kernel.

The first eight bytes of a token are compared with the text as one word of 64 bits, the rest byte by
byte. A text is not copied, and the bytes of ids are not joined.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.compiler import borrow, njit

WORD = 8  # bytes that are compared at once; a text has so many more at its end
NEVER = -1  # the length of a token that spells no part of a text as it came


class Heads(NamedTuple):
    """The tokens of a vocabulary as the check reads them."""

    head: np.ndarray  # uint64 [ids]: the first eight bytes of each token, the first one lowest
    length: np.ndarray  # int32 [ids]: its bytes, or NEVER
    bytes: np.ndarray  # uint8 [bytes of all tokens]
    offsets: np.ndarray  # int64 [ids + 1]: bytes before each token
    mask: np.ndarray  # uint64 [WORD + 1]: the bits of the first n bytes of a word


def heads_of(token_bytes: np.ndarray, offsets: np.ndarray, spells: np.ndarray) -> Heads:
    """The `Heads` of a vocabulary; ``spells``: bool [ids], false where the length is NEVER."""
    lengths = np.diff(offsets)
    padded = np.append(token_bytes, np.zeros(WORD, np.uint8)).astype(np.uint64)
    head = np.zeros(len(lengths), np.uint64)
    for i in range(WORD):
        byte = padded[offsets[:-1] + i] * (lengths > i).astype(np.uint64)
        head |= byte << np.uint64(8 * i)
    mask = np.array([(1 << 8 * n) - 1 for n in range(WORD + 1)], np.uint64)
    return Heads(
        head, np.where(spells, lengths, NEVER).astype(np.int32), token_bytes, offsets, mask
    )


@njit(inline="always")
def _word_at(text, at):
    """Eight bytes from text[at] on as one uint64, the first one lowest; LLVM makes one load of it.

    ``text``: uint8 [at least ``at`` + WORD].
    """
    u = np.uint64
    return (
        u(text[at])
        | u(text[at + 1]) << u(8)
        | u(text[at + 2]) << u(16)
        | u(text[at + 3]) << u(24)
        | u(text[at + 4]) << u(32)
        | u(text[at + 5]) << u(40)
        | u(text[at + 6]) << u(48)
        | u(text[at + 7]) << u(56)
    )


@njit()
def spelled_rows(heads, text, starts, ids, offsets):
    """Whether the ids of each row spell its part of a text, bool [rows].

    ``heads``: `Heads`. ``text``: uint8 [starts[-1] + WORD]: part r of it is
    text[starts[r]:starts[r + 1]]. ``starts``: int64 [rows + 1], ascending. ``ids``: int32: row r is
    ids[offsets[r]:offsets[r + 1]]. ``offsets``: int64 [rows + 1]. An id outside the vocabulary
    spells nothing, and a token is compared only where its bytes end within the part, so that all
    reads are inside ``text``.
    """
    head, length, mask = borrow(heads.head), borrow(heads.length), borrow(heads.mask)
    token_bytes, token_offsets = borrow(heads.bytes), borrow(heads.offsets)
    text, starts = borrow(text), borrow(starts)
    ids, offsets = borrow(ids), borrow(offsets)
    rows = len(offsets) - 1
    spelled = np.zeros(rows, np.bool_)
    for r in range(rows):
        at, end = starts[r], starts[r + 1]
        same = True
        for v in range(offsets[r], offsets[r + 1]):
            i = ids[v]
            n = np.int64(length[i]) if 0 <= i < len(length) else np.int64(NEVER)
            same = n >= 0 and at + n <= end
            if not same:
                break
            same = (_word_at(text, at) ^ head[i]) & mask[min(n, WORD)] == 0
            begin = token_offsets[i]
            for p in range(WORD, n):
                same &= text[at + p] == token_bytes[begin + p]
            if not same:
                break
            at += n
        spelled[r] = same and at == end
    return spelled
