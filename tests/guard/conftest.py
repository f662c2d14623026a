"""Tokenizers with a pattern, a normalizer, special tokens: small, and whole."""

import pytest
from tests.guard.tokenizers_of import LLAMA3, byte_level, metaspace

from robustok.tokenizer.vocabulary import Vocabulary


@pytest.fixture(scope="session", params=["gpt2", "llama3", "nfc", "roberta", "metaspace", "prefix"])
def vocab(request: pytest.FixtureRequest) -> Vocabulary:
    return {
        "gpt2": lambda: byte_level(None),
        "llama3": lambda: byte_level(LLAMA3),
        "nfc": lambda: byte_level(LLAMA3, nfc=True),
        "roberta": lambda: byte_level(None, prefix=True),
        "metaspace": lambda: metaspace(prefix=False),
        "prefix": lambda: metaspace(prefix=True),
    }[request.param]()


@pytest.fixture(scope="session")
def gpt2_like() -> Vocabulary:
    return byte_level(None)
