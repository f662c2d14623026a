"""A binary min-heap of int64 keys in an array."""

from __future__ import annotations

import numpy as np

from robustok.kernels.compiler.jit import njit


@njit(cache=True, nogil=True, inline="always")
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


@njit(cache=True, nogil=True, inline="always")
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
