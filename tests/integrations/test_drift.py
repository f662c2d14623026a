"""Drift as metrics of trainers: TRL's, through its reward functions, and transformers' logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast, Trainer, TrainingArguments

import robustok as rt
from robustok.guard import Guard
from robustok.integrations.drift import DriftCallback
from robustok.models import Shape, small_model, train_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    trained = train_tokenizer(["the word which starts with street"] * 3, 290)
    return PreTrainedTokenizerFast(
        tokenizer_object=trained, pad_token="<|endoftext|>", eos_token="<|endoftext|>"
    )


def test_metrics_are_those_of_the_guard(tokenizer: Any) -> None:
    vocab = rt.Vocabulary.load(tokenizer)
    draw = rt.sampler("mix(0.5 canonical, 0.5 uniform)", vocab)
    rows = draw.sample_batch(["the street"] * 40, seed=0)
    verdicts = Guard(vocab).check_batch(rows)
    drift = DriftCallback(vocab)
    assert drift.metrics() == {}
    drift.add(list(rows)[:10])
    drift.add(list(rows)[10:])
    assert 0 < (~verdicts.canonical).mean() < 1
    assert drift.metrics() == {
        "drift/sequences": (~verdicts.canonical).mean(),
        "drift/ids": verdicts.distance.sum() / len(rows.values),
        "drift/changed": (~verdicts.round_trip).mean(),
    }


def test_the_trainers_log_has_them_once(tokenizer: Any, tmp_path: Path) -> None:
    vocab = rt.Vocabulary.load(tokenizer)
    drift = DriftCallback(vocab)
    rows = [{"input_ids": vocab.encode("the").tolist(), "labels": vocab.encode("the").tolist()}] * 4
    args = TrainingArguments(
        str(tmp_path), max_steps=2, logging_steps=1, report_to=[], use_cpu=True,
        dataloader_pin_memory=False, disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    model = small_model(len(tokenizer), Shape(1, 16, 1, 1, 32, 64), seed=0)
    trainer = Trainer(model, args, train_dataset=rows, callbacks=[drift])  # type: ignore[arg-type]
    drift.add([[*vocab.encode("t"), *vocab.encode("he")], vocab.encode("the")])
    trainer.train()
    logged = [entry.get("drift/sequences") for entry in trainer.state.log_history]
    assert logged[:2] == [0.5, None]


def test_grpo_reports_what_was_sampled(tokenizer: Any, tmp_path: Path) -> None:
    trl = pytest.importorskip("trl", reason="trl is not installed")
    from datasets import Dataset

    vocab = rt.Vocabulary.load(tokenizer)
    drift = DriftCallback(vocab)
    batches: list[Any] = []
    text = [i for i, token in enumerate(vocab.tokens) if token.isalpha()]

    def reward(completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        batches.append(completion_ids)
        return [float(len(text)) for text in completions]

    trainer = trl.GRPOTrainer(
        model=small_model(len(tokenizer), Shape(1, 16, 1, 1, 32, 256), seed=0),
        reward_funcs=drift.observed(reward),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path), max_steps=1, num_generations=4, max_completion_length=40,
            per_device_train_batch_size=4, logging_steps=1, report_to=[], use_cpu=True, bf16=False,
            dataloader_pin_memory=False, disable_tqdm=True, save_strategy="no",
            generation_kwargs={"suppress_tokens": [i for i in range(vocab.size) if i not in text]},
        ),
        train_dataset=Dataset.from_list([{"prompt": "the word"}] * 4),
        processing_class=tokenizer,
        callbacks=[drift],
    )  # fmt: skip
    trainer.train()
    verdicts = Guard(vocab, allow_special=True).check_batch(batches[0])
    assert len(batches) == 1
    logged = [e["drift/sequences"] for e in trainer.state.log_history if "drift/sequences" in e]
    assert logged == [pytest.approx((~verdicts.canonical).mean())]
    assert logged[0] > 0  # random weights do not write canonical ids


def test_a_trainer_without_ids_is_refused(tokenizer: Any) -> None:
    reward = DriftCallback(rt.Vocabulary.load(tokenizer)).observed(lambda **_: [])
    with pytest.raises(rt.RobustokError, match="passes no completion_ids"):
        reward(completions=[])
