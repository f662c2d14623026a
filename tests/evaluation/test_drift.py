"""Completions are drawn from the model's own distribution, and fit the model."""

from __future__ import annotations

import pytest
from tests.oracles.models import tiny_model

from robustok import RobustokError
from robustok.evaluation.drift import completion_drift


def test_settings_of_generation_do_not_change_the_distribution(vocab) -> None:
    model = tiny_model("gpt2", vocab.size)
    plain = completion_drift(model, vocab, ["happen"], samples=4, tokens=12, seed=0)
    model.generation_config.repetition_penalty = 50.0
    again = completion_drift(model, vocab, ["happen"], samples=4, tokens=12, seed=0)
    assert again.completions == plain.completions


def test_a_completion_longer_than_the_model_reads_is_one_line(vocab) -> None:
    with pytest.raises(RobustokError, match="256 positions"):
        completion_drift(tiny_model("gpt2", vocab.size), vocab, ["happen"], tokens=256, seed=0)
