"""Questions, a tiny model, and the training of it that most tests compare theirs with."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.oracles.models import tiny_model
from transformers import (
    BartConfig,
    BartForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    RobertaConfig,
    RobertaForCausalLM,
    RwkvConfig,
    RwkvForCausalLM,
)

import robustok as rt
from robustok.models import Shape, small_model, train_tokenizer
from robustok.tasks import frequent_words, langgame
from robustok.training import Training, finetune
from robustok.training.rows import PromptDataset

ITEMS = langgame(frequent_words(40), 240, seed=0, format="short")
VOCAB = rt.Vocabulary.load(train_tokenizer([i.question + i.answer for i in ITEMS], 500))
UNIFORM = rt.sampler("uniform", VOCAB)
PLAN = {"steps": 30, "batch_size": 16, "learning_rate": 1e-2, "save_every": 10}

ARCHITECTURES = ("llama", "gpt2", "qwen3", "gemma3", "bloom", "opt")


def tiny(seed: int = 0, max_length: int = 256) -> Any:
    return small_model(VOCAB.size, Shape(2, 32, 2, 1, 64, max_length), seed=seed)


def architecture(kind: str) -> Any:
    """A model of random weights by transformers' own class."""
    shape: dict[str, Any] = {"vocab_size": VOCAB.size, "hidden_size": 32, "num_hidden_layers": 2}
    heads: dict[str, Any] = {"num_attention_heads": 2}
    if kind == "opt":
        config = OPTConfig(**shape, **heads, ffn_dim=64, word_embed_proj_dim=32)
        return OPTForCausalLM(config).eval()
    if kind == "bart":
        config = BartConfig(
            vocab_size=VOCAB.size, d_model=32, decoder_layers=2, decoder_attention_heads=2,
            decoder_ffn_dim=64,
        )  # fmt: skip
        return BartForCausalLM(config).eval()
    if kind == "roberta":
        config = RobertaConfig(**shape, **heads, intermediate_size=64, is_decoder=True)
        return RobertaForCausalLM(config).eval()
    if kind == "rwkv":
        return RwkvForCausalLM(RwkvConfig(**shape)).eval()
    return tiny_model(kind, VOCAB.size)


def data(scheme: str = "uniform", items: Any = ITEMS, seed: int = 0, **options: Any) -> Any:
    return PromptDataset(VOCAB, items, rt.sampler(scheme, VOCAB), seed=seed, **options)


def tune(out: Path, model: Any = None, items: Any = ITEMS, **options: Any) -> Training:
    """Fine-tune by `PLAN`."""
    settings: dict[str, Any] = {"sampler": UNIFORM, "seed": 0, **PLAN, **options}
    return finetune(tiny() if model is None else model, VOCAB, items, out=out, **settings)


def stop_at(stop: int) -> Callable[[int, int], None]:
    """A callback for progress that ends the run at a step."""

    def progress(step: int, total: int) -> None:
        if step == stop:
            raise KeyboardInterrupt

    return progress


def stopped(out: Path, step: int, **options: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        tune(out, progress=stop_at(step), **options)


@pytest.fixture(scope="session")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Training, Path]:
    """The record and the folder of the training by `PLAN` that nothing disturbs."""
    out = tmp_path_factory.mktemp("straight")
    return tune(out), out
