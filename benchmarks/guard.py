"""How fast the guard judges id sequences, beside encoding their text again and comparing.

    python benchmarks/guard.py [--tokenizer T.json ...] [--text FILE.jsonl]

One process, one thread, medians of processor time in turns. `batch` judges all rows at once, `one
by one` each alone; the rows are canonical, drifted by one token in a hundred (stochastok), or drawn
uniformly. A guard remembers nothing, but the encoder remembers pre-tokens, for both. A second table
has single requests of 20 to 100,000 characters beside decoding, encoding and comparing with
`tokenizers` alone, in microseconds. Prints Markdown tables, or --json.
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
from common import arguments, medians, print_heads, print_row, read_documents

SIZES = (20, 100, 1000, 10_000, 100_000)
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


def requests(vocab: rt.Vocabulary, texts: list[str], rounds: int) -> list[dict[str, object]]:
    """Microseconds of one request of each size, canonical or drifted, by both ways."""
    guard, tokenizer, text = rt.Guard(vocab), vocab.data.library, " ".join(texts)
    timings: list[dict[str, object]] = []
    for size in SIZES:
        canonical = vocab.encode(text[1000 : 1000 + size])
        repeats = max(1, 20_000 // size)
        for name in KINDS[:2]:
            spec = name.replace("0.01", "0.1")  # so that a short row drifts, too
            ids = rt.sampler(spec, vocab).sample(canonical, seed=1).tolist()

            def library(ids: list[int] = ids, repeats: int = repeats) -> None:
                for _ in range(repeats):
                    back = tokenizer.decode(ids, skip_special_tokens=False)
                    bool(tokenizer.encode(back, add_special_tokens=False).ids == ids)

            def by_guard(ids: list[int] = ids, repeats: int = repeats) -> None:
                for _ in range(repeats):
                    guard.check(ids)

            seconds = medians({"library": library, "guard": by_guard}, rounds)
            timings.append({
                "characters": size, "rows": spec,
                **{what: s / repeats * 1e6 for what, s in seconds.items()},
            })  # fmt: skip
    return timings


def main() -> None:
    options = arguments(__doc__)
    texts = read_documents(options.text, options.bytes)
    timings, singles = [], []
    for path in options.tokenizer:
        vocab = rt.Vocabulary.load(path)
        canonical = vocab.encode_batch(texts)
        name = Path(path).parent.name
        singles += [{"tokenizer": name, **row} for row in requests(vocab, texts, options.rounds)]
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
        json.dump({"batches": timings, "requests": singles}, sys.stdout, indent=1)
        return
    print_heads("tokenizer", "rows", "what", "million ids/s", "times encoding again", texts=3)
    for r in timings:
        speed = f"{r['ids_per_second'] / 1e6:.2f}"
        print_row(r["tokenizer"], r["rows"], r["what"], speed, f"{r['times']:.1f}")
    print()
    print_heads(
        "tokenizer", "rows", "characters", "`tokenizers`, us", "guard, us", "times", texts=2
    )
    for r in singles:
        times = r["library"], r["guard"], r["library"] / r["guard"]
        cells = (f"{value:.1f}" for value in times)
        print_row(r["tokenizer"], r["rows"], f"{r['characters']:,}", *cells)


if __name__ == "__main__":
    main()
