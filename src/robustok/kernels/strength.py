"""Splits and distance of drawn ids from canonical ones.

Row r of the new ids was drawn for row r // draws of the old ones. Arrays of both kernels:
token_offsets: int64 [ids + 1], bytes before each token; token_bytes: uint8, all tokens' bytes;
old, new: int32 [total], ids below the number of ids; old_offsets, new_offsets: int64 [rows + 1],
where old has at least (new rows - 1) // draws + 1 rows.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.jit import njit
from robustok.kernels.memory import borrow


@njit(cache=True, nogil=True)
def first_other_text(token_bytes, token_offsets, old, old_offsets, new, new_offsets, draws):
    """The first new row whose bytes are not those of its old row, or -1."""
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
    """Add the splits and the distance of each new row to ``splits`` and ``distance``.

    splits, distance: int64 [new rows], zeros. The rows must spell the same bytes. Ids without
    bytes count nothing.
    """
    token_offsets, old, new = borrow(token_offsets), borrow(old), borrow(new)
    for row in range(len(new_offsets) - 1):
        a, a_end = old_offsets[row // draws], old_offsets[row // draws + 1]
        a_at, b_at, last = np.int64(0), np.int64(0), np.int64(0)
        for b in range(new_offsets[row], new_offsets[row + 1]):
            begin = b_at
            b_at += token_offsets[new[b] + 1] - token_offsets[new[b]]
            if begin == b_at:
                continue
            while a < a_end and a_at < b_at:
                last = a_at
                a_at += token_offsets[old[a] + 1] - token_offsets[old[a]]
                a += 1
            if a_at != b_at:
                splits[row] += 1
                distance[row] += 1
            elif last != begin or old[a - 1] != new[b]:
                distance[row] += 1
