"""Kernels that take less time to compile and to load, by internals of numba 0.68."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding
from numba.core import environment, types
from numba.core.caching import FunctionCache

from robustok.kernels.compiler.linking import KernelCompiler
from robustok.kernels.compiler.runtime import initialize_runtime


def make_dispatcher(function: Callable, options: dict[str, Any]) -> Any:
    """``numba.njit(**options)(function)``, whose cache is a `KernelCache` once it is enabled."""
    # Kernels that call this one compile it without the code that converts Python objects.
    variant = {**options, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    callee: Any = numba.njit(**variant)(function)
    dispatcher: Any = numba.njit(**variant, pipeline_class=KernelCompiler)(function)
    # Extensions of other packages define types that kernels do not take.
    dispatcher._compilation_chain_init_hook = _nothing
    dispatcher.get_call_template = partial(_call_template, callee)
    dispatcher.get_overload = callee.get_overload
    dispatcher.enable_caching = partial(_enable_caching, dispatcher, function)
    return dispatcher


def _enable_caching(dispatcher: Any, function: Callable) -> None:
    dispatcher._cache = KernelCache(function)


def _call_template(callee: Any, args: Any, kws: Any) -> Any:
    """numba's template of a call; a constant argument does not need a function of its own."""
    return callee.get_call_template(
        [types.unliteral(argument) for argument in args],
        {name: types.unliteral(argument) for name, argument in kws.items()},
    )


def _nothing() -> None:
    """In place of the import of all extensions of numba."""


class KernelCache(FunctionCache):
    """numba's cache, which loads compiled code without numba's compiler.

    numba prepares its compiler before it looks for a cached function: it imports the
    implementations of all that it can compile, scipy's linear algebra, and the extensions of
    installed packages (awkward, on which gigatoken depends). That takes three quarters of the time
    of a first call and 80 MB. Compiled code needs only numba's runtime; where the cache has no such
    code, numba prepares its compiler when it starts to compile.

    numba also keeps the LLVM module of each function, for functions that inline it. Kernels are
    inlined from their sources (see `make_dispatcher`), so only the names that the module defines
    are kept.
    """

    def __init__(self, function: Callable) -> None:
        super().__init__(function)
        cache_file: Any = self._cache_file
        cache_file._load_data, self._save_data_as = self._load_data, cache_file._save_data
        cache_file._save_data = self._save_data

    def _load_data(self, name: str) -> Any:
        """`IndexDataCacheFile._load_data` without an import of modules that numba compiled."""
        return _Unpickler(io.BytesIO(Path(self._cache_path, name).read_bytes())).load()

    def _save_data(self, name: str, data: Any) -> None:
        """`IndexDataCacheFile._save_data` without the code of the LLVM module."""
        (library, kind, (object_code, module)), *rest = data
        self._save_data_as(name, ((library, kind, (object_code, _names_of(module))), *rest))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The cached code for these argument types, or None."""
        initialize_runtime(target_context)
        with self._guard_against_spurious_io_errors():
            result = self._load_overload(sig, target_context)
            if result is not None:
                result.library._shared_module = None  # raises an error where numba would inline it
            return result


def _names_of(bitcode: bytes) -> bytes:
    """Bitcode of a module that defines the same functions, without their code."""
    functions = binding.parse_bitcode(bitcode).functions
    names = [function.name for function in functions if not function.is_declaration]
    text = "\n".join(f'define void @"{name}"() {{ unreachable }}' for name in names)
    return binding.parse_assembly(text).as_bitcode()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (environment.__name__, "_rebuild_env"):
            return _environment
        return super().find_class(module, name)


def _environment(module: str, constants: list[Any], name: str) -> Any:
    """The constants of a compiled function.

    numba imports the module of the function, for its globals, which only code in object mode uses.
    """
    known = environment.lookup_environment(name)
    if known is not None:
        return known
    namespace = vars(sys.modules[module]) if module in sys.modules else {"__name__": module}
    result = environment.Environment(namespace)
    result.consts[:] = constants
    result.env_name = name
    environment.Environment._memo[name] = result
    return result
