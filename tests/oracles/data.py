"""Where real tokenizers and texts lie, if they are there."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from robustok.vocabulary import Vocabulary

TOKENIZERS = ("gpt2", "llama3", "qwen3", "llama2", "internlm2")


def data_path(*parts: str) -> Path:
    """A file of the shared data; skips the test, saying so, where it is not there."""
    root = Path(os.environ.get("ROBUSTOK_DATA", "../shared/data"))
    path = root.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is not there: set ROBUSTOK_DATA to run this on real tokenizers")
    return path


@cache
def real(name: str) -> Vocabulary:
    return Vocabulary.load(data_path("tokenizers", name, "tokenizer.json"))
