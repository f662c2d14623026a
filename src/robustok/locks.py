"""A lock that is free in a forked child process, even if a thread of the parent held it."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any


class ForkSafeLock:
    """Reentrant lock for a ``with`` statement, replaced by a new one in a forked child.

    Only the forking thread continues in the child, so a lock that another thread held would never
    be released there. Data that such a thread was changing may be incomplete: replace data behind
    this lock in one assignment, or mark it while it is changed.
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
