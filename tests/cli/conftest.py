"""Kernels that were never compiled here say so once, on stderr; do that before stderr is read."""

from __future__ import annotations

import pytest

from robustok.kernels.compiler.first_use import announce_compilation


@pytest.fixture(scope="session", autouse=True)
def announced() -> None:
    announce_compilation()
