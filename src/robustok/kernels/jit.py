"""``njit`` for all kernels: cached on disk where a directory for it can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np


def njit(**options: Any) -> Callable[[Callable], Any]:
    """``numba.njit`` that compiles in memory where no cache directory is writable.

    numba raises RuntimeError for ``cache=True`` where neither ``NUMBA_CACHE_DIR``, the directory of
    the source, nor the user's cache directory can be written, as in a read-only container. Under
    NUMBA_DISABLE_JIT=1 the function stays Python with the arithmetic of compiled code: uint64 wraps
    around and 1 / 0 is inf, without numpy's warnings.
    """
    if numba.config.DISABLE_JIT:
        return np.errstate(over="ignore", divide="ignore", invalid="ignore")

    def decorate(function: Callable) -> Any:
        try:
            return numba.njit(**options)(function)
        except RuntimeError as e:
            if "no locator available" not in str(e):
                raise
            return numba.njit(**{**options, "cache": False})(function)

    return decorate
