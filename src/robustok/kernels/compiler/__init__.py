"""How kernels are compiled, kept on disk and loaded.

``jit.njit`` decorates every kernel, and `borrow` keeps references of arrays from being counted;
both are imported without numba. `dispatcher` loads or compiles a kernel at its first call. `cache`
keeps the files of compiled code, and `message` tells the user what he waits for. `borrowed` is the
type of arrays without reference counts. `linking` and `numba_068` shorten compilation and loading
with release 0.68 of numba; `numba_plain` stands for them with another one.
"""
