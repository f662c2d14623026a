"""The environment of a process: locks and forks, the user's cache, memory, cores, variables."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401
import ctypes
import logging  # noqa: F401
import math
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


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

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_locks: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()

# Held while a name of the library or a draw imports a module: the import system's lock of a module
# stays locked in a child that is forked meanwhile.
import_lock = threading.RLock()

_waited_for: list[Any] = [import_lock]


def fork_waits_for(lock: object) -> None:
    """Let every later fork wait until no other thread holds ``lock``, which must be reentrant.

    For work that a child could not repeat, such as an unfinished compilation. A thread that holds
    ``lock`` acquires none of those named before it.
    """
    _waited_for.append(lock)


def _acquire_locks() -> None:
    for lock in _waited_for:
        lock.acquire()


def _release_locks() -> None:
    for lock in reversed(_waited_for):
        lock.release()


def _replace_locks() -> None:
    for lock in list(_locks):
        lock._lock = threading.RLock()


# What is registered last is called first. `logging` and `concurrent.futures` are imported above, so
# that a fork waits before it holds their locks, which an import or a compilation may need to end.
if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(
        before=_acquire_locks, after_in_parent=_release_locks, after_in_child=_release_locks
    )
    os.register_at_fork(after_in_child=_replace_locks)


class computed_once(Generic[T]):
    """An attribute computed when it is first read and kept in the instance's ``__dict__``.

    ``functools.cached_property`` without its lock, which on Python 3.11 all instances of the class
    share and a child inherits locked when it is forked while another thread computes. Threads that
    read the attribute at once may each compute it; all get the value of the first to finish.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> computed_once[T]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> computed_once[T] | T:
        if instance is None:  # read from the class, for its documentation
            return self
        return vars(instance).setdefault(self._name, self._compute(instance))


def user_cache() -> Path:
    """``robustok`` in the cache directory that the user or the system sets; it need not exist."""
    if sys.platform == "win32":
        root = os.environ.get("LOCALAPPDATA") or str(Path.home())
    elif sys.platform == "darwin":
        root = "~/Library/Caches"
    else:
        root = "~/.cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or root).expanduser() / "robustok"


def give_back_memory() -> None:
    """Return to the system what was allocated for a moment, where libc can.

    glibc otherwise keeps it in every process, as 150 MB after reading Llama 3's tokenizer.
    """
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def thread_limits(threads: int) -> dict[str, str]:
    """The environment variables that limit the threads of numerical libraries."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS")
    limits = dict.fromkeys(names, str(threads))
    return limits | ({"TOKENIZERS_PARALLELISM": "false"} if threads == 1 else {})


@contextmanager
def variables(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables for processes started inside the block.

    Libraries read some of them when they are imported, which is before a process runs our code.
    """
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def available_cores() -> int:
    """The cores this process may use: its affinity, and the CPU quota of its container."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _cgroup_quota())))


def _cgroup_quota(root: Path = Path("/sys/fs/cgroup"), process: Path = Path("/proc/self")) -> float:
    """The CPU quota in cores, of cgroup v2, infinite where there is none.

    A group's parents limit it too. In a container the group's path may not exist below ``root``,
    which is then the container's own group.
    """
    try:
        lines = (process / "cgroup").read_text().splitlines()
    except OSError:
        return math.inf
    quotas = [math.inf]
    for path in (line.removeprefix("0::/") for line in lines if line.startswith("0::/")):
        for group in (root / path, *(root / path).parents):
            with suppress(OSError, ValueError):  # no such group, or a quota of "max"
                quota, period = map(int, (group / "cpu.max").read_text().split())
                quotas.append(quota / period)
    return min(quotas)
