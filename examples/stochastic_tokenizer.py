"""A plain PyTorch loop whose tokenizer draws, by one added line.

Trains a tiny model, without a hub: python examples/stochastic_tokenizer.py
"""

from __future__ import annotations

import sys

import torch
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerFast

import robustok as rt
from robustok.models import Shape, small_model, train_tokenizer
from robustok.tasks import frequent_words, langgame


def main(out: str = "runs/stochastic-tokenizer") -> None:
    texts = [
        item.question + item.answer
        for item in langgame(frequent_words(60), 256, seed=0, format="short")
    ]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=train_tokenizer(texts, 400), pad_token="<|endoftext|>"
    )
    model = small_model(len(tokenizer), Shape(1, 32, 2, 1, 32, 256), seed=0)

    tokenizer = rt.stochastic(tokenizer, "uniform-k(alpha=1)", seed=0)  # the added line

    def collate(batch: list[str]) -> dict[str, torch.Tensor]:
        encoded = tokenizer(batch, padding=True, truncation=True, max_length=128)
        rows = encoded.convert_to_tensors("pt")
        labels = rows["input_ids"].masked_fill(rows["attention_mask"] == 0, -100)
        return {**rows, "labels": labels}

    loader = DataLoader(texts, batch_size=32, shuffle=True, collate_fn=collate)  # type: ignore[arg-type]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(2):
        tokenizer.set_epoch(epoch)
        for batch in loader:
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
