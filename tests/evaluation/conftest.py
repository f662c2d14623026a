from __future__ import annotations

from typing import Any

import pytest
from tests.oracles.models import tiny_model

from robustok import Vocabulary
from robustok.models import train_tokenizer
from robustok.tasks.item import Item
from robustok.tasks.langgame_items import langgame

WORDS = ["up", "baby", "rain", "glad", "carry", "half", "garden", "happen", "differ", "straight"]


@pytest.fixture(scope="session")
def items() -> list[Item]:
    return langgame(WORDS, 12, seed=0, format="short")


@pytest.fixture(scope="session")
def vocab(items: list[Item]) -> Vocabulary:
    texts = [item.question for item in items] + [c for item in items for c in item.choices]
    return Vocabulary.load(train_tokenizer(texts, 330))


@pytest.fixture(scope="session")
def model(vocab: Vocabulary) -> Any:
    return tiny_model("llama", vocab.size, seed=1)
