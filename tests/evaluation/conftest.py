from __future__ import annotations

from typing import Any

import pytest
from tests.attack.conftest import items as items
from tests.attack.conftest import vocab as vocab
from tests.oracles.models import tiny_model

from robustok import Ragged, Vocabulary, sampler
from robustok.evaluation.questions import item_key
from robustok.tasks import Item


def draws_of(vocab: Vocabulary, item: Item, draws: int, seed: int) -> Ragged:
    """The draws of an item's question by `uniform`."""
    uniform, keys = sampler("uniform", vocab), [item_key(item.key)]
    return uniform.sample_batch([item.question], seed=seed, draws=draws, keys=keys)


@pytest.fixture(scope="session")
def model(vocab: Vocabulary) -> Any:
    return tiny_model("llama", vocab.size, seed=1)
