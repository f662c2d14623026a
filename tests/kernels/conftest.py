"""Kernels run compiled, or as plain Python under NUMBA_DISABLE_JIT=1, where numpy warns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def arithmetic_of_compiled_code() -> Iterator[None]:
    """uint64 wraps around and 1 / 0 is inf, without warnings."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        yield
