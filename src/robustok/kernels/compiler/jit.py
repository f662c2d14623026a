"""``njit`` for all kernels: cached on disk where a directory for it can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import config

from robustok.kernels.compiler.cache import cache_directory
from robustok.locks import ForkSafeLock

# `numba_068` replaces internals of this release. With another one kernels are compiled and loaded
# as numba does it: the results are the same, and a first call takes about twice the time.
_RELEASE = "0.68."
_lock = ForkSafeLock()


def njit(**options: Any) -> Callable[[Callable], Any]:
    """``numba.njit`` that keeps compiled code in `cache.cache_directory`, else in memory alone.

    numba reads the directory of the cache when it makes a cache, so the setting is changed for that
    moment only, and other kernels of the process keep theirs. Under NUMBA_DISABLE_JIT=1 the
    function stays Python with the arithmetic of compiled code: uint64 wraps around and 1 / 0 is
    inf, without numpy's warnings.
    """
    if config.DISABLE_JIT:
        return np.errstate(over="ignore", divide="ignore", invalid="ignore")
    cached = options.pop("cache", False)

    def decorate(function: Callable) -> Any:
        dispatcher = _dispatcher(function, options)
        directory = cache_directory() if cached else None
        if directory is not None:
            with _lock:
                setting, config.CACHE_DIR = config.CACHE_DIR, str(directory)
                try:
                    dispatcher.enable_caching()
                finally:
                    config.CACHE_DIR = setting
        return dispatcher

    return decorate


def _dispatcher(function: Callable, options: dict[str, Any]) -> Any:
    """``numba.njit(**options)(function)``, faster to compile and to load with a known release."""
    if not numba.__version__.startswith(_RELEASE):
        return numba.njit(**options)(function)
    from robustok.kernels.compiler.numba_068 import make_dispatcher

    return make_dispatcher(function, options)
