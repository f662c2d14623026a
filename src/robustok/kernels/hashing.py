"""Hash functions of the open-addressing tables.

:func:`slot_of` places integer keys in tables that are built once from a vocabulary.
:func:`hash_key` hashes bytes and ids that come from input: its seed is random in every process, so
nobody can choose texts whose keys collide. No draw depends on a hash.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.compiler.jit import njit
from robustok.kernels.random import GOLDEN

_HALF = np.uint64(32)
_ODD = np.uint64(1)


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
