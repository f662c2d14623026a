"""A PyTorch loop over canonical ids whose collate function draws, in two worker processes.

Trains a tiny model, without a hub: python examples/torch_loop.py
"""

from __future__ import annotations

import sys

import torch
from torch.utils.data import DataLoader

import robustok as rt
from robustok import TorchCollator
from robustok.models import Shape, small_model
from robustok.tasks import frequent_words, langgame


def main(out: str = "runs/torch-loop") -> None:
    items = langgame(frequent_words(60), 128, seed=0, format="short")
    vocab = rt.Vocabulary.load("demo")
    prompts = vocab.encode_batch([item.question for item in items])
    answers = vocab.encode_batch([item.answer for item in items])
    rows = [
        {"input_ids": [*prompt, *answer], "labels": [-100] * len(prompt) + answer.tolist()}
        for prompt, answer in zip(prompts, answers, strict=True)
    ]
    model = small_model(vocab.size, Shape(1, 32, 2, 1, 32, 256), seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    sampler = rt.sampler("uniform-k(alpha=0.5)", vocab)
    collate = TorchCollator(sampler, seed=0, pad_id=0)  # draws the prompts
    loader = DataLoader(
        rows,  # type: ignore[arg-type]
        batch_size=32,
        shuffle=True,
        collate_fn=collate,
        num_workers=2,
        persistent_workers=True,
    )
    for epoch in range(2):
        collate.set_epoch(epoch)
        for batch in loader:
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    model.save_pretrained(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
