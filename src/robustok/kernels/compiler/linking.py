"""Compilation of a kernel as one program: optimized and translated to machine code once.

numba optimizes every function that a kernel calls, with all that it calls in turn, and translates
it to machine code, before it links the result into the caller and optimizes it again. Here the
functions that a kernel calls are linked into it as they are, and the kernel alone is optimized and
translated.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any

from numba.core import entrypoints, errors, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.environment import lookup_environment
from numba.core.registry import cpu_target
from numba.core.runtime.context import NRTContext
from numba.core.typing import typeof
from numba.core.typing.npydecl import NumpyRulesArrayOperator

_ABSENT = object()
_numpy_operation = NumpyRulesArrayOperator.generic
_CONSTANTS = "_ZN08NumbaEnv"  # prefix of the global variable of a function's constants
# numba formats messages of types that it tries without success; colors take a twelfth of the time.
_PLAIN = SimpleNamespace(
    code=str, errmsg=str, filename=str, indicate=str, highlight=str, reset=str
)  # fmt: skip


class KernelCompiler(Compiler):
    """numba's compiler for a function that Python calls. Runs under numba's lock."""

    def compile_extra(self, func: Callable) -> Any:
        codegen: Any = self.state.targetctx.codegen()
        library = _KernelLibrary(codegen, func.__qualname__)
        library.enable_object_caching()
        self.state.library = library
        with _linking(codegen):
            result = super().compile_extra(func)
        for variable in library._final_module.global_variables:
            constants = None
            if variable.name.startswith(_CONSTANTS):
                constants = lookup_environment(variable.name)
            if constants is not None:
                codegen.set_env(variable.name, constants)
        return result

    def define_pipelines(self) -> Any:
        # Set after numba has copied the flags for functions of its own that the kernel calls: it
        # compiles those once for each combination of flags.
        self.state.flags.no_cpython_wrapper = False
        return super().define_pipelines()


@contextmanager
def _linking(codegen: Any) -> Iterator[None]:
    """Context in which numba compiles every function as a `_LinkedLibrary`, with less work.

    Without garbage collection, which would take a tenth of the time.
    """
    replaced = (
        (codegen, "_library_class", _LinkedLibrary),
        (cpu_target.target_context, "create_cfunc_wrapper", _nothing),  # an entry for callers in C
        (entrypoints, "init_all", _nothing),  # extensions of other packages
        (errors, "_termcolor_inst", _PLAIN),
        (typeof, "_termcolor", _PLAIN),
        (NRTContext, "get_meminfos", _meminfos),
        (NumpyRulesArrayOperator, "generic", _type_of_array_operation),
    )
    before = [vars(owner).get(name, _ABSENT) for owner, name, _ in replaced]
    collects = gc.isenabled()
    gc.disable()
    for owner, name, value in replaced:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for (owner, name, _), value in zip(replaced, before, strict=True):
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        if collects:
            gc.enable()


def _nothing(*arguments: Any) -> None:
    """In place of what a kernel does not need."""


def _meminfos(context: NRTContext, builder: Any, kind: Any, value: Any) -> list[tuple[Any, Any]]:
    """The owners of memory within a value, without the code that reads all other fields."""
    models = context._context.data_model_manager
    if not _is_counted(models, kind):
        return []
    model = models[kind]
    owners = [(kind, model.get_nrt_meminfo(builder, value))] if model.has_nrt_meminfo() else []
    for part, field in model.traverse(builder):
        if _is_counted(models, part):
            owners += _meminfos(context, builder, part, field(value))
    return owners


@cache
def _is_counted(models: Any, kind: Any) -> bool:
    """Whether values of a type own memory."""
    return models[kind].contains_nrt_meminfo()


def _type_of_array_operation(template: Any, args: Any, kws: Any) -> Any:
    """numba's typing of an operator, not tried where no argument is an array."""
    if any(isinstance(argument, types.ArrayCompatible) for argument in args):
        return _numpy_operation(template, args, kws)
    return None


class _KernelLibrary(JITCodeLibrary):
    """The code of a kernel and of all that it calls."""

    def finalize(self) -> None:
        self._linking_libraries = _linked(self)
        super().finalize()

    def _optimize_final_module(self) -> None:
        """Inline first: reference counts can be removed, and loops vectorized, after that."""
        inlining = {"opt": 2, "loop_vectorize": False, "slp_vectorize": False, "cost": "cheap"}
        for options in (inlining, {}):
            manager, builder = self._codegen._module_pass_manager(**options)
            manager.run(self._final_module, builder)


class _LinkedLibrary(JITCodeLibrary):
    """The code of a function that a kernel calls, to be linked into the kernel.

    numba keeps functions of its own for later callers. A caller that is no kernel gets a library
    as numba makes it, with machine code: `_complete`.
    """

    _is_complete = False
    _constants: tuple[str, Any] | None = None

    @property
    def codegen(self) -> Any:
        """numba's code generator; before there is machine code, `_set_constants` alone."""
        return self._codegen if self._is_complete else SimpleNamespace(set_env=self._set_constants)

    def _set_constants(self, name: str, constants: Any) -> None:
        self._constants = name, constants

    def _is_deferred(self) -> bool:
        return not self._is_complete and self._codegen._library_class is _LinkedLibrary

    def finalize(self) -> None:
        if self._is_deferred():
            self._raise_if_finalized()
            self._finalized = True
        else:
            super().finalize()

    def _finalize_final_module(self) -> None:
        super()._finalize_final_module()
        self._is_complete = True

    def get_pointer_to_function(self, name: str) -> int:
        return 0 if self._is_deferred() else super().get_pointer_to_function(name)

    def _get_module_for_linking(self) -> Any:
        if not self._is_complete and not self._is_deferred():
            self._complete()
        return super()._get_module_for_linking()

    def _complete(self) -> None:
        """Optimize the code and translate it to machine code."""
        self._finalized, self._shared_module = False, None
        super().finalize()
        if self._constants is not None:
            self._codegen.set_env(*self._constants)


def _linked(library: JITCodeLibrary) -> list[JITCodeLibrary]:
    """All libraries that a library is linked from, callers before what they call."""
    order: dict[JITCodeLibrary, None] = {}

    def visit(caller: Any) -> None:
        for other in caller._linking_libraries:
            if other not in order:
                if isinstance(other, _LinkedLibrary) and not other._is_complete:
                    visit(other)
                order[other] = None

    visit(library)
    return list(order)[::-1]
