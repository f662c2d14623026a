"""Texts of frequent words, a chat tokenizer, a tiny model, and the settings of short trainings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
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
Sequences = list[list[int]]
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
PAD = TOKENIZER.pad_token_id
IDS = [ids.tolist() for ids in VOCAB.encode_batch(TEXTS)]


def tiny() -> Any:
    return small_model(VOCAB.size, Shape(1, 16, 2, 1, 16, 256), seed=0)


def saved_model(folder: Path) -> str:
    """A folder to load a model from, as a trainer does for its reference model."""
    tiny().save_pretrained(folder / "model")
    return str(folder / "model")


def sequences(batch: dict[str, Any]) -> Iterator[list[int]]:
    """The sequences of a batch, packed ones apart, without padding."""
    for n, row in enumerate(batch["input_ids"]):
        if "position_ids" not in batch:
            mask = batch.get("attention_mask", torch.ones_like(batch["input_ids"]))
            yield row[mask[n] == 1].tolist()
            continue
        assert "attention_mask" not in batch  # with one, models attend across sequences
        starts = (batch["position_ids"][n] == 0).nonzero().flatten()[1:].tolist()
        parts = (part.tolist() for part in torch.tensor_split(row, starts))
        yield from (part for part in parts if part != [PAD])


def trained(trainer: Any, resume: Any = None) -> list[Sequences]:
    """Train; the sequences of each step."""
    seen: list[Sequences] = []
    plain = trainer.compute_loss

    def compute_loss(model, inputs, *args, **kwargs):
        seen.append(list(sequences(inputs)))
        return plain(model, inputs, *args, **kwargs)

    trainer.compute_loss = compute_loss
    trainer.train(resume_from_checkpoint=resume)
    return seen


def trained_on_prompts(trainer: Any, resume: Any = None) -> list[Sequences]:
    """Train by GRPO or RLOO; the prompts of each generation."""
    seen: list[Sequences] = []
    generate = trainer._generate_single_turn

    def spy(prompt_ids: Sequences, *args: Any, **kwargs: Any) -> Any:
        seen.append([list(ids) for ids in prompt_ids])
        return generate(prompt_ids, *args, **kwargs)

    trainer._generate_single_turn = spy
    trainer.train(resume_from_checkpoint=resume)
    return seen
