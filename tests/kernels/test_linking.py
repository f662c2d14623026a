"""Functions that a kernel calls, compiled without machine code, in the kernel and elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

pytestmark = pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled"
)

PROCESS = """
import numba
import numpy as np
from numba.core.runtime import rtsys
from robustok.kernels.compiler.jit import njit

def check(index):
    if index < 0:
        raise ValueError("index", index)
    return np.zeros(3)[index]

callee = njit(nogil=True)(check)

@njit(nogil=True)
def kernel(index):
    return callee(index) + callee(index + 1)

def message(function, index):
    try:
        return function(index)
    except ValueError as error:
        return error.args

@numba.njit
def user(index):
    return np.zeros(3).sum() + np.zeros(3)[index]

print(message(kernel, -1), message(kernel, 1), user(2), message(callee, -5))
before = rtsys.get_allocation_stats()
for _ in range(100):
    kernel(0)
after = rtsys.get_allocation_stats()
print(after.alloc - before.alloc, after.free - before.free)
"""


def test_numba_compiles_its_functions_for_callers_after_a_kernel() -> None:
    """np.zeros and the constants of an error, in a kernel and in a function of the user.

    The kernel frees what the functions that it calls allocate.
    """
    env = {**os.environ, "NUMBA_NRT_STATS": "1"}
    done = subprocess.run([sys.executable, "-c", PROCESS], env=env, capture_output=True, text=True)
    calls, allocations = done.stdout.splitlines() or ["", ""]
    assert calls == "('index', -1) 0.0 0.0 ('index', -5)", done.stderr
    allocated, freed = map(int, allocations.split())
    assert allocated == freed


OTHER_RELEASE = """
import sys
import numba
numba.__version__ = "0.67.9"
import numpy as np
from robustok.kernels.batch import split_at_fixed
print(split_at_fixed(np.array([0, 2]), np.array([False, True])).tolist())
print([name for name in sys.modules if name.startswith("robustok.kernels.numba_")])
"""


def test_another_release_of_numba_compiles_kernels_as_it_does(tmp_path: Path) -> None:
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for _ in ("compiled", "loaded"):
        command = [sys.executable, "-c", OTHER_RELEASE]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.stdout.splitlines() == ["[[0, 0, 0, 1]]", "[]"], done.stderr
    assert list(tmp_path.glob("robustok/*/*/*.nbc"))


def test_a_call_with_a_constant_compiles_no_function_of_its_own() -> None:
    from robustok.kernels.compiler.jit import njit

    @njit(nogil=True)
    def add(a, b):
        return a + b

    @njit(nogil=True)
    def kernel(a):
        return add(a, 1) + add(a, a)

    template, *_ = add.get_call_template([numba.int64, numba.types.literal(1)], {})
    assert kernel(2) == 7
    assert template.cases[0].args == (numba.int64, numba.int64)
