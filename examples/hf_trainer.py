"""A transformers Trainer script that draws tokenizations, by one added line.

Trains a tiny model from random weights, without a hub: python examples/hf_trainer.py
"""

from __future__ import annotations

import sys

from datasets import Dataset
from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerFast, Trainer, TrainingArguments

from robustok import robustify
from robustok.models import Shape, small_model, train_tokenizer
from robustok.tasks import frequent_words, langgame


def main(out: str = "runs/hf-trainer") -> None:
    items = langgame(frequent_words(60), 256, seed=0, format="short")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=train_tokenizer([i.question + i.answer for i in items], 400),
        pad_token="<|endoftext|>",
    )
    model = small_model(len(tokenizer), Shape(2, 64, 2, 2, 160, 256), seed=0)

    def encode(row: dict[str, str]) -> dict[str, list[int]]:
        prompt, answer = (
            tokenizer(row["question"])["input_ids"],
            tokenizer(row["answer"])["input_ids"],
        )
        return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}

    rows = Dataset.from_list([{"question": i.question, "answer": i.answer} for i in items])
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=out,
            num_train_epochs=2,
            per_device_train_batch_size=32,
            learning_rate=3e-3,
            dataloader_pin_memory=False,
            report_to=[],
        ),
        train_dataset=rows.map(encode, remove_columns=rows.column_names),
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer),
    )

    robustify(trainer, "uniform-k(alpha=1)", seed=0)  # the added line

    trainer.train()
    trainer.save_model(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
