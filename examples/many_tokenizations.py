"""Answers from the mean over eight tokenizations, beside those from one.

A tiny model is trained on a letter game for a few seconds. Without a hub:
python examples/many_tokenizations.py
"""

from __future__ import annotations

import sys

import robustok as rt
from robustok.evaluation import choose, evaluate, generate
from robustok.models import Shape, small_model, train_tokenizer
from robustok.tasks import frequent_words, langgame
from robustok.training import finetune


def main(out: str = "runs/many-tokenizations", steps: int = 40) -> dict[str, float]:
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
    for name in (None, "mean", "vote"):
        result = evaluate(model, vocab, held_out, "uniform", draws=8, seed=1, ensemble=name)
        accuracies[str(name)] = result.accuracy
        print(f"{name or 'each draw alone'}: {result.accuracy:.2f}")

    item = held_out[0]
    answer = choose(model, vocab, item.question, item.choices, "uniform", draws=8, seed=0)
    print(f"votes {answer.votes}, at least {answer.lower:.2f} of all tokenizations agree")
    print(vocab.decode(generate(model, vocab, item.question, draws=8, seed=0, max_new_tokens=4)))
    return accuracies


if __name__ == "__main__":
    main(*sys.argv[1:2])
