"""Published tokenizers: their ids and the guard's verdicts, against the tokenizer's own library.

    ROBUSTOK_DATA=FOLDER python -m fuzz.run --target real --calls 10000

One call takes a tokenizer of ``ROBUSTOK_DATA`` and `TEXTS` new texts, which mix words, numbers,
scripts, combining marks, added tokens and any code point; some are long. `encode_batch`, with the
fast encoder, gives the ids of the library. A row of ids is canonical exactly where the library
gives it for the text that it spells, with or without its first space. The rows are canonical, drawn
by three schemes, cut, joined, and with an id replaced; every tenth one is judged alone, too. A
repaired row is one that the library gives, of the same text.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

import robustok as rt
from robustok.errors import RobustokError
from robustok.guard import NOT_UTF8
from robustok.tokenizer.vocabulary import Vocabulary

TEXTS = 200  # of a call
LONG = 2000  # one text in so many is long
SCHEMES = ("stochastok(alpha=0.1)", "stochastok(alpha=1)", "uniform")
WORDS = (
    "the", " of", "tion", "it's", "WE'LL", "don't", " 12", "1234", "x=1;", "\n\n", "  ", "\r\n",
    "'s", "'S", "'re", "\u2019s", "naïve", " мир", "世界", "日本語", "한국어", " नमस्ते", "ไทย", "😀",
    "👩\u200d👩\u200d👧", "e\u0301", "\u0301", "\u0323\u0307", "<|im_start|>", "</s>", "<0x41>",
    "▁", "ﬁ", "½", "\u00a0", "\x00",
)  # fmt: skip
BLOCKS = ((0x20, 0x7E), (0xA0, 0x24F), (0x250, 0x8FF), (0x900, 0x1FFF), (0x2000, 0x33FF),
          (0x3400, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF))  # fmt: skip


@cache
def files() -> list[Path]:
    folder = Path(os.environ.get("ROBUSTOK_DATA", "."), "tokenizers")
    paths = sorted(folder.glob("*/tokenizer.json"))
    if not paths:
        raise SystemExit(f"no {folder}/NAME/tokenizer.json: set ROBUSTOK_DATA")
    return paths


class Subject:
    """A tokenizer's vocabulary, and its library, to which special tokens are text."""

    def __init__(self, path: Path) -> None:
        self.library = Tokenizer.from_file(str(path))
        self.library.encode_special_tokens = True
        self.vocab = Vocabulary.load(path)
        self.vocab.gigatoken.load()
        self.guard = rt.Guard(self.vocab, allow_special=True)
        self.samplers = [rt.sampler(spec, self.vocab) for spec in SCHEMES]
        self.ordinary = np.flatnonzero(self.vocab.ordinary).tolist()
        added = self.library.get_added_tokens_decoder().values()
        self.added = [token.content for token in added]

    def encode(self, texts: list[str]) -> list[list[int]]:
        return [e.ids for e in self.library.encode_batch_fast(texts, add_special_tokens=False)]


@cache
def subject(number: int) -> Subject:
    return Subject(files()[number])


def random_text(rng: random.Random, added: list[str]) -> str:
    parts = []
    for _ in range(rng.randint(1, 14)):
        kind = rng.random()
        if kind < 0.6:
            parts.append(rng.choice(WORDS))
        elif kind < 0.85:
            parts.append(chr(rng.randint(*rng.choice(BLOCKS))))
        elif kind < 0.93 and added:
            parts.append(rng.choice(added))
        else:
            parts.append(str(rng.randrange(10 ** rng.randint(1, 9))))
    return "".join(parts) * (rng.randint(10, 2000) if rng.randrange(LONG) == 0 else 1)


def call(seed: int, number: int) -> Counter[str]:
    """Compare some texts and rows; returns what was compared, or raises an AssertionError."""
    rng = random.Random(f"{seed}/{number}")
    of = subject(number % len(files()))
    texts = [random_text(rng, of.added) for _ in range(TEXTS)]
    counts: Counter[str] = Counter()
    rows = []
    for text, expected in zip(texts, of.encode(texts), strict=True):
        try:
            ids = of.vocab.encode(text).tolist()
        except RobustokError:
            counts["texts refused"] += 1
            continue
        assert ids == expected, f"encode: {text!r:.200} is {expected}, not {ids}"
        rows.append((text, ids))
    batch = of.vocab.encode_batch([text for text, _ in rows])
    for (text, ids), encoded in zip(rows, batch, strict=True):
        assert encoded.tolist() == ids, f"encode_batch: {text!r:.200} is {ids}, not {encoded}"
    counts["texts compared"] += len(rows)
    canonical = [ids for _, ids in rows if 0 < len(ids) < 200]
    check_rows(of, mutated(rng, of, canonical, number), counts)
    return counts


def mutated(
    rng: random.Random, of: Subject, canonical: list[list[int]], seed: int
) -> list[list[int]]:
    """Canonical rows, and others made from them."""
    rows = list(canonical)
    for sampler in of.samplers:
        rows += [ids.tolist() for ids in sampler.sample_batch(canonical, seed=seed)]
    for ids in canonical:
        begin = rng.randrange(len(ids))
        cut = ids[begin : rng.randint(begin, len(ids)) + 1]
        replaced = list(ids)
        replaced[begin] = rng.choice(of.ordinary)
        rows += [cut, cut + rng.choice(canonical), replaced]
    return rows


def check_rows(of: Subject, rows: list[list[int]], counts: Counter[str]) -> None:
    """Each verdict is that of the library, and each repaired row one of its rows."""
    verdicts = of.guard.check_batch(rows)
    spelled = [_text(of.vocab, row) for row in rows]
    repaired = [verdict.repaired.tolist() for verdict in verdicts]
    known = [text for text in spelled if text is not None]
    variants = [*known, *(text.removeprefix(" ") for text in known)]
    ids_of = dict(zip(variants, of.encode(variants), strict=True))
    for number, (row, text) in enumerate(zip(rows, spelled, strict=True)):
        if number % 10 == 0:
            alone = of.guard.check(row)
            assert alone == verdicts[number], f"guard: {row} has another verdict alone"
        if text is None:
            counts["rows that are not UTF-8"] += 1
            kinds = {finding.kind for finding in verdicts[number].findings}
            assert NOT_UTF8 in kinds, f"guard: {row} is not UTF-8"
            continue
        given = [ids_of[text], ids_of[text.removeprefix(" ")]]
        counts["rows judged"] += 1
        counts["rows judged: canonical"] += row in given
        same = verdicts[number].canonical == (row in given)
        assert same, f"guard: {row}, {text!r}, is judged otherwise than by the library: {given}"
        assert repaired[number] in given, f"repair: {row} is {repaired[number]}, of {given}"


def _text(vocab: Vocabulary, ids: Any) -> str | None:
    try:
        return vocab.decode_bytes(ids).decode()
    except UnicodeDecodeError:
        return None
