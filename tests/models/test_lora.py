from __future__ import annotations

import pytest
import torch

import robustok as rt
from robustok.errors import RobustokError
from robustok.models import Shape, add_lora, load_model, small_model, train_tokenizer
from robustok.samplers import sampler
from robustok.tasks import frequent_words, langgame
from robustok.training import finetune

# peft asks transformers for a property that it has renamed.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")

ITEMS = langgame(frequent_words(40), 64, seed=0, format="short")
VOCAB = rt.Vocabulary.load(train_tokenizer([i.question + i.answer for i in ITEMS], 400))
IDS = torch.tensor([[5, 6, 7]])


def base(folder):
    small_model(VOCAB.size, Shape(2, 32, 2, 1, 64, 256), seed=0).save_pretrained(folder)
    return load_model(folder)


def logits(model):
    with torch.inference_mode():
        return model.eval()(IDS).logits


def tune(model, out, seed=0):
    return finetune(
        model, VOCAB, ITEMS, sampler=sampler("uniform", VOCAB), seed=seed, out=out,
        steps=20, batch_size=16, learning_rate=1e-2,
    )  # fmt: skip


def test_only_the_adapter_is_trained_and_it_loads_merged(tmp_path):
    before = logits(base(tmp_path / "base"))
    model = add_lora(load_model(tmp_path / "base"), seed=0)
    trained = [n for n, p in model.named_parameters() if p.requires_grad]
    assert trained
    assert all("lora_" in n and ("q_proj" in n or "v_proj" in n) for n in trained)
    torch.testing.assert_close(logits(model), before)
    done = tune(model, tmp_path / "out")
    assert done.losses[-1][1] < done.losses[0][1]
    assert not (tmp_path / "out" / "model.safetensors").exists()
    merged = load_model(tmp_path / "out")
    torch.testing.assert_close(logits(merged), logits(model))
    assert not torch.allclose(logits(merged), before, atol=1e-3)
    again = add_lora(load_model(tmp_path / "base"), seed=0)
    assert tune(again, tmp_path / "out") == done
    torch.testing.assert_close(logits(again), logits(model))


def test_another_seed_is_named_and_not_called_another_model(tmp_path):
    base(tmp_path / "base")
    tune(add_lora(load_model(tmp_path / "base"), seed=0), tmp_path / "out")
    with pytest.raises(RobustokError, match="seed = 0, not 1"):
        tune(add_lora(load_model(tmp_path / "base"), seed=1), tmp_path / "out", seed=1)
    with pytest.raises(RobustokError, match="an adapter made with another seed"):
        tune(add_lora(load_model(tmp_path / "base"), seed=1), tmp_path / "out")


def test_an_unknown_layer_is_one_line(tmp_path):
    with pytest.raises(RobustokError, match="targets"):
        add_lora(base(tmp_path), seed=0, targets=("nope",))
    with pytest.raises(RobustokError, match="rank is 0"):
        add_lora(base(tmp_path), seed=0, rank=0)
