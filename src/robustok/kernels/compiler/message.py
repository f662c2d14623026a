"""What the user reads while a kernel is compiled, which can take half a minute."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from robustok.kernels.compiler.cache import cache_directory

DELAY = 1.0  # seconds; kernels that take less are compiled without a message
_running = False  # changed under numba's lock; a kernel may compile those that it calls


@contextmanager
def message(kernel: str) -> Iterator[None]:
    """Context of a compilation that may take long: says so on stderr, and for how long it runs.

    One line, or on a terminal and in a notebook the seconds that passed, until it is done.
    """
    global _running
    if _running:
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_show, args=(kernel, done), daemon=True)
    _running = True
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        _running = False


def _show(kernel: str, done: threading.Event) -> None:
    start = time.monotonic()
    if done.wait(DELAY):
        return
    if cache_directory() is None:
        why = (
            " in memory, in every process, for no cache directory is writable by this user alone:"
            " set NUMBA_CACHE_DIR to one"
        )
    else:
        why = ", which happens once"
    line = f"robustok: compiling the kernel {kernel}{why}"
    with suppress(OSError, ValueError, AttributeError):  # stderr is closed, or None
        if not _is_interactive(sys.stderr):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
            return
        is_done = False
        while not is_done:
            sys.stderr.write(f"\r{line} ({time.monotonic() - start:.0f} s)")
            sys.stderr.flush()
            is_done = done.wait(1)
        sys.stderr.write("\n")
        sys.stderr.flush()


def _is_interactive(stream: object) -> bool:
    """Whether a stream is a terminal or the output of a notebook's cell."""
    is_notebook = type(stream).__module__.startswith("ipykernel.")
    return is_notebook or bool(getattr(stream, "isatty", bool)())
