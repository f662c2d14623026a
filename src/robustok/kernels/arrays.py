"""Copies of arrays, hashes of keys and a heap, inside kernels.

`slot_of` places integer keys in tables that are built once from a vocabulary. `hash_key` hashes
bytes and ids that come from input: its seed is random in every process, so nobody can choose texts
whose keys collide. No draw depends on a hash.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.compiler.jit import njit
from robustok.kernels.numbers import GOLDEN

_HALF = np.uint64(32)
_ODD = np.uint64(1)


@njit(cache=True, nogil=True, inline="always")
def copy_to(source, size, target, at):
    """Copy the first ``size`` values of ``source`` to ``target``, from index ``at`` on.

    A loop, since numba compiles the formatted error message of an assignment to a slice: a second
    for each kernel. ``source``: int32 [at least ``size``] or of any other dtype. ``target``: int32
    [at least ``at + size``] or of any other dtype.
    """
    for i in range(size):
        target[at + i] = source[i]


@njit(cache=True, nogil=True, inline="always")
def slot_of(key, mask):
    """The first slot to try for an integer ``key`` (Fibonacci hashing); int64 in 0..mask.

    ``mask``: the number of slots, a power of two, minus 1.
    """
    return np.int64((np.uint64(key) * GOLDEN) >> _HALF) & mask


@njit(cache=True, nogil=True, inline="always")
def hash_key(seed, key, start, end):
    """A hash of key[start:end], uint64.

    ``key``: uint8 [bytes], or int32 [ids], none of them negative.
    A polynomial whose factor follows from the secret ``seed``. Its high bits depend on the whole
    key, so they are folded into the low ones.
    """
    h = np.uint64(seed)
    factor = (h * GOLDEN) | _ODD
    for p in range(start, end):
        h = (h ^ np.uint64(key[p])) * factor
    return h ^ (h >> _HALF)


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
