"""What makes a step fast changes no result, is put back, and is recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from tests.training.test_finetune import ITEMS, PLAN, UNIFORM, VOCAB, tiny

from robustok.models import add_lora
from robustok.training import finetune, run
from robustok.training.run import fast_steps, step_folder

ON_PROCESSOR = pytest.mark.skipif(
    torch.accelerator.is_available(), reason="eager attention is for processors"
)


@ON_PROCESSOR
@pytest.mark.parametrize("lora", [False, True])
def test_bfloat16_on_a_processor_trains_with_eager_attention(lora: bool) -> None:
    model: Any = add_lora(tiny(), seed=0) if lora else tiny()
    config = model.config
    for precision, length, expected in (
        ("bfloat16", 64, "eager"), ("float32", 64, "sdpa"), ("bfloat16", 4096, "sdpa"),
        ("bfloat16", None, "sdpa"),
    ):  # fmt: skip
        with fast_steps(model, precision, length) as attention:
            assert attention == config._attn_implementation == expected
        assert config._attn_implementation == "sdpa"


def test_the_output_layer_reads_contiguous_states_and_the_loss_stays() -> None:
    model, ids = tiny().eval(), torch.arange(24).reshape(2, 12)
    arguments = {"input_ids": ids, "labels": ids[:, -3:], "logits_to_keep": 3}
    contiguous = []
    spy = torch.nn.Linear.forward

    def forward(layer, states):
        if layer is model.get_output_embeddings():
            contiguous.append(states.is_contiguous())
        return spy(layer, states)

    head: Any = model.get_output_embeddings()
    head.forward = lambda x: forward(head, x)
    before = model(**arguments).loss
    with fast_steps(model, "float32", 12):
        inside = model(**arguments).loss
    model(**arguments)
    assert contiguous == [False, True, False]
    assert torch.equal(before, inside)


def test_the_choice_is_recorded_and_kept_when_the_run_continues(tmp_path, monkeypatch) -> None:
    def stop(step: int, total: int) -> None:
        if step == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finetune(tiny(), VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=tmp_path, progress=stop, **PLAN)
    identity = json.loads((tmp_path / "training.json").read_text())["identity"]
    assert identity["precision"] == "float32"
    # Another machine, which would choose bfloat16.
    monkeypatch.setattr("robustok.training.run.resolve_precision", lambda *a, **k: "bfloat16")
    done = finetune(tiny(), VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=tmp_path, **PLAN)
    assert done.precision == "float32"
    other = finetune(tiny(), VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=tmp_path / "b", **PLAN)
    assert other.precision == "bfloat16"


def test_models_on_the_way_are_kept_and_change_nothing(tmp_path, straight) -> None:
    done = finetune(
        tiny(), VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=tmp_path / "15", keep_every=15, **PLAN
    )
    assert done.losses == straight[0].losses
    folders = [step_folder(tmp_path / "15", step) for step in (15, 30)]
    assert sorted((tmp_path / "15" / "steps").iterdir()) == folders
    weights = [
        (folder / "model.safetensors").read_bytes() for folder in (*folders, tmp_path / "15")
    ]
    assert len(set(weights)) == 3
    shorter = {**PLAN, "steps": 15, "min_lr_ratio": 1.0}
    constant = {**PLAN, "min_lr_ratio": 1.0, "keep_every": 15}
    finetune(tiny(), VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=tmp_path / "s", **shorter)
    finetune(tiny(), VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=tmp_path / "c", **constant)
    kept = step_folder(tmp_path / "c", 15) / "model.safetensors"
    assert kept.read_bytes() == (tmp_path / "s" / "model.safetensors").read_bytes()


def test_a_slow_training_saves_by_the_clock(tmp_path, monkeypatch) -> None:
    saved = []

    def look(step: int, total: int) -> None:
        saved.append(sorted(p.name for p in (tmp_path / "checkpoints").glob("checkpoint-*")))

    monkeypatch.setattr(run, "SAVE_SECONDS", 0)
    plan = {**PLAN, "save_every": 1000}
    finetune(tiny(), VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=tmp_path, progress=look, **plan)
    assert saved[15] == ["checkpoint-10"]
    assert saved[35] == ["checkpoint-20", "checkpoint-30"]
