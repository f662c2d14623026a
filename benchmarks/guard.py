"""How fast the guard judges id sequences, beside encoding their text again and comparing.

    python benchmarks/guard.py [--tokenizer T.json ...] [--text FILE.jsonl]

One process, one thread, medians of processor time in turns. `batch` judges all rows at once, `one
by one` each alone; the rows are canonical, drifted by one token in a hundred (stochastok), or drawn
uniformly. A guard remembers nothing, but the encoder of a byte-level BPE tokenizer remembers
pre-tokens, for both. Prints a Markdown table, or --json.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # read at import: one thread for the encoder too
os.environ["RAYON_NUM_THREADS"] = "1"

import numpy as np

import robustok as rt
from sampling import arguments, medians, read_documents

KINDS = ("canonical", "stochastok(alpha=0.01)", "uniform")


def by_encoding(vocab: rt.Vocabulary, rows: rt.Ragged) -> list[bool]:
    """What one would write without a guard: decode, encode, compare."""
    texts = [vocab.decode_bytes(row) for row in rows]
    again = vocab.encode_batch(texts)
    return [np.array_equal(a, b) for a, b in zip(rows, again, strict=True)]


def measured(vocab: rt.Vocabulary, rows: rt.Ragged, rounds: int) -> dict[str, float]:
    """Seconds for these rows by each way."""
    guard = rt.Guard(vocab)
    jobs: dict[str, Callable[[], object]] = {
        "decode, encode, compare": lambda: by_encoding(vocab, rows),
        "guard, batch": lambda: guard.check_batch(rows),
        "guard, one by one": lambda: [guard.check(row) for row in rows],
    }
    return medians(jobs, rounds)


def main() -> None:
    options = arguments(__doc__ or "")
    texts = read_documents(options.text, options.bytes)
    timings = []
    for path in options.tokenizer:
        vocab = rt.Vocabulary.load(path)
        canonical = vocab.encode_batch(texts)
        for name in KINDS:
            rows = rt.sampler(name, vocab).sample_batch(canonical, seed=0)
            seconds = measured(vocab, rows, options.rounds)
            slow = seconds["decode, encode, compare"]
            timings += [
                {
                    "tokenizer": Path(path).parent.name, "rows": name, "what": what,
                    "ids_per_second": len(rows.values) / s, "times": slow / s,
                }
                for what, s in seconds.items()
            ]  # fmt: skip
    if options.json:
        json.dump(timings, sys.stdout, indent=1)
        return
    print("| tokenizer | rows | what | million ids/s | times encoding again |")
    print("|---|---|---|---|---|")
    for r in timings:
        speed = f"{r['ids_per_second'] / 1e6:.2f}"
        print(f"| {r['tokenizer']} | {r['rows']} | {r['what']} | {speed} | {r['times']:.1f} |")


if __name__ == "__main__":
    main()
