"""What drawing tokenizations on the fly adds to a training step, and what a step costs.

    python benchmarks/training.py [--steps 60] [--rounds 5]
    python benchmarks/training.py --price [--model smollm2-135m] [--rows 16] [--steps 6]

The same model, rows and token counts twice, in turns: tokens drawn by the data set at every
step, and the very same tokens made beforehand. Each line gives the median over the rounds of
the ratio of processor time on one thread, and the share of time a step waited for its batch.
The model is the one of the study `quick`: small, so that a step hides as little as it can.

With --price: the processor seconds of a fine-tuning step on LangGame, all weights and LoRA, without
and with what `robustok.training.run` and the order of rows do, in turns. Without: rows in
random order, PyTorch's attention, the head as it is, in float32 and in bfloat16. With: the
precision that `auto` chooses here. The ratio is the median over the rounds.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch

import robustok as rt
from common import options_of, print_heads, print_row
from robustok.models import SHAPES, add_lora, load_model, small_model, train_tokenizer
from robustok.models.load import resolve_precision
from robustok.tasks import frequent_words, langgame
from robustok.training import Recipe, Training
from robustok.training.rows import AnswerCollator, PromptDataset, RowOrder
from robustok.training.run import fast_steps, train

SCHEMES = (
    "canonical", "stochastok(alpha=1)", "stochastok-uniform(alpha=1)", "uniform-k(alpha=1)",
    "uniform",
)  # fmt: skip
BATCH = 64


class Beforehand(torch.utils.data.Dataset):
    """The rows of a data set, drawn already."""

    def __init__(self, drawn: PromptDataset) -> None:
        self.rows = drawn.__getitems__(range(len(drawn)))
        self.seed, self.row_length = drawn.seed, drawn.row_length

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, indices: list[int]) -> list:
        return [self.rows[i % len(self)] for i in indices]


def measure(dataset: torch.utils.data.Dataset, size: int, steps: int) -> tuple[float, Training]:
    model = small_model(size, SHAPES["quick"], seed=0)
    recipe = Recipe(steps, BATCH, 1e-3)
    with tempfile.TemporaryDirectory() as out:
        begin = time.process_time()
        done = train(model, dataset, AnswerCollator(0), recipe, out=out, settings={})
        return time.process_time() - begin, done


class Price(NamedTuple):
    """One way to compute the steps."""

    name: str
    precision: str
    fast: bool


def question_batches(vocab: rt.Vocabulary, scheme: str, rows: int) -> Iterator[dict]:
    """Batches of LangGame in the paper's wording, in random order."""
    items = langgame(frequent_words(1000), 50 * rows, seed=0)
    drawn = PromptDataset(
        vocab, items, rt.sampler(scheme, vocab), seed=0, prefix=[0], overflow="canonical"
    )
    order = list(RowOrder(drawn, len(drawn)))
    collate = AnswerCollator(0)
    for begin in range(0, len(order), rows):
        yield collate(drawn.__getitems__(order[begin : begin + rows]))


def step_seconds(model: Any, batches: Iterator[dict], price: Price, steps: int) -> float:
    """Processor seconds of a step, the first one left out.

    Batches have different numbers of tokens, so it is the time of a token times those of a step.
    """
    trained = [weights for weights in model.parameters() if weights.requires_grad]
    optimizer = torch.optim.AdamW(trained, 1e-5, fused=True)
    began, tokens = 0.0, 0
    batches, every = itertools.tee(batches)
    sizes = [int(batch["attention_mask"].sum()) for batch in every]
    with fast_steps(model, price.precision, 128) if price.fast else nullcontext():
        for step, batch in enumerate(itertools.islice(batches, steps + 1)):
            if step == 1:
                began = time.process_time()
            tokens += sizes[step] if step else 0
            with torch.autocast("cpu", torch.bfloat16, enabled=price.precision == "bfloat16"):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return (time.process_time() - began) / tokens * statistics.mean(sizes)


def compare_prices(options: argparse.Namespace) -> None:
    vocab = rt.Vocabulary.load(options.model)
    heads = "without, float32", "without, bfloat16", "with", "ratio"
    print_heads("training", "scheme", *heads, texts=2)
    for lora in (False, True):
        model: Any = load_model(options.model, dtype="float32").train()
        chosen = resolve_precision("auto", model.num_parameters())
        if lora:
            model = add_lora(model, seed=0)
        prices = [
            Price("without, float32", "float32", False),
            Price("without, bfloat16", "bfloat16", False),
            Price(f"with, {chosen}", chosen, True),
        ]
        for scheme in ("canonical", "uniform-k(alpha=1)"):
            rounds: list[list[float]] = []
            for turn in range(options.rounds):
                seconds = {}
                for price in reversed(prices) if turn % 2 else prices:
                    batches = question_batches(vocab, scheme, options.rows)
                    seconds[price] = step_seconds(model, batches, price, options.steps)
                rounds.append([seconds[price] for price in prices])
            medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
            # Before, LoRA computed in float32 by default; full training in the faster one.
            ratio = statistics.median((row[0] if lora else min(row[:2])) / row[2] for row in rounds)
            seconds = [f"{median:.2f}" for median in medians]
            seconds[2] += f", {chosen}"
            print_row("LoRA" if lora else "full", scheme, *seconds, f"{ratio:.2f}")


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--price", action="store_true", help="seconds of a fine-tuning step")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rows", type=int, default=16)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.price:
        compare_prices(options)
        return
    items = langgame(frequent_words(100), options.steps * BATCH, seed=0, format="short")
    vocab = rt.Vocabulary.load(train_tokenizer([i.question + i.answer for i in items], 600))
    compare_drawing(items, vocab, options)


def compare_drawing(items: list, vocab: rt.Vocabulary, options: argparse.Namespace) -> None:
    heads = "on the fly / beforehand", "waiting, on the fly", "beforehand", "tokens a step"
    print_heads("scheme", *heads)
    for scheme in SCHEMES:
        drawn = PromptDataset(vocab, items, rt.sampler(scheme, vocab), seed=0)
        fixed = Beforehand(drawn)
        measure(drawn, vocab.size, 5)
        ratios, waits = [], []
        for turn in range(options.rounds):
            pair = [drawn, fixed] if turn % 2 else [fixed, drawn]
            rates = {d is drawn: measure(d, vocab.size, options.steps) for d in pair}
            ratios.append(rates[True][0] / rates[False][0])
            waits.append((rates[True][1].waiting, rates[False][1].waiting))
        mean = rates[True][1].tokens / options.steps
        wait = (f"{statistics.median(w):.1%}" for w in zip(*waits, strict=True))
        print_row(scheme, f"{statistics.median(ratios):.3f}", *wait, f"{mean:.0f}")


if __name__ == "__main__":
    main()
