"""Growth of time on hostile inputs: the exponent of every operation, from 64 KB to 4 MB.

    python benchmarks/hostile.py --tokenizer tokenizer.json
    python benchmarks/hostile.py --tokenizer tokenizer.json --only guard encode --json out.json

For each operation and each class of input this measures processor seconds at growing sizes (the
median of three calls where they are short) and fits the slope of log time over log size by least
squares, leaving out times below a millisecond, where fixed costs dominate. An exponent of 1 is
linear. gigatoken looks up a pre-token that it has seen, one of 64 KB at a fifteenth of the time, so
what encodes gets a text that its vocabulary has not seen in each call. A series stops where the
next size would take more than ``--cap`` seconds; the largest size reached is printed beside the
exponent.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import robustok as rt
from common import options_of

SIZES = (1 << 16, 1 << 18, 1 << 20, 1 << 22)
SCHEMES = (
    "stochastok(alpha=1)", "stochastok-uniform(alpha=1)", "uniform", "uniform-k(alpha=0.1)",
    "uniform-k(alpha=1)", "uniform-k(alpha=3)", "bpe-dropout(p=0.1)", "grampa(temperature=2)",
    "maxmatch-dropout(p=0.3)",
)  # fmt: skip
SHORTEST = 1e-3  # seconds; shorter times are left out of the fit
REPEATS = 3  # calls of each size, unless one takes a hundredth of the cap
ENCODING = ("encode", "guard", "guard bytes", "canonicalize")  # operations that encode the text
_SHORTER = 8  # bytes by which the text of each call of these is shorter than that of the last


def one_letter(size: int) -> bytes:
    return b"a" * size


def two_letters(size: int) -> bytes:
    return b"ab" * (size // 2)


def random_bytes(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def broken_bytes(size: int) -> bytes:
    return b"\xff" * size


def random_letters(size: int) -> bytes:
    """One pre-token of random letters."""
    return bytes(random.Random(size).choices(b"acgtehilnorsu", k=size))


def combining_marks(size: int) -> bytes:
    return ("e\u0301\u0323" * (size // 5 + 1)).encode()[: size // 5 * 5]


def joined_emoji(size: int) -> bytes:
    """One sequence of emoji and zero-width joiners."""
    return ("\U0001f468\u200d" * (size // 7 + 1)).encode()[: size // 7 * 7]


def han(size: int) -> bytes:
    """Chinese characters without punctuation."""
    return "".join(
        random.Random(size).choices("中文没有空格日本語的一是不了人我在", k=size // 3)
    ).encode()


def spaces(size: int) -> bytes:
    return b" " * size


def digits(size: int) -> bytes:
    return bytes(random.Random(size).choices(b"0123456789", k=size))


def broken_then_marks(size: int) -> bytes:
    """One broken byte, then text that NFC changes."""
    return b"\xff" + combining_marks(size)


def english(size: int) -> bytes:
    """Words with cut positions between them, for comparison."""
    words = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "it")
    rng = random.Random(size)
    return " ".join(rng.choices(words, k=size // 5 + 1)).encode()[:size]


INPUTS = (
    one_letter, two_letters, random_letters, random_bytes, broken_bytes, combining_marks,
    joined_emoji, han, spaces, digits, broken_then_marks, english,
)  # fmt: skip


def operations(vocab: rt.Vocabulary) -> dict[str, Callable[[bytes, np.ndarray], Any]]:
    """Each takes a text and its canonical ids."""
    guard = rt.Guard(vocab, max_length=None)
    calls: dict[str, Callable[[bytes, np.ndarray], Any]] = {
        "encode": lambda text, ids: vocab.encode(text),
        "guard": lambda text, ids: guard.check(ids),
        "guard bytes": lambda text, ids: guard.check(_byte_ids(vocab, text)),
        "canonicalize": lambda text, ids: vocab.canonicalize(ids),
        "distance": lambda text, ids: rt.distance(vocab, ids, _byte_ids(vocab, text)),
        "enumerate 20": lambda text, ids: list(rt.Lattice(vocab, ids).enumerate(limit=20)),
        "log_count": lambda text, ids: rt.Lattice(vocab, ids).log_count(),
        "count": lambda text, ids: rt.Lattice(vocab, ids).count(),
        "log_count(distance)": lambda text, ids: _log_count_at(rt.Lattice(vocab, ids), len(ids)),
    }
    for spec in SCHEMES:
        try:
            sampler = rt.sampler(spec, vocab)
        except rt.RobustokError:
            continue  # not for this tokenizer
        calls[spec] = lambda text, ids, s=sampler: s.sample(ids, seed=0)
        try:
            sampler.log_prob(vocab.encode("a"))
        except rt.RobustokError:
            continue  # no exact log_prob
        calls[f"log_prob {spec}"] = lambda text, ids, s=sampler: s.log_prob(ids)
    return calls


def _log_count_at(lattice: rt.Lattice, distance: int) -> float:
    return lattice.log_count(distance=min(distance, lattice.farthest))


def _byte_ids(vocab: rt.Vocabulary, text: bytes) -> np.ndarray:
    table = np.full(256, -1, np.int64)
    for i in np.flatnonzero(vocab.ordinary).tolist():
        if len(vocab.tokens[i]) == 1:
            table[vocab.tokens[i][0]] = i
    return table[np.frombuffer(text, np.uint8)]


def series(
    call: Callable[..., Any], make: Callable[[int], bytes], encode: Any, cap: float,
    number: int | None,
) -> dict:  # fmt: skip
    """Processor seconds by size, the exponent, and the error that ended the series, if any.

    ``number``: that of an operation whose calls get different texts, else None.
    """
    seconds: dict[int, float] = {}
    error = ""
    for size in SIZES:
        times: list[float] = []
        try:
            while len(times) < REPEATS and (not times or times[-1] < cap / 100):
                shift = 0 if number is None else _SHORTER * (number * REPEATS + len(times))
                text, ids = encode(make, size - shift)
                start = time.process_time()
                call(text, ids)
                times.append(time.process_time() - start)
        except rt.RobustokError as e:
            error = str(e)
            break
        seconds[size] = statistics.median(times)
        if seconds[size] * 8 > cap:
            break
    return {"seconds": seconds, "exponent": exponent(seconds), "error": error}


def exponent(seconds: dict[int, float]) -> float:
    """Least-squares slope of log seconds over log size; nan below two measurable sizes."""
    points = [(math.log(n), math.log(s)) for n, s in seconds.items() if s >= SHORTEST]
    if len(points) < 2:
        return math.nan
    sizes, times = zip(*points, strict=True)
    return statistics.linear_regression(sizes, times).slope


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--only", nargs="*", help="operations whose names hold one of these")
    parser.add_argument(
        "--inputs", nargs="*", help="classes of input whose names hold one of these"
    )
    parser.add_argument("--cap", type=float, default=20.0, help="seconds one call may take")
    parser.add_argument("--json", type=Path, help="write all seconds to this file")
    options = parser.parse_args()
    vocab, other = (rt.Vocabulary.load(options.tokenizer) for _ in range(2))
    vocab.gigatoken.load()
    cache: dict[tuple[str, int], tuple[bytes, np.ndarray]] = {}

    def encode(make: Callable[[int], bytes], size: int) -> tuple[bytes, np.ndarray]:
        if size not in SIZES:  # a text of one call, which ``vocab`` must not know
            return (text := make(size), other.encode(text))
        key = (make.__name__, size)
        if key not in cache:
            cache[key] = (text := make(size), other.encode(text))
        return cache[key]

    inputs = [
        make for make in INPUTS
        if not options.inputs or any(part in make.__name__ for part in options.inputs)
    ]  # fmt: skip
    results: dict[str, dict[str, Any]] = {}
    print(f"{'operation':38}" + "".join(f"{make.__name__:>19}" for make in inputs))
    for name, call in operations(vocab).items():
        if options.only and not any(part in name for part in options.only):
            continue
        number = ENCODING.index(name) + 1 if name in ENCODING else None
        results[name] = {
            make.__name__: series(call, make, encode, options.cap, number) for make in inputs
        }
        cells = []
        for row in results[name].values():
            largest = max(row["seconds"], default=0)
            reached = f"{largest >> 10} KB" if largest < 1 << 20 else f"{largest >> 20} MB"
            cells.append("refused" if not largest else f"{row['exponent']:.2f} to {reached}")
        print(f"{name:38}" + "".join(f"{cell:>19}" for cell in cells), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf8")


if __name__ == "__main__":
    main()
