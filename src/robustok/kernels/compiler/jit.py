"""``njit`` for all kernels, which imports numba at the first call of one.

The import of numba takes 0.4 seconds of processor time and 60 MB. A process pays for it at the
first call of a kernel, not where it imports robustok.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any


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
        from robustok.kernels.compiler.dispatcher import global_compiler_lock, make

        with global_compiler_lock:
            if self._dispatcher is None:
                self._dispatcher = make(self.__wrapped__, self._options)


def njit(**options: Any) -> Callable[[Callable], Any]:
    """``numba.njit`` for kernels, with its options; ``cache=True`` keeps compiled code in `cache`.

    Under NUMBA_DISABLE_JIT=1 the function stays Python with the arithmetic of compiled code: uint64
    wraps around and 1 / 0 is inf, without numpy's warnings.
    """
    return lambda function: Kernel(function, options)
