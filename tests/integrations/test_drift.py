"""The drift of sampled ids in the log of a trainer."""

from pathlib import Path
from typing import Any

import pytest
from tests.integrations.conftest import TEXTS, VOCAB, make_trainer, trl_trainer

import robustok as rt
from robustok.guard import Guard
from robustok.integrations.trainer import DriftCallback

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


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
