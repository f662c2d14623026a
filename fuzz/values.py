"""Random arguments for the fuzzer: mostly plausible, some hostile."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

WORDS = ("hello", " world", "the", " quick", "123 4567", "don't", " ", "\n", "\t", "",
         "caf\u00e9", "e\u0301", "\u65e5\u672c\u8a9e", "\U0001f469\u200d\U0001f467", "\u2581",
         "\ufb1d", "\x00", "<s>", "<|endoftext|>", "a" * 40, "ab" * 30,
         "\u0915\u094d\u0937")  # fmt: skip
HUGE = (2**31 - 1, 2**31, 2**32 + 5, 2**63 - 1, 2**63, 2**64, 2**70, -1, -(2**31), -(2**63),
        -(2**70))  # fmt: skip
ODD_NUMBERS = (float("nan"), float("inf"), -float("inf"), 1e300, 1e18, 1e12, -0.0, -1.0, 1e-300,
               True, False, None, "3", b"3", 1 + 2j, [1], np.float32(0.5),
               np.uint64(2**64 - 1))  # fmt: skip
SPECS = (
    "canonical", "characters", "uniform", "stochastok(alpha={x})",
    "stochastok(alpha={x}, ways={n})",
    "stochastok-uniform(alpha={x})", "stochastok-uniform(alpha={x}, support=pairwise)",
    "uniform-k(alpha={x})", "uniform-k(k={n})", "bpe-dropout(p={p})",
    "bpe-dropout(p={p}, rule=hf)", "bpe-dropout(p={p}, rule=sentencepiece)",
    "grampa(temperature={x}, min_length={n})", "unigram(temperature={x})",
    "maxmatch-dropout(p={p})", "mix({p} canonical, {p} uniform)", "mix(0.5 canonical, 0.5 {spec})",
)  # fmt: skip


def text(rng: random.Random) -> Any:
    """A str or bytes; one in thirty is no text at all."""
    kind = rng.randrange(30)
    if kind == 0:
        return rng.choice((None, 3, 1.5, [], ["a"], "a\ud800b", object()))
    if kind < 6:
        return rng.randbytes(rng.randrange(40))
    if kind < 8:
        return b"\xff" * rng.randrange(60)
    if kind < 10:
        return rng.choice(("a", "ab", " ", "\u0301", "x")) * rng.randrange(300)
    if kind < 13:
        return "".join(chr(rng.choice((rng.randrange(0xD800), rng.randrange(0xE000, 0x110000))))
                       for _ in range(rng.randrange(12)))  # fmt: skip
    joined = "".join(rng.choice(WORDS) for _ in range(rng.randrange(12)))
    return joined.encode() if kind < 16 else joined


def ids(rng: random.Random, vocab: Any) -> Any:
    """Ids, half of them the canonical ones of a text; one in four is damaged."""
    kind = rng.randrange(16)
    size = vocab.size
    if kind < 8:
        row = vocab.encode("".join(rng.choice(WORDS[:14]) for _ in range(rng.randrange(8))))
        return row if kind < 4 else row.tolist()
    row = [rng.randrange(size) for _ in range(rng.randrange(10))]
    if kind < 12:
        return row if kind < 10 else np.array(row, rng.choice((np.int32, np.int64, np.uint16)))
    if kind == 12:
        return [*row, rng.choice((*HUGE, size, size + 1))]
    if kind == 13:
        return np.array([*row, rng.choice((-1, size, 2**32 + 1, 2**62))])
    if kind == 14:
        return rng.choice((None, 5, "12", b"12", [1.5], ["1"], [[1], [2]], [True], [None], {1, 2},
                           np.zeros((2, 2), np.int64), np.zeros(3), np.array([True]),
                           np.array(["1"]), np.array([1, 2], object)))  # fmt: skip
    return [*row, rng.choice(ODD_NUMBERS)]


def number(rng: random.Random) -> Any:
    """A strength, count, seed or key: small and sane two times out of three."""
    kind = rng.randrange(9)
    if kind < 3:
        return rng.randrange(5)
    if kind < 6:
        return round(rng.random() * 3, 2)
    return rng.choice(HUGE) if kind < 8 else rng.choice(ODD_NUMBERS)


def integer(rng: random.Random) -> Any:
    """An integer argument: sane four times out of five."""
    return rng.randrange(6) if rng.randrange(5) else number(rng)


def spec(rng: random.Random, depth: int = 0) -> str:
    """A spec string of any scheme, with sane or odd strengths."""
    template = rng.choice(SPECS)
    if "{spec}" in template:
        template = template.replace("{spec}", spec(rng, depth + 1) if depth < 3 else "uniform")
    if rng.randrange(40) == 0:
        position = rng.randrange(len(template))
        template = template[:position] + rng.choice(" ()=,x{0") + template[position + 1 :]
    odd = rng.randrange(6) == 0
    for field, sane in (("{x}", (0, 0.1, 0.5, 1, 2, 3)), ("{n}", (0, 1, 2, 3)),
                        ("{p}", (0, 0.1, 0.5, 1))):  # fmt: skip
        while field in template:
            value = number(rng) if odd else rng.choice(sane)
            template = template.replace(field, str(value), 1)
    return template
