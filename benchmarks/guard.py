"""How fast the guard judges id sequences, beside encoding their text again and comparing.

    python benchmarks/guard.py [--tokenizer T.json ...] [--text FILE.jsonl]

One process, one thread, medians of processor time in turns. `batch` judges all rows at once, `one
by one` each alone; the rows are canonical, drifted by one token in a hundred (stochastok), or drawn
uniformly. A guard remembers nothing, but the encoder remembers pre-tokens, for both. A second table
has single requests of 20 to 100,000 characters beside decoding, encoding and comparing with
`tokenizers` alone, in microseconds. Prints Markdown tables.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import robustok as rt
from common import arguments, medians, print_heads, print_row, read_documents

SIZES = (20, 100, 1000, 10_000, 100_000)
KINDS = ("canonical", "stochastok(alpha=0.01)", "uniform")
SLOW = "decode, encode, compare"


def by_encoding(vocab: rt.Vocabulary, rows: rt.Ragged) -> list[bool]:
    """What one would write without a guard: decode, encode, compare."""
    texts = [vocab.decode_bytes(row) for row in rows]
    again = vocab.encode_batch(texts)
    return [np.array_equal(a, b) for a, b in zip(rows, again, strict=True)]


def print_batches(name: str, vocab: rt.Vocabulary, texts: list[str], rounds: int) -> None:
    """Rows of each kind, judged by each way."""
    canonical, guard = vocab.encode_batch(texts), rt.Guard(vocab)
    for kind in KINDS:
        rows = rt.sampler(kind, vocab).sample_batch(canonical, seed=0)
        jobs = {
            SLOW: lambda rows=rows: by_encoding(vocab, rows),
            "guard, batch": lambda rows=rows: guard.check_batch(rows),
            "guard, one by one": lambda rows=rows: [guard.check(row) for row in rows],
        }
        seconds = medians(jobs, rounds)
        for way, s in seconds.items():
            speeds = f"{len(rows.values) / s / 1e6:.2f}", f"{seconds[SLOW] / s:.1f}"
            print_row(name, kind, way, *speeds)


def print_requests(name: str, vocab: rt.Vocabulary, text: str, rounds: int) -> None:
    """Microseconds of one request of each size, canonical or drifted, by both ways."""
    guard, tokenizer = rt.Guard(vocab), vocab.data.library
    for size in SIZES:
        canonical = vocab.encode(text[1000 : 1000 + size])
        repeats = max(1, 20_000 // size)
        for spec in ("canonical", "stochastok(alpha=0.1)"):  # so that a short row drifts, too
            ids = rt.sampler(spec, vocab).sample(canonical, seed=1).tolist()

            def library(ids: list[int] = ids, repeats: int = repeats) -> None:
                for _ in range(repeats):
                    back = tokenizer.decode(ids, skip_special_tokens=False)
                    bool(tokenizer.encode(back, add_special_tokens=False).ids == ids)

            def by_guard(ids: list[int] = ids, repeats: int = repeats) -> None:
                for _ in range(repeats):
                    guard.check(ids)

            slow, fast = medians({"library": library, "guard": by_guard}, rounds).values()
            micro = (f"{seconds / repeats * 1e6:.1f}" for seconds in (slow, fast))
            print_row(name, spec, f"{size:,}", *micro, f"{slow / fast:.1f}")


def main() -> None:
    options = arguments(__doc__)
    texts = read_documents(options.text, options.bytes)
    vocabularies = {Path(path).parent.name: rt.Vocabulary.load(path) for path in options.tokenizer}
    print_heads("tokenizer", "rows", "what", "million ids/s", "times encoding again", texts=3)
    for name, vocab in vocabularies.items():
        print_batches(name, vocab, texts, options.rounds)
    print()
    heads = "characters", "`tokenizers`, us", "guard, us", "times"
    print_heads("tokenizer", "rows", *heads, texts=2)
    for name, vocab in vocabularies.items():
        print_requests(name, vocab, " ".join(texts), options.rounds)


if __name__ == "__main__":
    main()
