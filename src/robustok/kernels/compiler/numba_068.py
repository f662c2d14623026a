"""Kernels that take less time to compile and to load, by internals of numba 0.68.

**Loading.** Numba prepares its compiler before it looks for compiled code: it imports the
implementations of all that it can compile, scipy's linear algebra, and the extensions of installed
packages (awkward, on which gigatoken depends). That takes four fifths of the time of a first call
and 80 MB. Compiled code needs only numba's runtime; where there is none, numba prepares its
compiler when it starts to compile.

**Compilation.** numba optimizes every function that a kernel calls, with all that it calls in turn,
and translates it to machine code, before it links the result into the caller and optimizes it
again. Here the functions that a kernel calls are linked into it as they are, and the kernel alone
is optimized and translated.
"""

from __future__ import annotations

import gc
import io
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache as cached
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numba
from llvmlite import binding
from numba.core import entrypoints, environment, errors, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.registry import cpu_target
from numba.core.runtime import nrtdynmod, rtsys
from numba.core.runtime.context import NRTContext
from numba.core.serialize import dumps
from numba.core.typing import typeof
from numba.core.typing.npydecl import NumpyRulesArrayOperator

from robustok.kernels.compiler import cache
from robustok.kernels.compiler.borrowed import plain

if TYPE_CHECKING:
    from llvmlite.ir import IRBuilder, Value
    from numba.core.base import BaseContext
    from numba.core.codegen import Codegen, CodeLibrary
    from numba.core.datamodel import DataModelManager
    from numba.core.dispatcher import Dispatcher
    from numba.core.types import Type
    from numba.core.typing import Signature

    Types = tuple[Type, ...]  # of arguments

_RUNTIME = "runtime"  # file of numba's runtime functions
_ABSENT = object()
_numpy_operation = NumpyRulesArrayOperator.generic
_CONSTANTS = "_ZN08NumbaEnv"  # prefix of the global variable of a function's constants
# numba formats messages of types that it tries without success; colors take a twelfth of the time.
_PLAIN = SimpleNamespace(code=str, errmsg=str, filename=str, indicate=str, highlight=str, reset=str)


def make_dispatcher(function: Callable, options: dict[str, Any]) -> Dispatcher:
    """``numba.njit(**options)(function)``, compiled by `KernelCompiler`."""
    # Kernels that call this one compile it without the code that converts Python objects.
    variant = {**options, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    callee: Any = numba.njit(**variant)(function)
    dispatcher: Any = numba.njit(**variant, pipeline_class=KernelCompiler)(function)
    # Extensions of other packages define types that kernels do not take.
    dispatcher._compilation_chain_init_hook = _nothing
    dispatcher.get_call_template = partial(_call_template, callee)
    dispatcher.get_overload = callee.get_overload
    return dispatcher


def prepare(target_context: BaseContext) -> None:
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


def dump(result: CompileResult) -> bytes:
    """Compiled code as bytes, without its LLVM module.

    Numba keeps that for functions that inline it. Kernels are inlined from their sources (see
    `make_dispatcher`), so only the names that the module defines are kept.
    """
    (library, kind, (object_code, module)), *rest = result._reduce()
    return dumps(((library, kind, (object_code, _names_of(module))), *rest))


def load(content: bytes, target_context: BaseContext) -> CompileResult:
    """The compiled code of `dump`."""
    result = CompileResult._rebuild(target_context, *_Unpickler(io.BytesIO(content)).load())
    result.library._shared_module = None  # raises an error where numba would inline it
    return result


def _call_template(callee: Dispatcher, args: Types, kws: dict[str, Type]) -> Any:
    """numba's template of a call; constants and borrowed arrays need no function of their own."""
    return callee.get_call_template(
        [plain(types.unliteral(argument)) for argument in args],
        {name: plain(types.unliteral(argument)) for name, argument in kws.items()},
    )


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


def _environment(module: str, constants: list[Any], name: str) -> environment.Environment:
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


def _runtime_library(target_context: BaseContext) -> CodeLibrary:
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


class KernelCompiler(Compiler):
    """numba's compiler for a function that Python calls. Runs under numba's lock."""

    def compile_extra(self, func: Callable) -> CompileResult:
        codegen: Any = self.state.targetctx.codegen()
        library = _KernelLibrary(codegen, func.__qualname__)
        library.enable_object_caching()
        self.state.library = library
        with _linking(codegen):
            result = super().compile_extra(func)
        for variable in library._final_module.global_variables:
            constants = None
            if variable.name.startswith(_CONSTANTS):
                constants = environment.lookup_environment(variable.name)
            if constants is not None:
                codegen.set_env(variable.name, constants)
        return result

    def define_pipelines(self) -> Any:
        # Set after numba has copied the flags for functions of its own that the kernel calls: it
        # compiles those once for each combination of flags.
        self.state.flags.no_cpython_wrapper = False
        return super().define_pipelines()


@contextmanager
def _linking(codegen: Codegen) -> Iterator[None]:
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


def _nothing(*arguments: object) -> None:
    """In place of what a kernel does not need, as the extensions of other packages."""


def _meminfos(
    context: NRTContext, builder: IRBuilder, kind: Type, value: Value
) -> list[tuple[Type, Value]]:
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


@cached
def _is_counted(models: DataModelManager, kind: Type) -> bool:
    """Whether values of a type own memory."""
    return models[kind].contains_nrt_meminfo()


def _type_of_array_operation(
    template: NumpyRulesArrayOperator, args: Types, kws: dict[str, Type]
) -> Signature | None:
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

    def visit(caller: JITCodeLibrary) -> None:
        for other in caller._linking_libraries:
            if other not in order:
                if isinstance(other, _LinkedLibrary) and not other._is_complete:
                    visit(other)
                order[other] = None

    visit(library)
    return list(order)[::-1]
