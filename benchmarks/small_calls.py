"""Time of one call on one short text, beside the encoders that a user has anyway.

    python benchmarks/small_calls.py [--tokenizer T.json] [--rounds 200] [--json]

All calls take turns in one process, ten at a time. A row is the median of the rounds and the
quartiles, in microseconds, and the median as a multiple of `tokenizers.encode`. The text has 20
characters, that of the lattice 1,000. Needs a warm cache of kernels (`rt.warmup()`).
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import robustok as rt
from common import in_turns, options_of, print_heads, print_row, tokenizer_file
from robustok.lattice import Lattice

TEXT = "The quick brown fox."
SENTENCE = "Every tokenization of a text is a path through its lattice, from byte 0 to its end. "
LONG = (SENTENCE * 12)[:1000]
SPECS = (
    "canonical", "stochastok(alpha=0.1)", "stochastok-uniform(alpha=0.5)", "uniform",
    "uniform-k(alpha=0.5)", "bpe-dropout(p=0.1)", "mix(0.5 canonical, 0.5 uniform)",
)  # fmt: skip
REFERENCE = "tokenizers.encode"
CALLS = 10  # of one turn: few enough to fit in a slice of the scheduler


def calls(path: Path) -> dict[str, Callable[[], Any]]:
    """What is timed, by name."""
    from tokenizers import Tokenizer

    library = Tokenizer.from_file(str(path))
    vocab = rt.Vocabulary.load(path)
    ids, long_ids = vocab.encode(TEXT), vocab.encode(LONG)
    guard = rt.Guard(vocab)
    timed: dict[str, Callable[[], Any]] = {
        REFERENCE: lambda: library.encode(TEXT, add_special_tokens=False).ids,
        "Vocabulary.encode": lambda: vocab.encode(TEXT),
        "Guard.check": lambda: guard.check(ids),
    }
    for spec in SPECS:
        sampler = rt.sampler(spec, vocab)
        timed[f"{spec}, ids"] = lambda s=sampler: s.sample(ids, seed=0)
        timed[f"{spec}, text"] = lambda s=sampler: s.sample(TEXT, seed=0)
    uniform = rt.sampler("uniform", vocab)
    timed["Lattice(1,000 characters).count"] = lambda: Lattice(vocab, long_ids).count()
    timed["uniform.log_prob(1,000 characters)"] = lambda: uniform.log_prob(long_ids)
    return timed


def measure(timed: dict[str, Callable[[], Any]], rounds: int) -> dict[str, dict[str, float]]:
    """Median and quartiles in microseconds, and the median as a multiple of the reference's."""

    def turn(call: Callable[[], Any]) -> None:
        for _ in range(CALLS):
            call()

    jobs = {name: partial(turn, call) for name, call in timed.items()}
    seconds = in_turns(jobs, rounds, time.perf_counter)
    base = statistics.median(seconds[REFERENCE])
    rows = {}
    for name, values in seconds.items():
        low, middle, high = (q / CALLS * 1e6 for q in statistics.quantiles(values, n=4))
        ratio = statistics.median(values) / base
        rows[name] = {"median": middle, "low": low, "high": high, "ratio": ratio}
    return rows


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--tokenizer", type=Path, default=tokenizer_file("gpt2"))
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = measure(calls(arguments.tokenizer), arguments.rounds)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print_heads("call", "median, µs", "quartiles", "× tokenizers.encode")
    for name, row in rows.items():
        quartiles = f"{row['low']:.1f} to {row['high']:.1f}"
        print_row(f"`{name}`", f"{row['median']:.1f}", quartiles, f"{row['ratio']:.2f}")


if __name__ == "__main__":
    main()
