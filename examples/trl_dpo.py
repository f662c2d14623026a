"""A TRL DPOTrainer script that draws the prompts, by one added line; completions stay canonical.

Needs trl. Trains a tiny model, without a hub: python examples/trl_dpo.py
"""

from __future__ import annotations

import sys

from datasets import Dataset
from transformers import PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer

from robustok import robustify
from robustok.models import Shape, small_model, train_tokenizer
from robustok.tasks import frequent_words, langgame


def main(out: str = "runs/trl-dpo") -> None:
    items = langgame(frequent_words(60), 64, seed=0, format="short")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=train_tokenizer([item.question + item.answer for item in items], 400),
        pad_token="<|endoftext|>",
        eos_token="<|endoftext|>",
    )
    small_model(len(tokenizer), Shape(1, 32, 2, 1, 32, 256), seed=0).save_pretrained(f"{out}/start")
    rows = [
        {
            "prompt": item.question,
            "chosen": item.answer,
            "rejected": next(choice for choice in item.choices if choice != item.answer),
        }
        for item in items
    ]
    trainer = DPOTrainer(
        model=f"{out}/start",
        args=DPOConfig(
            output_dir=out,
            max_length=128,
            num_train_epochs=2,
            per_device_train_batch_size=16,
            bf16=False,
            gradient_checkpointing=False,
            dataloader_pin_memory=False,
            report_to=[],
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )

    robustify(trainer, "uniform-k(alpha=0.5)", seed=0)  # the added line

    trainer.train()
    trainer.save_model(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
