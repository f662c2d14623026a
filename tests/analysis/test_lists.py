"""One string where a list of strings is expected is an error, not a list of its characters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from robustok import RobustokError, Vocabulary
from robustok.analysis import bias, dropout_splits, growth
from robustok.models import train_tokenizer


@pytest.fixture(scope="module")
def vocab() -> Vocabulary:
    return Vocabulary.load(train_tokenizer(["a text of words", "another text"], 280))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda vocab: growth(vocab, ["a text"], "uniform", seed=0), "schemes"),
        (lambda vocab: bias(vocab, "word", seed=0), "words"),
        (lambda vocab: bias(vocab, ["word"], "uniform", seed=0), "schemes"),
        (lambda vocab: dropout_splits(vocab, "a text", rules="hf", seed=0), "rules"),
    ],
)
def test_one_string_is_no_list(
    call: Callable[[Vocabulary], Any], name: str, vocab: Vocabulary
) -> None:
    with pytest.raises(RobustokError, match=f"^{name}: give a list"):
        call(vocab)
