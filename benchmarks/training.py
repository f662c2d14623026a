"""What drawing tokenizations on the fly adds to a training step, and what the training loop adds.

    python benchmarks/training.py [--steps 60] [--rounds 5] [--skip-drawing]

The same model, rows and token counts twice, in turns: tokens drawn by the data set at every
step, and the very same tokens made beforehand. Each line gives the median over the rounds of
the ratio of processor time on one thread, and the share of time a step waited for its batch.
The model is the one of the study `quick`: small, so that a step hides as little as it can.

Then pre-training by `pretrain` beside a plain PyTorch loop (forward, backward, clipping, AdamW, a
learning-rate schedule) on full blocks of the same shape that are in memory already, and beside the
time of the matrix products alone. Each line gives medians over the steps, in processor seconds.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time

import torch

import robustok as rt
from robustok.models import SHAPES, small_model, train_tokenizer
from robustok.tasks import frequent_words, langgame
from robustok.training import AnswerCollator, PromptDataset, Recipe, Training
from robustok.training.pretraining import pretrain
from robustok.training.run import train

SCHEMES = (
    "canonical", "stochastok(alpha=1)", "stochastok-uniform(alpha=1)", "uniform-k(alpha=1)",
    "uniform",
)  # fmt: skip
BATCH = 64
PRETRAINING_BATCH = 8


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


def pretraining_steps(vocab: rt.Vocabulary, shape: str, steps: int) -> list[float]:
    """Processor seconds of each step of `pretrain`, the first five left out."""
    texts = [f"{word} {word[::-1]} " * 4 for word in frequent_words(2000)]
    ends: list[float] = []
    with tempfile.TemporaryDirectory() as out:
        pretrain(
            small_model(vocab.size, SHAPES[shape], seed=0), vocab, texts,
            sampler=rt.sampler("stochastok(alpha=0.1)", vocab), seed=0, out=out, end=0,
            steps=steps + 6, batch_size=PRETRAINING_BATCH, learning_rate=1e-3, save_every=10_000,
            progress=lambda done, total: ends.append(time.process_time()),
        )  # fmt: skip
    return [after - before for before, after in itertools.pairwise(ends)][5:]


def plain_steps(size: int, shape: str, steps: int) -> list[float]:
    """The same for a loop written out."""
    model = small_model(size, SHAPES[shape], seed=0).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, (0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / (steps + 6))
    ids = torch.randint(0, size, (PRETRAINING_BATCH, model.config.max_position_embeddings))
    ends = []
    for _ in range(steps + 6):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        ends.append(time.process_time())
    return [after - before for before, after in itertools.pairwise(ends)][5:]


def matrix_seconds(size: int, shape: str) -> float:
    """Processor seconds of the products of linear layers in a step: one forward, two backward."""
    model = small_model(size, SHAPES[shape], seed=0)
    rows = PRETRAINING_BATCH * model.config.max_position_embeddings
    seconds = 0.0
    with torch.inference_mode():
        for layer in model.modules():
            if isinstance(layer, torch.nn.Linear):
                states = torch.randn(rows, layer.in_features)
                layer(states)
                began = time.process_time()
                layer(states)
                seconds += time.process_time() - began
    return 3 * seconds


def compare_loops(vocab: rt.Vocabulary, shape: str, steps: int, rounds: int) -> None:
    print("| model | tokens a second, pretrain | plain loop | ratio | matrix products' share |")
    print("|---|---|---|---|---|")
    pairs = []
    for turn in range(rounds):
        seconds = {}
        for loop in ("plain", "ours") if turn % 2 else ("ours", "plain"):
            if loop == "ours":
                seconds[loop] = statistics.median(pretraining_steps(vocab, shape, steps))
            else:
                seconds[loop] = statistics.median(plain_steps(vocab.size, shape, steps))
        pairs.append((seconds["ours"], seconds["plain"]))
    ours, plain = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    tokens = PRETRAINING_BATCH * SHAPES[shape].max_length
    print(
        f"| {shape} | {tokens / ours:,.0f} | {tokens / plain:,.0f} | {ratio:.3f} "
        f"| {matrix_seconds(vocab.size, shape) / ours:.0%} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--skip-drawing", action="store_true", help="only compare the loops")
    options = parser.parse_args()
    torch.set_num_threads(1)
    items = langgame(frequent_words(100), options.steps * BATCH, seed=0, format="short")
    vocab = rt.Vocabulary.load(train_tokenizer([i.question + i.answer for i in items], 600))
    if not options.skip_drawing:
        compare_drawing(items, vocab, options)
    compare_loops(vocab, "quick", options.steps, options.rounds)


def compare_drawing(items: list, vocab: rt.Vocabulary, options: argparse.Namespace) -> None:
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
