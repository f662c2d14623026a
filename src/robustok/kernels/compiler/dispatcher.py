"""numba's dispatchers of kernels: compiled once for all processes, and loaded from their files.

A compilation can take half a minute, so the user reads what he waits for.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numba import config
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.serialize import dumps

from robustok.kernels.compiler import cache
from robustok.runtime.environment import fork_waits_for

if TYPE_CHECKING:
    from numba.core.base import BaseContext
    from numba.core.dispatcher import Dispatcher
    from numba.core.types import Type

    Types = tuple[Type, ...]  # of the arguments of a kernel

# numba and LLVM are not usable in a child that is forked while another thread compiles.
fork_waits_for(global_compiler_lock)

DELAY = 1.0  # seconds; kernels that take less are compiled without a message
_is_announced = False  # one line for all kernels of a process

# `numba_068` replaces internals of this release. With another one kernels are compiled and loaded
# as numba does it: the results are the same, and a first call takes two to five times the time.
if numba.__version__.startswith("0.68."):
    from robustok.kernels.compiler.numba_068 import dump, load, make_dispatcher, prepare
else:

    def make_dispatcher(function: Callable, options: dict[str, Any]) -> Dispatcher:
        """``numba.njit(**options)(function)``."""
        return numba.njit(**options)(function)

    def prepare(target_context: BaseContext) -> None:
        """Import the types and functions that numba knows, before code is loaded or compiled."""
        target_context.refresh()

    def dump(result: CompileResult) -> bytes:
        """Compiled code as bytes."""
        return dumps(result._reduce())

    def load(content: bytes, target_context: BaseContext) -> CompileResult:
        """The compiled code of `dump`."""
        return CompileResult._rebuild(target_context, *pickle.loads(content))


def make(function: Callable, options: dict[str, Any]) -> Callable:
    """numba's dispatcher of a kernel; under NUMBA_DISABLE_JIT=1 a Python function."""
    if config.DISABLE_JIT:
        return np.errstate(over="ignore", divide="ignore", invalid="ignore")(function)
    options = dict(options)
    is_cached = options.pop("cache", False)
    dispatcher = make_dispatcher(function, options)
    if is_cached:
        dispatcher._cache = KernelCache(function, dispatcher)
    return dispatcher


class KernelCache:
    """The cache of one kernel, in place of numba's, which unpickles files without any check.

    It replaces ``compile`` of the dispatcher too, so that one process compiles and the user reads
    for what he waits, and both only where no file has the code.
    """

    cache_path = None  # of `dispatcher.stats`; see `cache.cache_directory`

    def __init__(self, function: Callable, dispatcher: Dispatcher) -> None:
        self._name = f"{function.__module__.removeprefix('robustok.kernels.')}.{function.__name__}"
        self._compile_or_load = dispatcher.compile
        self._context = dispatcher.targetctx
        self._overloads = dispatcher.overloads
        self._result: CompileResult | None = (
            None  # loaded for `load_overload`, which `compile` calls
        )
        dispatcher.compile = self.compile

    def compile(self, types: Types) -> Any:
        """``Dispatcher.compile``: the entry point for argument types, loaded or compiled."""
        with global_compiler_lock:
            prepare(self._context)
            if types in self._overloads or self._load(types):
                return self._compile_or_load(types)
            start = time.monotonic()
            with cache.one_process(self._file(types)):
                if self._load(types):  # another process has compiled meanwhile
                    _leave_to_other(time.monotonic() - start)
                    return self._compile_or_load(types)
                with message(self._name):
                    return self._compile_or_load(types)

    def load_overload(self, types: Types, target_context: BaseContext) -> CompileResult | None:
        """The compiled code that `compile` has loaded, or None."""
        result, self._result = self._result, None
        return result

    def save_overload(self, types: Types, result: CompileResult) -> None:
        """Keep compiled code where it can be written, unless it contains addresses."""
        if not result.library.has_dynamic_globals:
            cache.write(self._file(types), dump(result))

    def _load(self, types: Types) -> bool:
        content = cache.read(self._file(types))
        if content is not None:
            self._result = load(content, self._context)
        return content is not None

    def _file(self, types: Types) -> str:
        digest = hashlib.sha256(repr((self._name, types)).encode()).hexdigest()
        return f"{self._name}.{digest[:16]}"


@contextmanager
def message(kernel: str) -> Iterator[None]:
    """Context of a compilation that may take long: says so on stderr, one line in a process."""
    timer = threading.Timer(DELAY, _announce, (kernel,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _leave_to_other(waited: float) -> None:
    """Print no line where another process that starts at once has printed it."""
    global _is_announced
    _is_announced |= waited > DELAY


# What the kernels of a module are for; those of others are for several schemes.
_USES = {
    "uniform_k": "uniform-k",
    "stochastok": "stochastok",
    "stochastok_uniform": "stochastok-uniform",
    "dropout": "bpe-dropout",
    **dict.fromkeys(("lattice", "counting", "blocks", "distances"), "counting"),
}


def _announce(kernel: str) -> None:
    global _is_announced
    if _is_announced:
        return
    _is_announced = True
    if cache.cache_directory() is None:
        why = (
            " in memory, in every process, for no cache directory is writable by this user alone:"
            " set NUMBA_CACHE_DIR to one"
        )
    else:
        why = ": the kernels of a scheme take 4 to 15 seconds, once"
    with suppress(OSError, ValueError, AttributeError):  # stderr is closed, or None
        use = _USES.get(kernel.partition(".")[0], "the draws of a scheme")
        sys.stderr.write(f"robustok: compiling {use}{why}\n")
        sys.stderr.flush()
