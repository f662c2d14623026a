"""Presets and full-scale studies have the settings of the tables in the paper's appendix."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from robustok.study import find_study, studies
from robustok.study.schema import Study
from robustok.study.sections import TrainingSection
from robustok.training import PRESETS

ADAM = {"max_grad_norm": 1.0, "min_lr_ratio": 0.1}
TABLES = {
    "paper-tiny-llm-pretrain": {
        "steps": 30_000, "batch_size": 480, "learning_rate": 6e-4, "warmup_steps": 5_000,
        "weight_decay": 0.1, "dropout": 0.1,
    },
    "paper-tiny-llm-finetune": {
        "steps": 3_000, "batch_size": 480, "learning_rate": 1e-4, "warmup_steps": 500,
        "weight_decay": 0.05, "dropout": 0.1,
    },
    # The paper gives no batch size, and the dropout is that of LoRA.
    "paper-finetune": {
        "steps": 1_500, "learning_rate": 1e-4, "warmup_steps": 150, "weight_decay": 0.01,
        "dropout": None,
    },
}  # fmt: skip
TINY = {
    "layers": 8, "width": 512, "heads": 16, "kv_heads": 4, "feed_forward": 1320, "max_length": 512,
}  # fmt: skip
OWN = ("quick", "model-card", "schedule-grampa", "toksuite")  # studies of no table
FULL = [find_study(name) for name in studies() if name not in OWN]


@pytest.mark.parametrize("name", TABLES)
def test_a_preset_is_its_table(name: str) -> None:
    preset = PRESETS[name]
    for field, value in (TABLES[name] | ADAM).items():
        assert getattr(preset, field) == value, field


@pytest.mark.parametrize("study", FULL, ids=lambda study: study.name)
def test_a_study_at_full_scale_has_the_settings_of_the_tables(study: Study) -> None:
    tiny = study.model.name is None
    if tiny:
        assert {name: getattr(study.model, name) for name in TINY} == TINY
        assert study.model.tied
        assert study.tokenizer and (study.tokenizer.name or "").startswith("openai-community/gpt2@")
    parts: dict[str, TrainingSection | None] = {"paper-tiny-llm-pretrain": study.pretrain}
    parts["paper-tiny-llm-finetune" if tiny else "paper-finetune"] = study.finetune
    for name, part in parts.items():
        for field, value in (TABLES[name] if part else {}).items():
            assert getattr(part, field) == value, (name, field)
        assert part is None or part.min_lr_ratio == ADAM["min_lr_ratio"]
    if study.finetune:
        assert study.task and (study.task.train, study.task.words) == (10_000, 1_000)
        if tiny:  # StochasTok's recipe: 60 x 8 rows of 512 tokens
            assert (study.finetune.pack, study.finetune.fixed_draws) == (512, 10)
            assert study.finetune.gradient_accumulation_steps == 8
        else:
            assert study.finetune.lora
            assert asdict(study.finetune.lora) == {"rank": 8, "alpha": 32, "dropout": 0.05}
    assert study.evaluate is None or (study.evaluate.items or 0) >= 500
    assert study.evaluate is None or study.evaluate.draws == 10
    for attack in study.attacks:
        assert (attack.items, attack.steps, attack.objective) == (500, 10, "probability")
