"""A small SentencePiece model, trained on words with common parts, and its own draws."""

import io
from typing import Any

import numpy as np
import pytest

WORDS = ["banana", "bandana", "cabana", "canal", "anagram", "nab", "lab", "cab"]


def trained(**options: Any) -> Any:
    """A processor; skips the test where sentencepiece is not installed.

    Args:
        **options: those of the trainer: ``model_type``, ``vocab_size`` and so on.
    """
    spm = pytest.importorskip("sentencepiece")
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(WORDS, 8)) for _ in range(300)]
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, hard_vocab_limit=False, minloglevel=2,
        **options,
    )  # fmt: skip
    return spm.SentencePieceProcessor(model_proto=model.getvalue())


def draws(processor: Any, text: str, alpha: float, count: int) -> list[list[int]]:
    """Ids that the library itself samples, with a fixed seed."""
    import sentencepiece as spm

    spm.set_random_generator_seed(5)
    return [
        processor.encode(text, enable_sampling=True, alpha=alpha, nbest_size=-1)
        for _ in range(count)
    ]
