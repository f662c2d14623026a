"""A kernel that a new process loads from a cache or compiles."""

from pathlib import Path
from typing import NamedTuple

from tests.oracles.processes import run

CODE = """
import sys
import numpy as np
from robustok.kernels.batch import split_at_fixed
from robustok.kernels.compiler.cache import cache_directory, packaged_directory

assert split_at_fixed(np.array([0, 2]), np.array([False, True])).tolist() == [[0, 0, 0, 1]]
calls, packaged = split_at_fixed.stats, packaged_directory()
print(packaged or cache_directory(), packaged is not None,
      sum(calls.cache_hits.values()), sum(calls.cache_misses.values()))
"""


class Call(NamedTuple):
    """The directory of a process, whether it is a wheel's, and what became of its kernel."""

    directory: Path
    is_packaged: bool
    loaded: int
    compiled: int


def call_in_new_process(place: Path, code: str = CODE, *arguments: str, **settings: str) -> Call:
    """Call a kernel in a process whose cache is below ``place``."""
    done = run(code, *arguments, **{"NUMBA_CACHE_DIR": str(place)} | settings)
    directory, is_packaged, *counts = done.stdout.split()
    return Call(Path(directory), is_packaged == "True", *map(int, counts))
