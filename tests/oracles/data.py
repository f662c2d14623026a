"""Where real tokenizers and texts lie, if they are there."""

import json
import os
from functools import cache
from pathlib import Path

import pytest
from tests.oracles.chi_square import COMPILED

from robustok.tokenizer.vocabulary import Vocabulary

TOKENIZERS = ("gpt2", "llama3", "qwen3", "llama2", "internlm2")


def data_path(*parts: str) -> Path:
    """A file of the shared data; skips the test, saying so, where it is not there."""
    if not COMPILED:
        pytest.skip("real tokenizers take minutes in plain Python")
    root = Path(os.environ.get("ROBUSTOK_DATA", "../shared/data"))
    path = root.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is not there: set ROBUSTOK_DATA to run this on real tokenizers")
    return path


@cache
def hard_texts() -> tuple[str | bytes, ...]:
    """Texts that are hard to encode, long runs of one character, and bytes that are no text."""
    files = (
        data_path("corpus", "hard_cases.jsonl"),
        data_path("tokenizers", "reference_encodings.jsonl"),
    )
    lines = (line for file in files for line in file.read_text(encoding="utf8").splitlines())
    more = b"\xff\xfe caf\xc3", "x" * 5000, " " * 3000, "日本語👩‍👩‍👧" * 50, "it's 'stop' 12345"
    return (*(json.loads(line)["text"] for line in lines), *more)


@cache
def real(name: str) -> Vocabulary:
    return Vocabulary.load(data_path("tokenizers", name, "tokenizer.json"))
