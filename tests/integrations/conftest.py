"""Texts of frequent words, a chat tokenizer, a tiny model, and the settings of short trainings."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast, Trainer, TrainingArguments

import robustok as rt
from robustok.models import Shape, small_model, train_tokenizer
from robustok.tasks import frequent_words

WORDS = frequent_words(60)
RNG = np.random.default_rng(0)
TEXTS = [" ".join(RNG.choice(WORDS, 12)) for _ in range(24)]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% generation %}{{ m['content'] | trim }}{% endgeneration %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
COMMON: dict[str, Any] = {
    "report_to": [], "disable_tqdm": True, "seed": 3, "dataloader_pin_memory": False,
    "use_cpu": True, "per_device_train_batch_size": 8, "num_train_epochs": 1,
    "save_strategy": "no",
}  # fmt: skip
Sequences = list[list[int]]


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


def make_trainer(
    folder: Any, rows: Any, tokenizer: Any = None, *, data_collator: Any = None,
    callbacks: Any = None, **settings: Any,
) -> Trainer:  # fmt: skip
    """A Trainer of a tiny model, for one epoch by default."""
    return Trainer(
        tiny(), TrainingArguments(str(folder), **{**COMMON, **settings}), train_dataset=rows,
        eval_dataset=rows, processing_class=tokenizer, data_collator=data_collator,
        callbacks=callbacks,
    )  # fmt: skip


def trl_trainer(
    kind: str, folder: Path, rows: Any, tokenizer: Any = None, *, reward: Any = None,
    callbacks: Any = None, **settings: Any,
) -> Any:  # fmt: skip
    """TRL's trainer ``kind``, such as SFT, of rows in a list or a data set."""
    import trl
    from datasets import Dataset

    of_kind: dict[str, Any] = {}
    if kind in ("GRPO", "RLOO"):
        settings = {"num_generations": 2, "max_completion_length": 4, **settings}
        of_kind["reward_funcs"] = reward or (lambda completions, **_: [*range(len(completions))])
    if kind == "Distillation":
        of_kind["teacher_model"] = tiny()
    if kind != "SFT":  # loads its reference model from a folder
        tiny().save_pretrained(folder / "model")
    settings = {**COMMON, "bf16": False, "gradient_checkpointing": False, **settings}
    return getattr(trl, f"{kind}Trainer")(
        model=tiny() if kind == "SFT" else str(folder / "model"),
        args=getattr(trl, f"{kind}Config")(str(folder), **settings),
        train_dataset=Dataset.from_list(rows) if isinstance(rows, list) else rows,
        processing_class=tokenizer or chat_tokenizer(), callbacks=callbacks, **of_kind,
    )  # fmt: skip


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
