"""LoRA adapters, and the precision that a model is computed in."""

from __future__ import annotations

import pytest
import torch
from tests.training.conftest import tiny, tune

from robustok.errors import RobustokError
from robustok.models import Lora, Shape, add_lora, load, load_model, small_model
from robustok.models.load import resolve_precision

# peft asks transformers for a property that it has renamed.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")

IDS = torch.tensor([[5, 6, 7]])
LARGE = 135_000_000


def base(folder):
    tiny().save_pretrained(folder)
    return load_model(folder)


def logits(model):
    with torch.inference_mode():
        return model.eval()(IDS).logits


def test_only_the_adapter_is_trained_and_it_loads_merged(tmp_path):
    before = logits(base(tmp_path / "base"))
    model = add_lora(load_model(tmp_path / "base"), seed=0)
    trained = [n for n, p in model.named_parameters() if p.requires_grad]
    assert trained
    assert all("lora_" in n and ("q_proj" in n or "v_proj" in n) for n in trained)
    torch.testing.assert_close(logits(model), before)
    done = tune(tmp_path / "out", model)
    assert done.losses[-1][1] < done.losses[0][1]
    assert not (tmp_path / "out" / "model.safetensors").exists()
    merged = load_model(tmp_path / "out")
    torch.testing.assert_close(logits(merged), logits(model))
    assert not torch.allclose(logits(merged), before, atol=1e-3)
    again = add_lora(load_model(tmp_path / "base"), seed=0)
    assert tune(tmp_path / "out", again) == done
    torch.testing.assert_close(logits(again), logits(model))
    with pytest.raises(RobustokError, match="seed = 0, not 1"):
        tune(tmp_path / "out", add_lora(load_model(tmp_path / "base"), seed=1), seed=1)
    with pytest.raises(RobustokError, match="an adapter made with another seed"):
        tune(tmp_path / "out", add_lora(load_model(tmp_path / "base"), seed=1))


def test_an_unknown_layer_is_one_line(tmp_path):
    with pytest.raises(RobustokError, match="targets"):
        add_lora(base(tmp_path), seed=0, targets=("nope",))
    with pytest.raises(RobustokError, match="rank is 0"):
        add_lora(base(tmp_path), Lora(rank=0), seed=0)


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch):
    """A function that gives the processor these flags for the test."""

    def pretend(**flags: bool) -> None:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: flags, raising=False)

    return pretend


@pytest.mark.parametrize(
    ("flag", "large"),
    [("avx512_bf16", "bfloat16"), ("amx_bf16", "bfloat16"), ("avx512_vnni", "float32")],
)
def test_native_bfloat16_is_chosen_for_large_models(processor, flag: str, large: str) -> None:
    processor(**{"avx512_f": True, flag: True})
    assert resolve_precision("auto", LARGE) == large
    assert resolve_precision("auto", 1_000_000) == "float32"
    assert [resolve_precision(p, LARGE) for p in ("float32", "bfloat16")] == ["float32", "bfloat16"]
    with pytest.raises(RobustokError, match="unknown precision"):
        resolve_precision("half", 1)


@pytest.mark.parametrize("supported", [True, False])
def test_a_gpu_takes_bfloat16_where_it_has_it(monkeypatch, supported: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    expected = "bfloat16" if supported else "float32"
    assert resolve_precision("auto", 1_000_000, device="cuda") == expected
    assert resolve_precision("auto", LARGE, device="mps") == "float32"


def test_a_model_is_loaded_in_the_type_that_the_processor_computes_fastest_in(
    processor, monkeypatch, tmp_path
) -> None:
    small_model(300, Shape(1, 16, 2, 2, 32, 64), seed=0).bfloat16().save_pretrained(tmp_path)
    processor()
    model = load_model(tmp_path)
    assert model.dtype == torch.float32
    kept = load_model(tmp_path, dtype="bfloat16")
    assert kept.dtype == torch.bfloat16
    for one, other in zip(model.parameters(), kept.parameters(), strict=True):
        assert torch.equal(one, other.float())
    monkeypatch.setattr(load, "_LEAST", 0)
    processor(avx512_bf16=True)
    assert load_model(tmp_path).dtype == torch.bfloat16
    processor()
    monkeypatch.setattr(load, "_LARGE", 1)
    assert load_model(tmp_path).dtype == torch.bfloat16  # as saved
