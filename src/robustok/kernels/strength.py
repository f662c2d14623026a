"""Compare tokenizations of one text: splits and distance.

A token of the new ids matches where the old ids have the same id at the same bytes. The distance is
the number of new tokens that match nothing; the splits are the boundaries within the text that only
the new ids have. Tokens without bytes count nothing.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.compiler.borrow import borrow
from robustok.kernels.compiler.jit import njit


@njit(cache=True, nogil=True, inline="always")
def match_rows(token_offsets, old, old_span, new, new_span, old_matches, new_matches):
    """Compare the ids of two spans, which spell the same bytes; returns distance and splits.

    ``token_offsets``: int64 [ids + 1], bytes before each token. ``old``, ``new``: int32 [ids],
    below the number of ids. ``old_span``, ``new_span``: begin and end within them, int64 [2] as a
    tuple. ``old_matches``, ``new_matches``: bool [ids of ``old``] and [ids of ``new``]: set to
    whether an id matches, true only in ``old_matches``; or empty, where nobody needs them.
    """
    a, a_end = old_span
    a_at, b_at, last = np.int64(0), np.int64(0), np.int64(0)
    distance, splits = np.int64(0), np.int64(0)
    for b in range(new_span[0], new_span[1]):
        begin = b_at
        b_at += token_offsets[new[b] + 1] - token_offsets[new[b]]
        if begin == b_at:
            continue
        while a < a_end and a_at < b_at:
            last = a_at
            a_at += token_offsets[old[a] + 1] - token_offsets[old[a]]
            a += 1
        matches = a_at == b_at and last == begin and old[a - 1] == new[b]
        distance += not matches
        splits += a_at != b_at
        if len(new_matches):
            new_matches[b] = matches
            if matches:
                old_matches[a - 1] = True
    return distance, splits


@njit(cache=True, nogil=True)
def first_other_text(token_bytes, token_offsets, old, old_offsets, new, new_offsets, draws):
    """The first new row whose bytes are not those of its old row, or -1.

    Row r of the new ids was drawn for row r // draws of the old ones. ``old``, ``new``: int32
    [ids of all rows]. ``old_offsets``, ``new_offsets``: int64 [rows + 1], where old has at least
    (new rows - 1) // draws + 1 rows. Others as in :func:`match_rows`.
    """
    token_bytes, token_offsets = borrow(token_bytes), borrow(token_offsets)
    old, new = borrow(old), borrow(new)
    for row in range(len(new_offsets) - 1):
        a, a_end = old_offsets[row // draws], old_offsets[row // draws + 1]
        p, p_end = np.int64(0), np.int64(0)  # bytes left of the current old token
        for b in range(new_offsets[row], new_offsets[row + 1]):
            for q in range(token_offsets[new[b]], token_offsets[new[b] + 1]):
                while p == p_end and a < a_end:
                    p, p_end = token_offsets[old[a]], token_offsets[old[a] + 1]
                    a += 1
                if p == p_end or token_bytes[p] != token_bytes[q]:
                    return np.int64(row)
                p += 1
        while p == p_end and a < a_end:
            p, p_end = token_offsets[old[a]], token_offsets[old[a] + 1]
            a += 1
        if p != p_end:
            return np.int64(row)
    return np.int64(-1)


@njit(cache=True, nogil=True)
def compare(token_offsets, old, old_offsets, new, new_offsets, draws, splits, distance):
    """Write the splits and the distance of each new row to ``splits`` and ``distance``.

    ``splits``, ``distance``: int64 [new rows]. ``old``, ``new``: int32 [ids], those of the old and
    the new rows. ``old_offsets``, ``new_offsets``: int64 [rows + 1], where row r of the new ids was
    drawn for row r // draws of the old ones. ``draws``: at least 1. A new row and its old one must
    spell the same bytes.
    """
    token_offsets, old, new = borrow(token_offsets), borrow(old), borrow(new)
    flags = np.empty(0, np.bool_)
    for row in range(len(new_offsets) - 1):
        old_span = old_offsets[row // draws], old_offsets[row // draws + 1]
        new_span = new_offsets[row], new_offsets[row + 1]
        distance[row], splits[row] = match_rows(
            token_offsets, old, old_span, new, new_span, flags, flags
        )
