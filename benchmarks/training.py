"""What drawing tokenizations on the fly adds to a training step.

    python benchmarks/training.py [--steps 60] [--rounds 5]

The same model, rows and token counts twice, in turns: tokens drawn by the data set at every
step, and the very same tokens made beforehand. Each line gives the median over the rounds of
the ratio of processor time on one thread, and the share of time a step waited for its batch.
The model is the one of the study `quick`: small, so that a step hides as little as it can.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time

import torch

import robustok as rt
from robustok.models import SHAPES, small_model, train_tokenizer
from robustok.tasks import frequent_words, langgame
from robustok.training import AnswerCollator, PromptDataset, Recipe, Training
from robustok.training.run import train

SCHEMES = (
    "canonical", "stochastok(alpha=1)", "stochastok-uniform(alpha=1)", "uniform-k(alpha=1)",
    "uniform",
)  # fmt: skip
BATCH = 64


class Beforehand(torch.utils.data.Dataset):
    """Rows that are there already."""

    def __init__(self, rows: list) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, indices: list[int]) -> list:
        return [self.rows[i] for i in indices]


def measure(dataset: torch.utils.data.Dataset, size: int, steps: int) -> tuple[float, Training]:
    model = small_model(size, SHAPES["quick"], seed=0)
    recipe = Recipe(steps, BATCH, 1e-3)
    with tempfile.TemporaryDirectory() as out:
        begin = time.process_time()
        done = train(model, dataset, AnswerCollator(0), recipe, seed=0, out=out, settings={})
        return time.process_time() - begin, done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    items = langgame(frequent_words(100), options.steps * BATCH, seed=0, format="short")
    vocab = rt.Vocabulary.load(train_tokenizer([i.question + i.answer for i in items], 600))
    print("| scheme | on the fly / beforehand | waiting, on the fly | beforehand | tokens a step |")
    print("|---|---|---|---|---|")
    for scheme in SCHEMES:
        drawn = PromptDataset(vocab, items, rt.sampler(scheme, vocab), seed=0)
        fixed = Beforehand(drawn.__getitems__(range(len(items))))
        measure(drawn, vocab.size, 5)
        ratios, waits = [], []
        for turn in range(options.rounds):
            pair = [drawn, fixed] if turn % 2 else [fixed, drawn]
            rates = {d is drawn: measure(d, vocab.size, options.steps) for d in pair}
            ratios.append(rates[True][0] / rates[False][0])
            waits.append((rates[True][1].waiting, rates[False][1].waiting))
        mean = rates[True][1].tokens / options.steps
        wait = [statistics.median(w) for w in zip(*waits, strict=True)]
        print(
            f"| {scheme} | {statistics.median(ratios):.3f} | {wait[0]:.1%} | {wait[1]:.1%} "
            f"| {mean:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
