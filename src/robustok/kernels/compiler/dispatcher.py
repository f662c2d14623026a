"""numba's dispatchers of kernels: compiled once for all processes, and loaded from their files.

The first import of numba: see `jit`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import config
from numba.core.compiler_lock import global_compiler_lock

from robustok.kernels.compiler import (
    borrowed,  # noqa: F401 (tells numba what `borrow` is)
    cache,
)
from robustok.kernels.compiler.message import message

# `numba_068` replaces internals of this release. With another one kernels are compiled and loaded
# as numba does it: the results are the same, and a first call takes two to five times the time.
if numba.__version__.startswith("0.68."):
    from robustok.kernels.compiler.numba_068 import dump, load, make_dispatcher, prepare
else:
    from robustok.kernels.compiler.numba_plain import dump, load, make_dispatcher, prepare


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

    def __init__(self, function: Callable, dispatcher: Any) -> None:
        self._name = f"{function.__module__.removeprefix('robustok.kernels.')}.{function.__name__}"
        self._compile_or_load = dispatcher.compile
        self._context = dispatcher.targetctx
        self._overloads = dispatcher.overloads
        self._result: Any = None  # loaded for `load_overload`, which `compile` calls
        dispatcher.compile = self.compile

    def compile(self, types: Any) -> Any:
        """``Dispatcher.compile``: the entry point for argument types, loaded or compiled."""
        with global_compiler_lock:
            prepare(self._context)
            if types in self._overloads or self._load(types):
                return self._compile_or_load(types)
            with message(self._name), cache.one_process(self._file(types)):
                self._load(types)  # where another process has compiled meanwhile
                return self._compile_or_load(types)

    def load_overload(self, types: Any, target_context: Any) -> Any:
        """The compiled code that `compile` has loaded, or None."""
        result, self._result = self._result, None
        return result

    def save_overload(self, types: Any, result: Any) -> None:
        """Keep compiled code where it can be written, unless it contains addresses."""
        if not result.library.has_dynamic_globals:
            cache.write(self._file(types), dump(result))

    def _load(self, types: Any) -> bool:
        content = cache.read(self._file(types))
        if content is not None:
            self._result = load(content, self._context)
        return content is not None

    def _file(self, types: Any) -> str:
        digest = hashlib.sha256(repr((self._name, types)).encode()).hexdigest()
        return f"{self._name}.{digest[:16]}"
