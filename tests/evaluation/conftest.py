from __future__ import annotations

from typing import Any

import pytest
from tests.attack.conftest import items as items
from tests.attack.conftest import vocab as vocab
from tests.oracles.models import tiny_model

from robustok import Vocabulary


@pytest.fixture(scope="session")
def model(vocab: Vocabulary) -> Any:
    return tiny_model("llama", vocab.size, seed=1)
