"""Tell the user that kernels are being compiled, so that the first draw takes long."""

from __future__ import annotations

import sys

from numba import config

from robustok.kernels.cache import cache_directory, kernels_are_cached

_announced = False


def announce_compilation() -> None:
    """Say on stderr, once a process, that kernels are about to be compiled."""
    global _announced
    if _announced:
        return
    _announced = True
    if config.DISABLE_JIT:
        return
    directory = cache_directory()
    if directory is None:
        sys.stderr.write(
            "robustok: compiling its kernels in memory, which takes up to a minute in every "
            "process, for no cache directory is writable: set NUMBA_CACHE_DIR to one\n"
        )
    elif not kernels_are_cached():
        sys.stderr.write(
            "robustok: compiling its kernels, which happens once and takes up to a minute\n"
        )
    sys.stderr.flush()
