"""The environment of a process: optional packages, releases, the user's cache, locks, memory."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401
import contextlib
import ctypes
import logging  # noqa: F401
import os
import platform
import sys
import threading
import weakref
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, overload

from robustok.version import __version__

T = TypeVar("T")


class Extra(NamedTuple):
    purpose: str
    extra: str  # extra of robustok, or several; empty if the package is installed by its own name

    def install(self, package: str) -> str:
        """The command that installs a package.

        >>> EXTRAS["torch"].install("torch")
        "pip install 'robustok[train]'"
        """
        return f"pip install 'robustok[{self.extra}]'" if self.extra else f"pip install {package}"


_TRAIN = "training, scoring and evaluation"
# All that such a command needs: these packages are imported first.
_STUDY = Extra("studies, and commands that measure a model", "study,train,words,report")
EXTRAS = {
    "click": Extra("the command line", "cli"),
    "rich": Extra("the command line", "cli"),
    "gigatoken": Extra("fast canonical encoding", "fast"),
    "torch": Extra(_TRAIN, "train"),
    "transformers": Extra(_TRAIN, "train"),
    "accelerate": Extra("training", "train"),
    "datasets": Extra("benchmarks and text from the hub", "train"),
    "peft": Extra("LoRA", "train"),
    "safetensors": Extra("saving models", "train"),
    "pydantic": _STUDY,
    "yaml": _STUDY,
    "matplotlib": Extra("figures", "report"),
    "jinja2": Extra("reports", "report"),
    "pandas": Extra("reports", "report"),
    "wordfreq": Extra("frequent words", "words"),
    "pyarrow": Extra("Parquet files", "corpus"),
    "ray": Extra("corpora on a cluster", "ray"),
    "lm_eval": Extra("lm-eval's tasks", "lm-eval"),
    "gguf": Extra("the models smollm2-135m and gemma3-270m", "small"),
    "starlette": Extra("the playground", "play"),
    "uvicorn": Extra("the playground", "play"),
    "sentencepiece": Extra("SentencePiece .model files", ""),
    "tiktoken": Extra("tiktoken encodings", ""),
}


def missing_line(package: str) -> str:
    """The error message for a package of EXTRAS that is not installed.

    >>> missing_line("ray")
    "this needs ray: pip install 'robustok[ray]'"
    """
    return f"this needs {package}: {EXTRAS[package].install(package)}"


def require(*packages: str) -> None:
    """Raise ModuleNotFoundError with :func:`missing_line` for the first package not installed.

    Args:
        *packages: names of importable modules, each a key of ``EXTRAS``.
    """
    for package in packages:
        if find_spec(package) is None:
            raise ModuleNotFoundError(missing_line(package), name=package)


def names_on_use(module: str, *names: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package that has names of a module, imported when one is used.

    >>> names_on_use("robustok.errors")("RobustokError").__name__
    'RobustokError'

    ``names`` are those that it has, by default all of the module.
    """

    def find(name: str) -> Any:
        # Python asks every package for names such as __path__, and `import *` for __all__.
        is_internal = name.startswith("__") and name != "__all__"
        if not is_internal and (not names or name in names):
            with import_lock:
                own = import_module(module)
            if hasattr(own, name):
                return getattr(own, name)
        package = module.rpartition(".")[0]
        # Python's own line ends in a name that is alike, if it knows the package.
        raise AttributeError(
            f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package]
        )

    return find


PACKAGES = ("numpy", "numba", "tokenizers", "gigatoken", "torch", "transformers")


@cache
def versions() -> dict[str, str]:
    """The versions of robustok, Python and the packages that a result depends on.

    A package that is not installed is left out.
    """
    from importlib import metadata  # half of the time of `import robustok`

    releases = {"robustok": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            releases[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return releases


def user_cache() -> Path:
    """``robustok`` in the cache directory that the user or the system sets; it need not exist."""
    if sys.platform == "win32":
        root = os.environ.get("LOCALAPPDATA") or str(Path.home())
    elif sys.platform == "darwin":
        root = "~/Library/Caches"
    else:
        root = "~/.cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or root).expanduser() / "robustok"


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


def give_back_memory() -> None:
    """Return to the system what was allocated for a moment, where libc can.

    glibc otherwise keeps it in every process: 150 MB after reading Llama 3's tokenizer, 60 after
    gigatoken has loaded it. Takes about a millisecond, and more where there is much to return.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
