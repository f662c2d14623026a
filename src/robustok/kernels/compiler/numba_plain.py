"""The functions of `numba_068` for other releases of numba, which keep what numba does."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numba
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps


def make_dispatcher(function: Callable, options: dict[str, Any]) -> Any:
    """``numba.njit(**options)(function)``."""
    return numba.njit(**options)(function)


def prepare(target_context: Any) -> None:
    """Import the types and functions that numba knows, before code is loaded or compiled."""
    target_context.refresh()


def dump(result: Any) -> bytes:
    """Compiled code as bytes."""
    return dumps(result._reduce())


def load(content: bytes, target_context: Any) -> Any:
    """The compiled code of `dump`."""
    return CompileResult._rebuild(target_context, *pickle.loads(content))
