"""How far drawn ids lie from canonical ones: splits, merged boundaries and distance."""

from __future__ import annotations

import numpy as np

from robustok.kernels.jit import njit
from robustok.kernels.memory import borrow


@njit(cache=True, nogil=True)
def compare(token_offsets, old, old_offsets, new, new_offsets, draws, splits, distance):
    """Write both measures of every drawn row; returns the first row of another text, or -1.

    Row r of the new ids was drawn for row r // draws of the old ones.
    """
    token_offsets, old, new = borrow(token_offsets), borrow(old), borrow(new)
    for row in range(len(new_offsets) - 1):
        a, a_end = old_offsets[row // draws], old_offsets[row // draws + 1]
        a_at, b_at, last = np.int64(0), np.int64(0), np.int64(0)
        for b in range(new_offsets[row], new_offsets[row + 1]):
            begin = b_at
            b_at += token_offsets[new[b] + 1] - token_offsets[new[b]]
            while a < a_end and a_at < b_at:
                last = a_at
                a_at += token_offsets[old[a] + 1] - token_offsets[old[a]]
                a += 1
            if a_at != b_at:
                splits[row] += 1
                distance[row] += 1
            elif last != begin or old[a - 1] != new[b]:
                distance[row] += 1
        if a != a_end or a_at != b_at:
            return np.int64(row)
    return np.int64(-1)
