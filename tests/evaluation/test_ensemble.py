"""Ensembles over tokenizations against naive loops, on tiny random models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.oracles.scripts import script

import robustok as rt
from robustok.evaluation import evaluate
from robustok.evaluation.questions import item_keys
from robustok.models import Shape, small_model, train_tokenizer
from robustok.scoring import score
from robustok.study import load_study, plan
from robustok.study.measurements import Evaluate, MeasuredCell
from robustok.tasks import Item

TEXT = "the theater is there, the rest rests; which word? Answer: yes no maybe"
OPTIONS = [" yes", " no", " maybe"]


@pytest.fixture(scope="module")
def vocab() -> rt.Vocabulary:
    return rt.Vocabulary.load(train_tokenizer([TEXT] * 5, 300))


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def model(request: pytest.FixtureRequest, vocab: rt.Vocabulary) -> Any:
    shape = Shape(2, 32, 2, 2, 64, 256, architecture=request.param)
    return small_model(vocab.size, shape, seed=0)


def test_generation_is_the_mean_of_separate_prompts(vocab: rt.Vocabulary, model: Any) -> None:
    text = "the rest is there"
    settings: dict[str, Any] = {"draws": 4, "seed": 0, "max_new_tokens": 6}
    rows = rt.sampler("uniform", vocab).sample_batch([text], seed=0, draws=4)
    written: list[int] = []
    with torch.inference_mode():
        for _ in range(6):
            prompts = [torch.tensor([[*row.tolist(), *written]]) for row in rows]
            logits = torch.cat([model(prompt).logits[:, -1] for prompt in prompts])
            written.append(int(logits.double().softmax(-1).mean(0).argmax()))
    generate = script("examples/many_tokenizations.py").generate
    assert generate(model, vocab, text, **settings) == written


def test_evaluation_gives_one_answer_for_all_draws(vocab: rt.Vocabulary, model: Any) -> None:
    items = [Item(f"q{n}", f"the rest is {n}? Answer:", tuple(OPTIONS), n % 3) for n in range(12)]
    result = evaluate(model, vocab, items, "uniform", draws=5, seed=0, ensemble=True)
    single = evaluate(model, vocab, items, "uniform", draws=5, seed=0)
    assert (result.draws, result.n) == (5, 12)
    assert result.tokens_computed == single.tokens_computed
    assert all(len(outcome.predictions) == 1 for outcome in result.outcomes)
    encoded = [vocab.encode(answer) for answer in OPTIONS]
    for item, outcome in zip(items, result.outcomes, strict=True):
        keys = item_keys([item.key])
        rows = rt.sampler("uniform", vocab).sample_batch(
            [item.question], seed=0, draws=5, keys=keys
        )
        probs = np.exp([score(model, [row], encoded).log_probs[0] for row in rows])
        assert outcome.predictions == (probs.mean(axis=0).argmax(),)
    assert result.accuracy == np.mean([o.correct for o in result.outcomes])


def test_a_study_adds_a_column_and_keeps_its_other_keys() -> None:
    text = (Path(__file__).parents[1] / "study" / "study.yaml").read_text(encoding="utf-8")
    before = plan(load_study(text, "a"))
    changed = text.replace("evaluate:\n", "evaluate:\n  ensemble: 8\n", 1)
    after = plan(load_study(changed, "a"))
    added = [cell for cell in after if cell.key not in {c.key for c in before}]
    assert {c.key for c in before} <= {c.key for c in after}
    assert added
    for cell in added:
        assert isinstance(cell, MeasuredCell) and isinstance(cell.measurement, Evaluate)
        assert (cell.measurement.ensemble, cell.measurement.draws) == (8, 8)
        assert "draws=8" in cell.label
