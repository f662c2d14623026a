"""How kernels are compiled, kept on disk and loaded.

``jit.njit`` decorates every kernel. `cache` names the directory of the machine code, `first_use`
lets one process at a time compile. `linking`, `numba_068` and `runtime` shorten compilation and
loading with release 0.68 of numba.
"""
