"""Growth of time on hostile inputs: the exponent of every operation, from 64 KB to 4 MB.

    python benchmarks/hostile.py [--tokenizer tokenizer.json] [--only guard encode]

For each operation and each class of input this measures processor seconds at growing sizes (the
median of three calls where they are short) and fits the slope of log time over log size by least
squares, leaving out times below a millisecond, where fixed costs dominate. An exponent of 1 is
linear. gigatoken looks up a pre-token that it has seen, one of 64 KB at a fifteenth of the time, so
what encodes gets a text that its vocabulary has not seen in each call. A series stops where the
next size would take more than 20 seconds; the largest size reached is printed beside the exponent.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import robustok as rt
from common import options_of, print_heads, print_row, tokenizer_file

SIZES = (1 << 16, 1 << 18, 1 << 20, 1 << 22)
SCHEMES = (
    "stochastok(alpha=1)", "stochastok-uniform(alpha=1)", "uniform", "uniform-k(alpha=0.1)",
    "uniform-k(alpha=1)", "uniform-k(alpha=3)", "bpe-dropout(p=0.1)", "grampa(temperature=2)",
    "maxmatch-dropout(p=0.3)",
)  # fmt: skip
CAP = 20.0  # seconds of one call
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
    of_byte = np.full(256, -1, np.int64)
    for i in np.flatnonzero(vocab.ordinary & (vocab.token_lengths == 1)).tolist():
        of_byte[vocab.tokens[i][0]] = i
    calls: dict[str, Callable[[bytes, np.ndarray], Any]] = {
        "encode": lambda text, ids: vocab.encode(text),
        "guard": lambda text, ids: guard.check(ids),
        "guard bytes": lambda text, ids: guard.check(of_byte[np.frombuffer(text, np.uint8)]),
        "canonicalize": lambda text, ids: vocab.canonicalize(ids),
    }
    for spec in SCHEMES:
        sampler = rt.sampler(spec, vocab)
        calls[spec] = lambda text, ids, s=sampler: s.sample(ids, seed=0)
    return calls


def growth(call: Callable[..., Any], text_of: Callable[[int], Any], number: int | None) -> str:
    """The exponent of an operation and the largest size that it reached.

    ``number``: that of an operation whose calls get different texts, else None.
    """
    seconds: dict[int, float] = {}
    for size in SIZES:
        times: list[float] = []
        try:
            while len(times) < REPEATS and (not times or times[-1] < CAP / 100):
                shift = 0 if number is None else _SHORTER * (number * REPEATS + len(times))
                text, ids = text_of(size - shift)
                start = time.process_time()
                call(text, ids)
                times.append(time.process_time() - start)
        except rt.RobustokError:
            break
        seconds[size] = statistics.median(times)
        if seconds[size] * 8 > CAP:
            break
    if not seconds:
        return "refused"
    points = [(math.log(n), math.log(s)) for n, s in seconds.items() if s >= SHORTEST]
    slope = math.nan
    if len(points) > 1:
        slope = statistics.linear_regression(*zip(*points, strict=True)).slope
    return f"{slope:.2f} to {max(seconds) >> 10:,} KB"


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--tokenizer", default=tokenizer_file("gpt2"))
    parser.add_argument("--only", nargs="*", help="operations whose names hold one of these")
    options = parser.parse_args()
    vocab, other = (rt.Vocabulary.load(options.tokenizer) for _ in range(2))
    vocab.gigatoken.load()
    cache: dict[tuple[str, int], tuple[bytes, np.ndarray]] = {}

    def encoded(name: str, size: int) -> tuple[bytes, np.ndarray]:
        text = INPUTS[name](size)
        if size not in SIZES:  # a text of one call, which ``vocab`` must not know
            return text, other.encode(text)
        if (name, size) not in cache:
            cache[name, size] = text, other.encode(text)
        return cache[name, size]

    print_heads("operation", *INPUTS)
    for name, call in operations(vocab).items():
        if options.only and not any(part in name for part in options.only):
            continue
        number = ENCODING.index(name) + 1 if name in ENCODING else None
        cells = [growth(call, lambda size, key=key: encoded(key, size), number) for key in INPUTS]
        print_row(name, *cells)


if __name__ == "__main__":
    main()
