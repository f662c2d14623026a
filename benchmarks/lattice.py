"""Time of counts, probabilities and draws on hostile texts from 4 kB to 4 MB, with its exponent.

    python benchmarks/lattice.py tokenizer.json [--largest 4194304] [--limit 30]

Prints CPU seconds by size and the exponent of a fit from 64 kB on. A size is left out where the
one before it suggests more than ``--limit`` seconds.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

import numpy as np

import robustok as rt
from robustok.lattice import Lattice

SIZES = [4 << 10, 64 << 10, 1 << 20, 4 << 20]


def texts(size: int) -> dict[str, bytes]:
    """One text of about ``size`` bytes for each class of input."""
    rng = random.Random(0)
    words = ["the", "of", "language", "revolution", "models", "are", "broken", "tokens", "and", "x"]
    marks = "".join(f"e{chr(rng.randrange(0x300, 0x370))}" for _ in range(size // 3))
    return {
        "one letter": b"a" * size,
        "two letters": b"he" * (size // 2),
        "no cuts": "".join(rng.choices("etaoinshrdlu", k=size)).encode(),
        "random bytes": rng.randbytes(size),
        "0xFF": b"\xff" * size,
        "combining marks": marks.encode(),
        "English words": " ".join(rng.choices(words, k=size // 5)).encode()[:size],
    }


def operations(vocab: rt.Vocabulary) -> dict[str, Callable[[np.ndarray], object]]:
    """What is timed, by name; each takes canonical ids."""
    uniform = rt.Uniform(vocab)
    half, few = rt.UniformK(vocab, alpha=0.5), rt.UniformK(vocab, alpha=0.1)

    def near_farthest(ids: np.ndarray) -> object:
        farthest = Lattice(vocab, ids).farthest
        return rt.UniformK(vocab, k=farthest - 1).sample(ids, seed=0)

    return {
        "count()": lambda ids: Lattice(vocab, ids).count(),
        "log_count()": lambda ids: Lattice(vocab, ids).log_count(),
        "uniform": lambda ids: uniform.sample(ids, seed=0),
        "uniform.log_prob": uniform.log_prob,
        "uniform-k(alpha=0.1)": lambda ids: few.sample(ids, seed=0),
        "uniform-k(alpha=0.5)": lambda ids: half.sample(ids, seed=0),
        "uniform-k(farthest-1)": near_farthest,
        "uniform-k.log_prob": half.log_prob,
    }


def measure(
    operation: Callable[[np.ndarray], object], rows: list[np.ndarray], limit: float
) -> list[float]:
    """CPU seconds for each row, shortest first; stops where the next would take too long."""
    seconds: list[float] = []
    for ids in rows:
        if len(seconds) > 1:
            growth = seconds[-1] / max(seconds[-2], 1e-4)
            if seconds[-1] * growth > limit:
                break
        begin = time.process_time()
        try:
            operation(ids)
        except rt.RobustokError:
            break
        seconds.append(time.process_time() - begin)
    return seconds


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """The slope of log seconds over log size, without the smallest size; NaN for fewer than 2."""
    if len(seconds) < 3:
        return float("nan")
    x, y = np.log(sizes[1 : len(seconds)]), np.log(np.maximum(seconds[1:], 1e-5))
    return float(np.polyfit(x, y, 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("tokenizer")
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--limit", type=float, default=30.0)
    chosen = parser.parse_args()
    vocab = rt.Vocabulary.load(chosen.tokenizer)
    sizes = [size for size in SIZES if size <= chosen.largest]
    rows = {name: [vocab.encode(texts(size)[name]) for size in sizes] for name in texts(4)}
    for name, operation in operations(vocab).items():
        for ids in (vocab.encode("a" * 2000), vocab.encode("the cat " * 20)):
            operation(ids)  # compiles
        for kind, inputs in rows.items():
            seconds = measure(operation, inputs, chosen.limit)
            shown = "  ".join(f"{s:8.3f}" for s in seconds)
            line = f"{name:22s} {kind:16s} {exponent(sizes, seconds):5.2f}  {shown}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
