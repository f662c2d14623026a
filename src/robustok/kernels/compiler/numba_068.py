"""Kernels that take less time to compile and to load, by internals of numba 0.68.

Numba prepares its compiler before it looks for compiled code: it imports the implementations of all
that it can compile, scipy's linear algebra, and the extensions of installed packages (awkward, on
which gigatoken depends). That takes four fifths of the time of a first call and 80 MB. Compiled
code needs only numba's runtime; where there is none, numba prepares its compiler when it starts to
compile.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numba
from llvmlite import binding
from numba.core import environment, types
from numba.core.compiler import CompileResult
from numba.core.runtime import nrtdynmod, rtsys
from numba.core.serialize import dumps

from robustok.kernels.compiler import cache
from robustok.kernels.compiler.borrowed import plain
from robustok.kernels.compiler.linking import KernelCompiler

_RUNTIME = "runtime"  # file of numba's runtime functions


def make_dispatcher(function: Callable, options: dict[str, Any]) -> Any:
    """``numba.njit(**options)(function)``, compiled by `linking.KernelCompiler`."""
    # Kernels that call this one compile it without the code that converts Python objects.
    variant = {**options, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    callee: Any = numba.njit(**variant)(function)
    dispatcher: Any = numba.njit(**variant, pipeline_class=KernelCompiler)(function)
    # Extensions of other packages define types that kernels do not take.
    dispatcher._compilation_chain_init_hook = _nothing
    dispatcher.get_call_template = partial(_call_template, callee)
    dispatcher.get_overload = callee.get_overload
    return dispatcher


def prepare(target_context: Any) -> None:
    """Initialize numba's runtime from the functions that an earlier process compiled.

    Every process that calls compiled code needs them (reference counts of arrays). numba compiles
    them anew in each, with all of LLVM's optimizer and code generator: 0.1 s, and 25 MB of LLVM's
    code that are otherwise not read. Runs under numba's lock.
    """
    compile_functions = nrtdynmod.compile_nrt_functions
    nrtdynmod.compile_nrt_functions = _runtime_library
    try:
        rtsys.initialize(target_context)
    finally:
        nrtdynmod.compile_nrt_functions = compile_functions


def dump(result: Any) -> bytes:
    """Compiled code as bytes, without its LLVM module.

    Numba keeps that for functions that inline it. Kernels are inlined from their sources (see
    `make_dispatcher`), so only the names that the module defines are kept.
    """
    (library, kind, (object_code, module)), *rest = result._reduce()
    return dumps(((library, kind, (object_code, _names_of(module))), *rest))


def load(content: bytes, target_context: Any) -> Any:
    """The compiled code of `dump`."""
    result = CompileResult._rebuild(target_context, *_Unpickler(io.BytesIO(content)).load())
    result.library._shared_module = None  # raises an error where numba would inline it
    return result


def _call_template(callee: Any, args: Any, kws: Any) -> Any:
    """numba's template of a call; constants and borrowed arrays need no function of their own."""
    return callee.get_call_template(
        [plain(types.unliteral(argument)) for argument in args],
        {name: plain(types.unliteral(argument)) for name, argument in kws.items()},
    )


def _nothing() -> None:
    """In place of the import of all extensions of numba."""


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


def _runtime_library(target_context: Any) -> Any:
    """The compiled functions, loaded from their file or compiled and kept there."""
    content = cache.read(_RUNTIME)
    if content is not None:
        return target_context.codegen().unserialize_library(pickle.loads(content))
    module, library = nrtdynmod.create_nrt_module(target_context)
    library.enable_object_caching()
    library.add_ir_module(module)
    library.finalize()
    cache.write(_RUNTIME, pickle.dumps(library.serialize_using_object_code()))
    return library
