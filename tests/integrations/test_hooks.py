"""Hooks of transformers: canonical output beside plain generation, and drift in the logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.integrations.conftest import TEXTS, VOCAB, make_trainer, trl_trainer

import robustok as rt
from robustok.guard import Guard
from robustok.integrations.hooks import CanonicalProcessor, DriftCallback
from robustok.models import Shape, small_model, train_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

TEXT = "the theater is there, the rest rests: http://the.net the nest"


@pytest.fixture(scope="module")
def vocab() -> rt.Vocabulary:
    return rt.Vocabulary.load(train_tokenizer([TEXT] * 5, 300))


@pytest.fixture(scope="module")
def model(vocab: rt.Vocabulary) -> Any:
    return small_model(vocab.size + 5, Shape(1, 16, 1, 1, 32, 128), seed=0)  # padded embeddings


def generated(model: Any, ids: Any, processors: list[Any], **settings: Any) -> np.ndarray:
    torch.manual_seed(0)
    given = torch.as_tensor(ids)
    out = model.generate(
        given, attention_mask=(given != 0).long(), max_new_tokens=30, pad_token_id=0,
        logits_processor=processors, **settings,
    )  # fmt: skip
    return out.numpy()


@pytest.mark.parametrize(
    "settings", [{"do_sample": True}, {"do_sample": False, "num_beams": 3}, {"do_sample": False}]
)
def test_output_is_canonical(vocab: rt.Vocabulary, model: Any, settings: dict[str, Any]) -> None:
    guard = Guard(vocab, allow_special=True)
    prompts = [vocab.encode(text) for text in ("the rest", "nest: the")]
    longest = max(map(len, prompts))
    ids = [[0] * (longest - len(p)) + p.tolist() for p in prompts]
    out = generated(model, ids, [CanonicalProcessor(vocab, prompt_length=longest)], **settings)
    assert out.max() < vocab.size
    for row in out:
        finding = next((f for f in guard.check(row).findings if f.kind == "not-canonical"), None)
        # The last id may begin a character or end in spaces that more text would follow.
        assert finding is None or finding.end == len(row)
    assert out.shape[1] > longest


def test_scores_of_allowed_ids_stay(vocab: rt.Vocabulary) -> None:
    ids = torch.tensor([vocab.encode("the res").tolist()])
    scores = torch.randn(1, vocab.size + 5)
    processor = CanonicalProcessor(vocab, prompt_length=ids.shape[1])
    changed = processor(ids, scores)
    kept = torch.isfinite(changed)
    assert torch.equal(changed[kept], scores[kept])
    guard = Guard(vocab, allow_special=True)
    for i, token in enumerate(vocab.tokens):
        if token.isascii() and not token[-1:].isspace():
            assert kept[0, i] == guard.check([*ids[0].tolist(), i]).canonical
    assert not kept[0, vocab.size :].any()


def test_a_prompt_that_is_not_canonical_binds_the_completion_alone(
    vocab: rt.Vocabulary, model: Any
) -> None:
    prompt = [*vocab.encode("t").tolist(), *vocab.encode("he").tolist()]
    assert not Guard(vocab).check(prompt).canonical
    out = generated(
        model, [prompt], [CanonicalProcessor(vocab, prompt_length=len(prompt))], do_sample=True
    )
    verdict = Guard(vocab, allow_special=True).check(out[0, len(prompt) :])
    assert all(f.end == out.shape[1] - len(prompt) for f in verdict.findings)


def test_metrics_are_those_of_the_guard() -> None:
    draw = rt.sampler("mix(0.5 canonical, 0.5 uniform)", VOCAB)
    rows = draw.sample_batch(TEXTS[:1] * 40, seed=0)
    verdicts = Guard(VOCAB).check_batch(rows)
    drift = DriftCallback(VOCAB)
    assert drift.metrics() == {}
    drift.add(list(rows)[:10])
    drift.add(list(rows)[10:])
    assert 0 < (~verdicts.canonical).mean() < 1
    assert drift.metrics() == {
        "drift/sequences": (~verdicts.canonical).mean(),
        "drift/ids": verdicts.distance.sum() / len(rows.values),
        "drift/changed": (~verdicts.round_trip).mean(),
    }


def test_the_trainers_log_has_them_once(tmp_path: Path) -> None:
    drift, the = DriftCallback(VOCAB), VOCAB.encode("the").tolist()
    rows = [{"input_ids": the, "labels": the}] * 4
    trainer = make_trainer(tmp_path, rows, max_steps=2, logging_steps=1, callbacks=[drift])
    drift.add([[*VOCAB.encode("t"), *VOCAB.encode("he")], the])
    trainer.train()
    logged = [entry.get("drift/sequences") for entry in trainer.state.log_history]
    assert logged[:2] == [0.5, None]


def test_grpo_reports_what_was_sampled(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="trl is not installed")
    drift = DriftCallback(VOCAB)
    batches: list[Any] = []
    others = [i for i, token in enumerate(VOCAB.tokens) if not token.isalpha()]

    def reward(completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        batches.append(completion_ids)
        return [float(len(text)) for text in completions]

    trainer = trl_trainer(
        "GRPO", tmp_path, [{"prompt": "the word"}] * 4, reward=drift.observed(reward),
        callbacks=[drift], max_steps=1, num_generations=4, max_completion_length=40,
        per_device_train_batch_size=4, logging_steps=1,
        generation_kwargs={"suppress_tokens": others},
    )  # fmt: skip
    trainer.train()
    verdicts = Guard(VOCAB, allow_special=True).check_batch(batches[0])
    assert len(batches) == 1
    logged = [e["drift/sequences"] for e in trainer.state.log_history if "drift/sequences" in e]
    assert logged == [pytest.approx((~verdicts.canonical).mean())]
    assert logged[0] > 0  # random weights do not write canonical ids


def test_a_trainer_without_ids_is_refused() -> None:
    reward = DriftCallback(VOCAB).observed(lambda **_: [])
    with pytest.raises(rt.RobustokError, match="passes no completion_ids"):
        reward(completions=[])
