"""Places of drawn tokens in the text, from those of the canonical tokens of the same bytes.

Both id sequences are walked byte by byte. A drawn token belongs to the canonical token that its
first byte belongs to, and has the offsets of the characters that its first and its last byte belong
to.

Characters are counted by canonical token. Where its bytes touch as many characters as its offsets
span, each lead byte begins the next one; a space that the tokenizer put before the text shares the
span of the first character. Otherwise the normalizer changed the text, and all bytes have the
offsets of the token.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.compiler import borrow, njit

_SPACE = ord(" ")


@njit()
def align(old, old_offsets, new, new_offsets, token_bytes, token_offsets, spans):
    """Origins and offsets of the drawn tokens of all rows.

    ``old``, ``new``: int32 [ids], canonical and drawn ids of the vocabulary; row r is
    old[old_offsets[r]:old_offsets[r + 1]], and likewise ``new``. ``old_offsets``, ``new_offsets``:
    int64 [rows + 1], ascending from 0. ``token_bytes``: uint8. ``token_offsets``: int64 [vocabulary
    + 1]; token t is token_bytes[token_offsets[t]:token_offsets[t + 1]], and one without bytes
    counts as one. ``spans``: int64 [len(old), 2], the offsets of the canonical tokens in
    characters.

    Returns ``origins``, int64 [len(new)], the number in its row of the canonical token in which the
    drawn one begins; ``kept``, bool [len(new)], whether the drawn token is that one; ``offsets``,
    int64 [len(new), 2]; and whether both sequences of each row spell equally many bytes. Where they
    do not, the arrays are of no use: all indices are compared with the ends of the rows.
    """
    old, old_offsets = borrow(old), borrow(old_offsets)
    new, new_offsets = borrow(new), borrow(new_offsets)
    token_bytes, token_offsets, spans = borrow(token_bytes), borrow(token_offsets), borrow(spans)
    origins = np.empty(len(new), np.int64)
    kept = np.empty(len(new), np.bool_)
    offsets = np.empty((len(new), 2), np.int64)
    for row in range(len(old_offsets) - 1):
        start, stop = old_offsets[row], old_offsets[row + 1]
        j = start - 1  # the canonical token
        at = end = np.int64(0)  # its next byte and its end in token_bytes
        low = high = np.int64(0)  # the span of its last character
        space = np.int64(0)  # 1 until the first character after a space put before the text
        is_counted = False
        for i in range(new_offsets[row], new_offsets[row + 1]):
            begins = at == end
            first = j + np.int64(begins)
            for b in range(_size(token_offsets, new[i])):
                if at == end:
                    j += 1
                    if j == stop:
                        return origins, kept, offsets, False
                    at = token_offsets[old[j]]
                    end = at + _size(token_offsets, old[j])
                    low, high = spans[j, 0], spans[j, 1]
                    touched = _touched(token_bytes, at, token_offsets[old[j] + 1])
                    added = touched > 0 and touched - (high - low) == 1
                    space = np.int64(added and token_bytes[at] == _SPACE)
                    is_counted = touched > 0 and touched - (high - low) == space
                    if is_counted:
                        high = low + 1
                elif is_counted and _is_lead(token_bytes[at]):
                    low += 1 - space
                    high += 1 - space
                    space = np.int64(0)
                if b == 0:
                    offsets[i, 0] = low
                at += 1
            offsets[i, 1] = max(offsets[i, 0], high)
            origins[i] = first - start
            kept[i] = begins and at == end and first == j and old[j] == new[i]
            if kept[i]:
                offsets[i] = spans[j]
        if at != end or j != stop - 1:
            return origins, kept, offsets, False
    return origins, kept, offsets, True


@njit(inline="always")
def _size(token_offsets, token):
    """The bytes of a token (an id of the vocabulary), one for a token without any; int64."""
    return max(token_offsets[token + 1] - token_offsets[token], 1)


@njit(inline="always")
def _is_lead(byte):
    """Whether a byte (uint8) begins a character."""
    return byte & 0xC0 != 0x80


@njit()
def _touched(token_bytes, begin, end):
    """The characters, int64, that the bytes from ``begin`` to ``end`` belong to.

    ``token_bytes``: uint8, of at least ``end`` bytes.
    """
    token_bytes = borrow(token_bytes)
    count = np.int64(0)
    for at in range(begin, end):
        count += at == begin or _is_lead(token_bytes[at])
    return count
