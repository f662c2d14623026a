"""numba's runtime functions (reference counts of arrays), from the cache of compiled kernels.

Every process that calls a compiled kernel needs them. numba compiles them anew in each, with all of
LLVM's optimizer and code generator: 0.1 s, and 25 MB of LLVM's code that are otherwise not read.
"""

from __future__ import annotations

import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba.core.compiler_lock import global_compiler_lock
from numba.core.runtime import nrtdynmod, rtsys

from robustok.files import write_whole
from robustok.kernels.compiler.cache import cache_directory

_FILE = "runtime.pickle"  # a library as numba serializes it: name, kind, object code and bitcode


def initialize_runtime(target_context: Any) -> None:
    """`rtsys.initialize`, which compiles nothing where an earlier process left the functions."""
    directory = cache_directory()
    with global_compiler_lock:
        compile_functions = nrtdynmod.compile_nrt_functions
        if directory is not None:
            nrtdynmod.compile_nrt_functions = lambda context: _runtime_library(context, directory)
        try:
            rtsys.initialize(target_context)
        finally:
            nrtdynmod.compile_nrt_functions = compile_functions


def _runtime_library(target_context: Any, directory: Path) -> Any:
    """The compiled functions, loaded from ``directory`` or compiled and kept there."""
    codegen = target_context.codegen()
    with suppress(OSError, EOFError, pickle.UnpicklingError):
        return codegen.unserialize_library(pickle.loads((directory / _FILE).read_bytes()))
    module, library = nrtdynmod.create_nrt_module(target_context)
    library.enable_object_caching()
    library.add_ir_module(module)
    library.finalize()
    with suppress(OSError):
        write_whole(directory / _FILE, pickle.dumps(library.serialize_using_object_code()))
    return library
