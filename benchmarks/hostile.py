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
from functools import partial
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


def drawn(alphabet: Any, size: int, count: int) -> Any:
    return random.Random(size).choices(alphabet, k=count)


def repeated(text: str, size: int) -> bytes:
    """As many whole copies of a text as fit."""
    return text.encode() * (size // len(text.encode()))


MARKS = "e\u0301\u0323"
HAN = "中文没有空格日本語的一是不了人我在"  # without punctuation
WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "it")
# Each a function of the number of bytes.
INPUTS: dict[str, Callable[[int], bytes]] = {
    "one_letter": lambda size: b"a" * size,
    "two_letters": lambda size: repeated("ab", size),
    "random_letters": lambda size: bytes(drawn(b"acgtehilnorsu", size, size)),  # one pre-token
    "random_bytes": lambda size: random.Random(size).randbytes(size),
    "broken_bytes": lambda size: b"\xff" * size,
    "combining_marks": lambda size: repeated(MARKS, size),
    # One sequence of emoji and zero-width joiners.
    "joined_emoji": lambda size: repeated("\U0001f468\u200d", size),
    "han": lambda size: "".join(drawn(HAN, size, size // 3)).encode(),
    "spaces": lambda size: b" " * size,
    "digits": lambda size: bytes(drawn(b"0123456789", size, size)),
    # One broken byte, then text that NFC changes.
    "broken_then_marks": lambda size: b"\xff" + repeated(MARKS, size),
    # Words with cut positions between them, for comparison.
    "english": lambda size: " ".join(drawn(WORDS, size, size // 5 + 1)).encode()[:size],
}


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
    call: Callable[..., Any], text_of: Callable[[int], Any], cap: float, number: int | None
) -> dict:
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
                text, ids = text_of(size - shift)
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

    def encode(name: str, size: int) -> tuple[bytes, np.ndarray]:
        if size not in SIZES:  # a text of one call, which ``vocab`` must not know
            return (text := INPUTS[name](size), other.encode(text))
        if (name, size) not in cache:
            cache[name, size] = (text := INPUTS[name](size), other.encode(text))
        return cache[name, size]

    inputs = [
        name for name in INPUTS
        if not options.inputs or any(part in name for part in options.inputs)
    ]  # fmt: skip
    results: dict[str, dict[str, Any]] = {}
    print(f"{'operation':38}" + "".join(f"{name:>19}" for name in inputs))
    for name, call in operations(vocab).items():
        if options.only and not any(part in name for part in options.only):
            continue
        number = ENCODING.index(name) + 1 if name in ENCODING else None
        results[name] = {
            key: series(call, partial(encode, key), options.cap, number) for key in inputs
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
