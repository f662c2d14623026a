"""Copies of parts of arrays."""

from __future__ import annotations

from robustok.kernels.compiler.jit import njit


@njit(cache=True, nogil=True, inline="always")
def copy_to(source, size, target, at):
    """Copy the first ``size`` values of ``source`` to ``target``, from index ``at`` on.

    A loop, since numba compiles the formatted error message of an assignment to a slice: a second
    for each kernel. ``source``: int32 [at least ``size``] or of any other dtype. ``target``: int32
    [at least ``at + size``] or of any other dtype.
    """
    for i in range(size):
        target[at + i] = source[i]
