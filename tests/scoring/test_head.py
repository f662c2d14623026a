"""The output layer in blocks of the vocabulary."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.oracles.models import tiny_model
from tests.oracles.scoring import checked_scores, score_naively

from robustok.scoring import forward, score, scoring_mode

QUESTIONS = [[1, 2, 3], [1, 2, 4, 4999], [7]]
OPTIONS = [[5], [2047, 2048], [4096, 4999, 0], [4999]]


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3", "bloom", "mamba"])
def test_blocks_of_a_large_vocabulary_give_the_log_probs_of_all_logits(name: str) -> None:
    model = tiny_model(name, 5000)
    assert np.ptp(checked_scores(model, QUESTIONS, OPTIONS, [9, 8]).log_probs) > 1


def test_an_output_layer_with_a_bias() -> None:
    model = tiny_model("llama", 5000)
    weight = model.lm_head.weight
    model.lm_head = torch.nn.Linear(32, 5000)
    torch.nn.init.normal_(model.lm_head.bias)
    model.lm_head.weight = weight
    checked_scores(model, QUESTIONS, OPTIONS)


def test_the_log_sum_exp_of_a_block() -> None:
    logits = torch.randn(3, 70) * 50
    logits[1] = -torch.inf  # tokens that a bias rules out
    logits[2, 1:] = -torch.inf
    wanted, out = torch.logsumexp(logits, -1), torch.empty(3)
    forward._log_sum_exp_(logits.clone(), out)
    torch.testing.assert_close(out, wanted)


def test_logits_that_a_model_changes_are_not_computed_in_blocks() -> None:
    model = tiny_model("gemma3", 5000)
    assert forward._in_blocks(model, model.lm_head)
    capped = tiny_model("gemma3", 5000)
    capped.config.final_logit_softcapping = 2.0
    assert not forward._in_blocks(capped, capped.lm_head)
    uncapped = score_naively(model, QUESTIONS, OPTIONS)
    assert np.abs(checked_scores(capped, QUESTIONS, OPTIONS).log_probs - uncapped).max() > 0.1


def test_no_whole_row_of_logits_is_computed_in_blocks() -> None:
    model = tiny_model("llama", 5000)
    scoring_mode(model)
    forward._in_blocks(model, model.lm_head)
    rows = []
    hook = model.lm_head.register_forward_hook(
        lambda module, inputs, output: rows.append(output.shape[:-1].numel())
    )
    score(model, QUESTIONS, OPTIONS)
    hook.remove()
    assert rows
    assert not any(rows)
