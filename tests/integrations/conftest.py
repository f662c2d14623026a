"""Texts of frequent words, a chat tokenizer, a tiny model, and the settings of short trainings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

import robustok as rt
from robustok.models import Shape, small_model, train_tokenizer
from robustok.tasks import frequent_words

WORDS = frequent_words(60)
RNG = np.random.default_rng(0)
TEXTS = [" ".join(RNG.choice(WORDS, 12)) for _ in range(24)]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
COMMON: dict[str, Any] = {
    "report_to": [], "disable_tqdm": True, "seed": 3, "dataloader_pin_memory": False,
    "use_cpu": True,
}  # fmt: skip
TRL: dict[str, Any] = {**COMMON, "bf16": False, "gradient_checkpointing": False}


def chat_tokenizer(
    template: str | None = CHATML, specials: Sequence[str] = ("<|im_start|>", "<|im_end|>")
) -> Any:
    tokenizer = train_tokenizer([*TEXTS, "system user assistant\n\n"] * 2, 400)
    tokenizer.add_special_tokens(list(specials))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|endoftext|>", chat_template=template,
        eos_token="<|im_end|>" if template == CHATML else None,
    )  # fmt: skip


TOKENIZER = chat_tokenizer()
VOCAB = rt.Vocabulary.load(TOKENIZER)
IDS = [ids.tolist() for ids in VOCAB.encode_batch(TEXTS)]


def tiny() -> Any:
    return small_model(VOCAB.size, Shape(1, 16, 2, 1, 16, 256), seed=0)


def saved_model(folder: Path) -> str:
    """A folder to load a model from, as a trainer does for its reference model."""
    tiny().save_pretrained(folder / "model")
    return str(folder / "model")
