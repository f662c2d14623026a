"""A process that warmed up has every kernel that anything outside kernels/ calls."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import robustok.kernels

CODE = """
import importlib, pkgutil, robustok.kernels as kernels
from robustok.kernel_warmup import warmup
warmup()
for module in pkgutil.iter_modules(kernels.__path__):
    for name, kernel in vars(importlib.import_module(f"robustok.kernels.{module.name}")).items():
        if hasattr(kernel, "signatures") and kernel.py_func.__module__.endswith(module.name):
            print(name, len(kernel.signatures))
"""


def test_warmup_leaves_no_kernel_to_compile_later() -> None:
    source = "".join(p.read_text() for p in Path(robustok.kernels.__path__[0]).glob("*.py"))
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    compiled = dict(line.split() for line in done.stdout.splitlines())
    # Compiled with their callers, and loaded with them, are those that another kernel calls.
    outermost = {n for n in compiled if len(re.findall(rf"\b{n}\(", source)) == 1}
    assert len(outermost) > 15
    assert {n for n in outermost if compiled[n] == "0"} == set()
    # Without the code of rare cases, and with it.
    for name in ("draw_texts", "merge_texts", "draw_stochastok_uniform"):
        assert compiled[name] == "2", name
