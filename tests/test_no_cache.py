"""Kernels where no directory for their cache is writable, as in a read-only container."""

from __future__ import annotations

import os
import subprocess
import sys

# File permissions do not bind root; in /proc nobody can make a directory.
CODE = """
import tempfile
tempfile.tempdir = "/proc/none"

import importlib, pkgutil
import robustok as rt, robustok.kernels
from tokenizers import Tokenizer, models

for module in pkgutil.iter_modules(robustok.kernels.__path__):
    importlib.import_module(f"robustok.kernels.{module.name}")
vocab = rt.Vocabulary.load(Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")])))
print(rt.StochasTok(vocab, alpha=1).sample([2], seed=0).tolist())
"""


def test_kernels_compile_in_memory_where_nothing_is_writable() -> None:
    where = {**os.environ, "NUMBA_CACHE_DIR": "/proc/none"}
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=False, env=where
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0, 1]\n"
    assert "compiling the kernel stochastok.draw_stochastok in memory" in done.stderr
    assert "NUMBA_CACHE_DIR" in done.stderr
