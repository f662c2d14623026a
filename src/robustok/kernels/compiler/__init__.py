"""``njit`` and ``borrow``: what kernels are compiled with, imported without numba.

The import of numba takes 0.4 seconds of processor time and 60 MB. A process pays for it at the
first call of a kernel, not where it imports robustok.

`dispatcher` loads or compiles a kernel at its first call, and `cache` keeps the files of compiled
code. `borrowed` is the type of arrays without reference counts. `numba_068` shortens compilation
and loading with release 0.68 of numba.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from robustok.runtime.environment import import_lock


def njit(**options: Any) -> Callable[[Callable], Any]:
    """``numba.njit`` for kernels, which release the interpreter lock, with its options.

    Compiled code is kept by `cache`, unless ``cache=False``. Under NUMBA_DISABLE_JIT=1 the function
    stays Python with the arithmetic of compiled code: uint64 wraps around and 1 / 0 is inf, without
    numpy's warnings.
    """
    return lambda function: Kernel(function, {"cache": True, "nogil": True, **options})


def borrow(value: Any) -> Any:
    """An array, or a tuple of arrays and other values, whose arrays hold no reference.

    The caller of a kernel keeps the arguments alive while it runs, so inside they need no counting:
    every kernel borrows its arguments once, at the top. In Python it is the same value.

    Borrow arguments only. An array that a kernel allocates is freed after the last use of its own
    name: ``x = borrow(x)`` frees it there, and every later access reads freed memory. Pass it to
    another kernel as an argument, which borrows it.
    """
    return value


class Kernel:
    """A function that numba loads or compiles for the types of the arguments it is called with.

    All attributes but those of the function are attributes of numba's dispatcher, which is made
    when it is first needed (`dispatcher.make`). Where numba compiles a call of this kernel by
    another one, it reads there the type, the options and the Python function.
    """

    def __init__(self, function: Callable, options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self._options = options
        self._dispatcher: Any = None

    def __call__(self, *arguments: Any) -> Any:
        if self._dispatcher is None:
            self.prepare()
        return self._dispatcher(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python looks for in any object
            raise AttributeError(name)
        self.prepare()
        return getattr(self._dispatcher, name)

    def prepare(self) -> None:
        """Import numba and make the dispatcher, unless another call has."""
        with import_lock:
            import numpy.ma  # noqa: F401  # numba's `typeof` does in the first call

            from robustok.kernels.compiler import borrowed, dispatcher

        with dispatcher.global_compiler_lock:
            if self._dispatcher is None:
                borrowed.declare(borrow)
                self._dispatcher = dispatcher.make(self.__wrapped__, self._options)
