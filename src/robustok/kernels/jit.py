"""``njit`` for all kernels: cached on disk where a directory for it can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import config

from robustok.kernels.cache import cache_directory
from robustok.locks import ForkSafeLock

_lock = ForkSafeLock()


def njit(**options: Any) -> Callable[[Callable], Any]:
    """``numba.njit`` that keeps compiled code in `cache.cache_directory`, else in memory alone.

    numba reads the directory of the cache when it decorates a function, so the setting is changed
    for that moment only, and other kernels of the process keep theirs. Under NUMBA_DISABLE_JIT=1
    the function stays Python with the arithmetic of compiled code: uint64 wraps around and 1 / 0 is
    inf, without numpy's warnings.
    """
    if config.DISABLE_JIT:
        return np.errstate(over="ignore", divide="ignore", invalid="ignore")

    def decorate(function: Callable) -> Any:
        directory = cache_directory()
        if directory is None:
            return numba.njit(**{**options, "cache": False})(function)
        with _lock:
            setting, config.CACHE_DIR = config.CACHE_DIR, str(directory)
            try:
                return numba.njit(**options)(function)
            finally:
                config.CACHE_DIR = setting

    return decorate
