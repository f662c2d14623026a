"""Functions that a kernel calls, compiled without machine code, in the kernel and elsewhere."""

import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from tests.oracles.processes import run

from robustok.kernels.compiler import borrow, njit
from robustok.kernels.compiler.borrowed import Borrowed

pytestmark = pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled"
)


class Pair(NamedTuple):
    first: np.ndarray  # int64 [values]
    second: np.ndarray  # int64 [values]


@njit(cache=False)
def total(pair):
    return pair.first.sum() + pair.second[1:].sum()


@njit(cache=False)
def totals(pair):
    plain = total(pair)
    borrowed = borrow(pair)
    mixed = Pair(borrowed.first, np.ones(3, np.int64))
    return plain, total(borrowed), total(mixed), total(Pair(mixed.second, borrowed.first))


def test_a_function_is_compiled_once_for_plain_and_borrowed_arrays() -> None:
    """Also where a tuple has both; the arguments keep their references."""
    pair = Pair(np.arange(4), np.arange(10, 14))
    before = [sys.getrefcount(array) for array in pair]
    for _ in range(10):
        assert totals(pair) == (42, 42, 8, 9)
    assert [sys.getrefcount(array) for array in pair] == before
    if numba.__version__.startswith("0.68."):
        callee = total.get_call_template.args[0]
        assert len(callee.signatures) == 1


def test_a_function_for_borrowed_arrays_alone_takes_plain_ones() -> None:
    """Releases of numba beside 0.68 choose such a function in some calls."""

    def add(values):
        return values.sum()

    kinds: Any = [(Borrowed(numba.types.Array(numba.int64, 1, "C")),)]
    options: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    borrowing = numba.njit(kinds, **options)(add)
    values = np.arange(4)
    before = sys.getrefcount(values)
    assert numba.njit(lambda values: borrowing(values))(values) == 6
    assert sys.getrefcount(values) == before


PROCESS = """
import numba
import numpy as np
from numba.core.runtime import rtsys
from robustok.kernels.compiler import njit

def check(index):
    if index < 0:
        raise ValueError("index", index)
    return np.zeros(3)[index]

callee = njit(cache=False)(check)

@njit(cache=False)
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
    calls, allocations = run(PROCESS, NUMBA_NRT_STATS="1").stdout.splitlines()
    assert calls == "('index', -1) 0.0 0.0 ('index', -5)"
    allocated, freed = map(int, allocations.split())
    assert allocated == freed


DRAWS = """
import sys
import numba
numba.__version__ = sys.argv[1]
import numpy as np
import robustok as rt
from robustok.kernels.compiler import dispatcher

print(dispatcher.load.__module__, file=sys.stderr)
vocab = rt.Vocabulary.load("demo")
texts = ["abc ab a" * n for n in range(1, 40)]
for scheme in sys.argv[2:]:
    rows = rt.sampler(scheme, vocab).sample_batch(texts, seed=1, draws=3)
    print(scheme, rows.values.tolist(), rows.offsets.tolist())
"""


def test_another_release_of_numba_compiles_kernels_to_the_same_results(tmp_path: Path) -> None:
    """A process each compiles and loads, with the internals of numba that we replace and without.

    The releases have caches of their own, since the release is part of a directory's name.
    """
    releases = numba.__version__, numba.__version__, "0.67.9", "0.67.9"
    runs = [
        run(DRAWS, release, "stochastok", NUMBA_CACHE_DIR=str(tmp_path)) for release in releases
    ]
    known = "numba_068" if numba.__version__.startswith("0.68.") else "dispatcher"
    modules = [done.stderr.splitlines()[0].rpartition(".")[2] for done in runs]
    assert modules == [known, known, "dispatcher", "dispatcher"]
    assert len({done.stdout for done in runs}) == 1
    assert runs[0].stdout.startswith("stochastok [")
    compiled = [len(list(d.iterdir())) for d in tmp_path.glob("robustok/*")]
    assert len(compiled) == 2 and min(compiled) > 4
