"""First use of kernels: one process at a time compiles, and the user reads why it takes long.

Numba's cache has no lock: processes that start at once would each compile the same kernels, and two
that compile one function for different types could write the same file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

from numba import config

from robustok.kernels.compiler.cache import cache_directory, kernels_are_cached
from robustok.locks import ForkSafeLock

_PATIENCE = 120  # seconds to wait for another process; then both compile
_NOTHING = nullcontext()
_compiled: set[str] = set()  # kernels that this process has used
_announced = False
_threads = ForkSafeLock()
_depth = 0  # calls of `one_process` that are within each other


def first_use(kernels: str) -> AbstractContextManager[None]:
    """Context of a call that may compile ``kernels``, the name of a scheme or of a part.

    The first process that enters it compiles, and those that start meanwhile wait and then load the
    result. Costs nothing after the first call of a process.
    """
    return _NOTHING if kernels in _compiled else _compiling(kernels)


@contextmanager
def _compiling(kernels: str) -> Iterator[None]:
    announce_compilation()
    directory = None if config.DISABLE_JIT else cache_directory()
    marker = directory / f"{kernels}.compiled" if directory else None
    if directory is None or marker is None or marker.exists():
        yield
    else:
        with one_process(directory):
            yield
            with suppress(OSError):
                marker.touch()
    _compiled.add(kernels)


@contextmanager
def one_process(directory: Path) -> Iterator[None]:
    """Hold the lock of a cache directory; without it where the file system has no locks.

    Reentrant, since a scheme in Python may draw from another one. Threads of this process take
    turns.
    """
    from filelock import FileLock, Timeout

    global _depth
    with _threads, ExitStack() as stack:
        if not _depth:
            with suppress(Timeout, OSError, NotImplementedError):
                stack.enter_context(FileLock(directory / "compiling.lock", timeout=_PATIENCE))
        _depth += 1
        try:
            yield
        finally:
            _depth -= 1


def announce_compilation() -> None:
    """Say on stderr, once a process, that kernels are about to be compiled."""
    global _announced
    if _announced:
        return
    _announced = True
    if config.DISABLE_JIT:
        return
    if cache_directory() is None:
        sys.stderr.write(
            "robustok: compiling its kernels in memory, which takes up to a minute in every "
            "process, for no cache directory is writable: set NUMBA_CACHE_DIR to one\n"
        )
    elif not kernels_are_cached():
        sys.stderr.write(
            "robustok: compiling its kernels, which happens once and takes up to a minute\n"
        )
    sys.stderr.flush()
