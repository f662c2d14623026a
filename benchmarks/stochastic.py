"""Cost of a tokenizer wrapped by rt.stochastic, as a multiple of the same one unwrapped.

    python benchmarks/stochastic.py [--tokenizer T.json ...] [--text FILE.jsonl.xz] [--rounds 7]

Three interfaces: `tokenizers` (encode of one text, encode_batch of 64), a transformers tokenizer
around it, and sentencepiece's own sampling over the same tokens, whose ids are compared with
`tokenizers` wrapped. Ids and masks are read; "+ lists" reads token strings, words and offsets too.
The fast encoder is loaded, as it is in any training. One process, one thread. Every text is new to
every tokenizer. In each round all of them encode the same texts, in turns; a row has the medians
over the rounds of ratios of processor time.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

import robustok as rt
from common import (
    Encode,
    arguments,
    print_heads,
    print_row,
    read_documents,
    sentencepiece_sampler,
)

SPEC = "stochastok(alpha=0.5)"
SHORT, BATCH = 50, 64  # characters of a short text, texts of a batch
# Each shape: characters of a text, texts of a call, calls of a turn.
SHAPES = {
    "one text, 50 characters": (SHORT, 1, BATCH),
    f"{BATCH} texts, 50 characters": (SHORT, BATCH, 1),
    "one text, 8,000 characters": (8_000, 1, 1),
    "one text, 64 KB": (65_536, 1, 1),
}


def encoders(path: Path) -> dict[str, Encode]:
    """What is timed, each with a tokenizer of its own, since tokenizers remember words."""

    def library(tokenizer: Any) -> Encode:
        def encode(texts: list[str]) -> Any:
            if len(texts) == 1:
                encodings = [tokenizer.encode(texts[0])]
            else:
                encodings = tokenizer.encode_batch(texts)
            return [(one.ids, one.attention_mask) for one in encodings]

        return encode

    def transformer(tokenizer: Any) -> Encode:
        return lambda texts: tokenizer(texts[0] if len(texts) == 1 else texts)

    def wrapped(tokenizer: Any) -> Any:
        drawing = rt.stochastic(tokenizer, SPEC, seed=0)
        drawing.draws.vocab.gigatoken.load()
        return drawing

    def with_lists(tokenizer: Any) -> Encode:
        def encode(texts: list[str]) -> Any:
            batch = tokenizer(texts, return_offsets_mapping=True)
            return batch, [(one.word_ids, one.tokens) for one in batch.encodings]

        return encode

    def plain() -> Any:
        return Tokenizer.from_file(str(path))

    def pretrained() -> Any:
        return PreTrainedTokenizerFast(tokenizer_object=plain())

    jobs = {
        "tokenizers": library(plain()),
        "tokenizers wrapped": library(wrapped(plain())),
        "transformers": transformer(pretrained()),
        "transformers wrapped": transformer(wrapped(pretrained())),
        "+ lists": with_lists(pretrained()),
        "+ lists wrapped": with_lists(wrapped(pretrained())),
    }
    sample = sentencepiece_sampler(rt.Vocabulary.load(path))
    if sample is not None:
        jobs["sentencepiece"] = lambda texts: [sample(text) for text in texts]
    return jobs


def turns(texts: Iterator[str], shape: tuple[int, int, int]) -> list[list[str]]:
    """The calls of one turn, each a list of new texts."""
    _, size, calls = shape
    return [[next(texts) for _ in range(size)] for _ in range(calls)]


def measured(jobs: dict[str, Encode], text: Iterator[str], shape: Any, rounds: int) -> Any:
    """Seconds of each encoder in each round."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    order = list(jobs)
    for number in range(rounds + 2):
        calls = turns(text, shape)
        for name in order[number % len(order) :] + order[: number % len(order)]:
            start = time.process_time()
            results = [jobs[name](texts) for texts in calls]
            spent = time.process_time() - start
            if number > 1:
                seconds[name].append(spent)
            del results  # freeing them is not the next encoder's
    return seconds


def slices(text: str, size: int) -> Iterator[str]:
    """Consecutive parts of a text, none twice."""
    return (text[i : i + size] for i in itertools.count(0, size) if i + size <= len(text))


def main() -> None:
    options = arguments(__doc__, 12 << 20)
    text = "\n".join(read_documents(options.text, options.bytes))
    pairs = [("tokenizers wrapped", "tokenizers"), ("transformers wrapped", "transformers"),
             ("+ lists wrapped", "+ lists"), ("tokenizers wrapped", "sentencepiece")]  # fmt: skip
    print_heads("tokenizer", "texts", *(f"{a} / {b}" for a, b in pairs), texts=2)
    for path in map(Path, options.tokenizer):
        jobs = encoders(path)
        at = 0
        for name, shape in SHAPES.items():
            need = shape[0] * shape[1] * shape[2] * (options.rounds + 2)
            if at + need > len(text):
                sys.exit(f"--rounds {options.rounds} needs {need} characters more: pass more text")
            seconds = measured(jobs, slices(text[at : at + need], shape[0]), shape, options.rounds)
            at += need
            cells = []
            for a, b in pairs:
                ratios = zip(seconds[a], seconds.get(b, ()), strict=b in jobs)
                cells.append(statistics.median([x / y for x, y in ratios] or [float("nan")]))
            print_row(path.parent.name, name, *(f"{cell:.2f}" for cell in cells))


if __name__ == "__main__":
    main()
