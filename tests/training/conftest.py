"""One training that several tests compare theirs with."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.training.test_finetune import ITEMS, PLAN, UNIFORM, VOCAB, tiny

from robustok.training import Training, finetune


@pytest.fixture(scope="session")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Training, Path]:
    """The record and the folder of the training by `PLAN` that nothing disturbs."""
    out = tmp_path_factory.mktemp("straight")
    return finetune(tiny(), VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=out, **PLAN), out
