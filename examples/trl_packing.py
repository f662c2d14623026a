"""A TRL SFTTrainer script with packing and a stream of text that draws, by one added line.

Every packed document is drawn by itself, and packed again with its new length. Needs trl. Trains a
tiny model, without a hub: python examples/trl_packing.py
"""

from __future__ import annotations

import sys

from datasets import Dataset
from transformers import PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from robustok import robustify
from robustok.models import Shape, small_model, train_tokenizer
from robustok.tasks import frequent_words, langgame


def main(out: str = "runs/trl-packing") -> None:
    texts = [
        item.question + item.answer
        for item in langgame(frequent_words(60), 256, seed=0, format="short")
    ]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=train_tokenizer(texts, 400),
        pad_token="<|endoftext|>",
        eos_token="<|endoftext|>",
    )
    trainer = SFTTrainer(
        model=small_model(len(tokenizer), Shape(1, 32, 2, 1, 32, 256), seed=0),
        args=SFTConfig(
            output_dir=out,
            packing=True,  # strategy bfd
            max_length=128,
            num_train_epochs=2,
            per_device_train_batch_size=4,
            bf16=False,
            gradient_checkpointing=False,
            dataloader_pin_memory=False,
            report_to=[],
        ),
        train_dataset=Dataset.from_dict({"text": texts}),
        processing_class=tokenizer,
    )

    robustify(trainer, "uniform-k(alpha=0.5)", seed=0, where="all")  # the added line

    trainer.train()
    trainer.save_model(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
