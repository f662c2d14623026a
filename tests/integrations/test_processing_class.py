"""A stochastic tokenizer as the `processing_class` of trainers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integrations.test_loaders import (
    COMMON,
    IDS,
    TEXTS,
    VOCAB,
    make_tokenizer,
    model,
    saved_model,
    trained,
)
from transformers import AutoTokenizer, Trainer, TrainingArguments

import robustok as rt
from robustok.integrations.trainer import robustify

trl = pytest.importorskip("trl")
datasets = pytest.importorskip("datasets")

pytestmark = pytest.mark.filterwarnings("ignore")


def drawing() -> Any:
    return rt.stochastic(make_tokenizer(), "uniform", seed=0)


def sft(folder: Path, tokenizer: Any) -> Any:
    settings = {"bf16": False, "gradient_checkpointing": False, "num_train_epochs": 2}
    return trl.SFTTrainer(
        model=model(), args=trl.SFTConfig(str(folder), max_length=128, **COMMON, **settings),
        train_dataset=datasets.Dataset.from_list([{"text": text} for text in TEXTS]),
        processing_class=tokenizer,
    )  # fmt: skip


def texts_of(seen: Any) -> list[str]:
    return sorted(VOCAB.decode(ids).removesuffix("<|im_end|>") for step in seen for ids in step)


def test_a_trainer_pads_with_it_and_saves_the_original(tmp_path: Path) -> None:
    rows = [{"input_ids": ids, "labels": [-100, 5]} for ids in IDS]
    tokenizer = drawing()
    trainer = Trainer(
        model(), TrainingArguments(str(tmp_path), num_train_epochs=1, **COMMON),
        train_dataset=[{"input_ids": row["input_ids"]} for row in rows],  # type: ignore[arg-type]
        processing_class=tokenizer,
    )  # fmt: skip
    batch = trainer.data_collator(trainer.train_dataset[:4])  # type: ignore[index]
    assert batch["attention_mask"].sum(dim=1).tolist() == [len(ids) for ids in IDS[:4]]
    trainer.save_model(str(tmp_path / "saved"))
    saved = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert [saved(text)["input_ids"] for text in TEXTS] == IDS


def test_sft_tokenizes_once_and_trains_on_that_draw(tmp_path: Path) -> None:
    seen = trained(sft(tmp_path, drawing()))
    half = len(seen) // 2
    assert texts_of(seen[:half]) == texts_of(seen[half:]) == sorted(TEXTS)
    first, second = (sorted(ids for step in part for ids in step) for part in
                     (seen[:half], seen[half:]))  # fmt: skip
    assert first == second
    assert not {tuple(ids) for ids in first} & {tuple(ids) for ids in IDS}


def test_robustify_refuses_rows_that_may_be_drawn_already(tmp_path: Path) -> None:
    tokenizer = drawing()
    with pytest.raises(rt.RobustokError, match="draws itself") as error:
        robustify(sft(tmp_path, tokenizer), "uniform", seed=0)
    assert "\n" not in str(error.value)
    tokenizer.eval()
    trainer = sft(tmp_path, tokenizer)
    robustify(trainer, "uniform", seed=0, where="all")
    assert set(texts_of(trained(trainer))) == set(TEXTS)


def test_grpo_generates_from_drawn_prompts(tmp_path: Path) -> None:
    settings = {"bf16": False, "gradient_checkpointing": False, "num_generations": 2}
    common = {**COMMON, "per_device_train_batch_size": 8}
    config = trl.GRPOConfig(
        str(tmp_path), max_completion_length=4, max_steps=1, **settings, **common
    )
    trainer = trl.GRPOTrainer(
        model=saved_model(tmp_path), args=config, processing_class=drawing(),
        reward_funcs=lambda completions, **_: [float(i) for i in range(len(completions))],
        train_dataset=datasets.Dataset.from_list([{"prompt": text} for text in TEXTS]),
    )  # fmt: skip
    seen: list[list[int]] = []
    generate = trainer._generate_single_turn

    def spy(prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        seen.extend(list(ids) for ids in prompt_ids)
        return generate(prompt_ids, *args, **kwargs)

    trainer._generate_single_turn = spy
    trainer.train()
    assert seen
    assert {VOCAB.decode(ids) for ids in seen} <= set(TEXTS)
    assert not {tuple(ids) for ids in seen} & {tuple(ids) for ids in IDS}
    assert seen[::2] == seen[1::2]  # the generations of a prompt share its draw
