"""A lock that is free in a forked child process, whatever thread held it in the parent."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any


class ForkSafeLock:
    """Reentrant lock for a ``with`` statement, replaced by a new one in a forked child.

    Of the parent's threads only the one that forks lives on in the child, so a lock that another
    one held would never be released there. What such a thread was changing may be half done: data
    behind this lock must be replaced in one assignment, or be marked while it is changed.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: Any) -> None:
        self._lock.release()


_locks: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _replace_locks() -> None:
    for lock in list(_locks):
        lock._lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_replace_locks)
