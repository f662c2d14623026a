from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as tf
from tests.oracles.models import tiny_model

from robustok import Vocabulary
from robustok.models import train_tokenizer

TEXT = "happen, glad"
SENTENCES = [
    "Which baby starts with glad rain: happen? Answer: up carry half garden differ straight"
]


@pytest.fixture(scope="session")
def vocab() -> Vocabulary:
    return Vocabulary.load(train_tokenizer(SENTENCES * 3, 330))


@pytest.fixture(scope="session", params=["llama", "gpt2", "qwen3", "gemma3"])
def model(request: Any, vocab: Vocabulary) -> Any:
    return tiny_model(request.param, vocab.size, seed=1)


@pytest.fixture(scope="session")
def llama(vocab: Vocabulary) -> Any:
    return tiny_model("llama", vocab.size, seed=1)


@pytest.fixture(scope="session")
def encoder(vocab: Vocabulary) -> Any:
    torch.manual_seed(0)
    config = tf.BertConfig(
        vocab_size=vocab.size, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, initializer_range=0.5, max_position_embeddings=128,
    )  # fmt: skip
    config.num_labels = 3
    return tf.BertForSequenceClassification(config).eval()
