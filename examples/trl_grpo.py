"""A TRL GRPOTrainer script that draws the prompts, by one added line.

Each generation of a group has a prompt of its own; with share_group=True they share one. The same
line serves RLOOTrainer. Needs trl. Trains a tiny model, without a hub: python examples/trl_grpo.py
"""

from __future__ import annotations

import sys
from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from robustok import robustify
from robustok.models import Shape, small_model, train_tokenizer
from robustok.tasks import frequent_words, langgame


def right_answers(completions: list[str], answer: list[str], **_: Any) -> list[float | None]:
    return [float(text.startswith(a)) for text, a in zip(completions, answer, strict=True)]


def main(out: str = "runs/trl-grpo") -> None:
    items = langgame(frequent_words(60), 16, seed=0, format="short")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=train_tokenizer([item.question + item.answer for item in items], 400),
        pad_token="<|endoftext|>",
        eos_token="<|endoftext|>",
    )
    trainer = GRPOTrainer(
        model=small_model(len(tokenizer), Shape(1, 32, 2, 1, 32, 256), seed=0),
        reward_funcs=right_answers,
        args=GRPOConfig(
            output_dir=out,
            num_generations=4,
            max_completion_length=4,
            num_train_epochs=2,
            per_device_train_batch_size=16,
            bf16=False,
            gradient_checkpointing=False,
            dataloader_pin_memory=False,
            report_to=[],
        ),
        train_dataset=Dataset.from_list(
            [{"prompt": item.question, "answer": item.answer} for item in items]
        ),
        processing_class=tokenizer,
    )

    robustify(trainer, "uniform-k(alpha=0.5)", seed=0, share_group=False)  # the added line

    trainer.train()
    trainer.save_model(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
