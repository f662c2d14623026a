"""Answers from the mean over eight tokenizations, beside those from one.

A tiny model is trained on a letter game for a few seconds. Without a hub:
python examples/many_tokenizations.py
"""

from __future__ import annotations

import sys

import torch
from transformers import PreTrainedModel

import robustok as rt
from robustok.evaluation import evaluate
from robustok.models import Shape, small_model, train_tokenizer
from robustok.tasks import frequent_words, langgame
from robustok.training import finetune


def main(out: str = "runs/many-tokenizations", *, steps: int = 40) -> dict[str, float]:
    items = langgame(frequent_words(60), 200, seed=0, format="short")
    vocab = rt.Vocabulary.load(train_tokenizer([i.question + i.answer for i in items], 400))
    model = small_model(vocab.size, Shape(2, 64, 2, 2, 160, 256), seed=0)
    finetune(
        model,
        vocab,
        items,
        sampler=rt.sampler("uniform-k(alpha=1)", vocab),
        seed=0,
        out=out,
        steps=steps,
        batch_size=16,
        learning_rate=3e-3,
    )

    held_out, accuracies = items[:40], {}
    for name, ensemble in (("each draw alone", False), ("mean", True)):
        result = evaluate(model, vocab, held_out, "uniform", draws=8, seed=1, ensemble=ensemble)
        accuracies[name] = result.accuracy
        print(f"{name}: {result.accuracy:.2f}")

    question = held_out[0].question
    print(vocab.decode(generate(model, vocab, question, draws=8, seed=0, max_new_tokens=4)))
    return accuracies


def generate(
    model: PreTrainedModel, vocab: rt.Vocabulary, prompt: str, *, draws: int, seed: int,
    max_new_tokens: int,
) -> list[int]:  # fmt: skip
    """Continue a prompt greedily by the next-token distribution averaged over drawn prompts.

    All prompts get the same new id in each step, with the attention cache of each kept.
    """
    rows = rt.sampler("uniform", vocab).sample_batch([prompt], seed=seed, draws=draws)
    input_ids = torch.as_tensor(rows.left_padded())
    ends = torch.as_tensor(rows.lengths)[:, None]
    attention = (torch.arange(input_ids.shape[1]) >= input_ids.shape[1] - ends).long()
    positions, cache, written = (attention.cumsum(1) - 1).clamp(min=0), None, []
    model.eval()
    with torch.inference_mode():
        for _ in range(max_new_tokens):
            out = model(
                input_ids, attention_mask=attention, position_ids=positions,
                past_key_values=cache, use_cache=True,
            )  # fmt: skip
            mean = out.logits[:, -1, : vocab.size].double().log_softmax(-1).logsumexp(0)
            written.append(int(mean.argmax()))
            cache = out.past_key_values
            input_ids = torch.full((draws, 1), written[-1])
            attention = torch.cat([attention, attention.new_ones(draws, 1)], dim=1)
            positions = positions[:, -1:] + 1
    return written


if __name__ == "__main__":
    main(*sys.argv[1:2])
