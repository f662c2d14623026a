"""Compare `Vocabulary.encode_batch` with `tokenizers` on generated texts.

    python -m fuzz.encoders --tokenizer T.json [T.json ...] --texts 1000000 [--seed 0]

Texts mix words, digits, contractions, spaces, scripts, combining marks, names of added tokens,
code points that a release of Unicode after 14 added or may add, and any code point; one in 2,000 is
long. `encode_batch` runs with gigatoken loaded, `tokenizers` beside it without. Every hundredth
text is also encoded as bytes. Prints for each tokenizer how many texts were compared, how many of
them gigatoken encodes, and how many differ. Exits with status 1 where one differs.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import unicodedata

from robustok.tokenizer.comparison import KINDS, WRITTEN
from robustok.tokenizer.vocabulary import Vocabulary

BATCH = 2000
LONG = 2000  # one text in so many is long
NEW = 0.2  # of the texts have code points that Python's release of Unicode does not assign
WORDS = (
    "the", " of", "tion", "it's", "WE'LL", "don't", " 12", "1234", "x=1;", "\n\n", "  ", "\r\n",
    "'s", "'S", "'re", "\u2019s", "naïve", " мир", "世界", "日本語", "한국어", " नमस्ते", "ไทย", "😀",
    "👩\u200d👩\u200d👧", "e\u0301", "\u0301", "\u0323\u0307", "<|im_start|>", "</s>", "<0x41>",
    "▁",
)  # fmt: skip
BLOCKS = (
    (0x20, 0x7E), (0xA0, 0x24F), (0x250, 0x52F), (0x530, 0x8FF), (0x900, 0x109F), (0x1100, 0x1FFF),
    (0x2000, 0x2BFF), (0x2C00, 0x33FF), (0x3400, 0xA4CF), (0xA4D0, 0xABFF), (0xAC00, 0xD7FF),
    (0xE000, 0xFFFF), (0x10000, 0x12FFF), (0x16000, 0x1BFFF), (0x1C000, 0x1FFFF),
    (0x20000, 0x33FFF), (0xE0000, 0x10FFFF),
)  # fmt: skip


class Texts:
    """A generator of texts; the same seed gives the same texts."""

    def __init__(self, seed: int, added: list[str]) -> None:
        self._random = random.Random(seed)
        self._new = [c for c in map(chr, range(0x34000)) if unicodedata.category(c) == "Cn"]
        self._known = [
            [c for c in map(chr, range(first, last + 1)) if unicodedata.category(c) != "Cn"]
            for first, last in BLOCKS
        ]
        self._added = added or list(WORDS)

    def batch(self, count: int) -> list[str]:
        return [self._text() for _ in range(count)]

    def _text(self) -> str:
        choose = self._random
        new = 0.3 if choose.random() < NEW else 0.0
        if choose.random() < 1 / LONG:
            unit = "".join(self._element(new) for _ in range(choose.randint(1, 6)))
            return unit * choose.randint(10, 4000)
        return "".join(self._element(new) for _ in range(choose.randint(1, 14)))

    def _element(self, new: float) -> str:
        choose = self._random
        kind = choose.random()
        if kind < new:
            return choose.choice(self._new)
        kind = choose.random()
        if kind < 0.4:
            return choose.choice(KINDS)
        if kind < 0.65:
            return choose.choice(WORDS)
        if kind < 0.88:
            return choose.choice(choose.choice(self._known))
        if kind < 0.95:
            return choose.choice(self._added)
        if kind < 0.99:
            return str(choose.randrange(10 ** choose.randint(1, 9)))
        return choose.choice(WRITTEN)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare two encoders on generated texts.")
    parser.add_argument("--tokenizer", nargs="+", required=True)
    parser.add_argument("--texts", type=int, default=100_000, help="texts for each tokenizer")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    wrong = 0
    for name in options.tokenizer:
        vocab = Vocabulary.load(name)
        vocab.gigatoken.load()
        added = vocab.data.source.get_added_tokens_decoder().values()
        texts = Texts(options.seed, [token.content for token in added])
        started, seen, fast, different = time.process_time(), 0, 0, 0
        while seen < options.texts:
            rows = texts.batch(min(BATCH, options.texts - seen))
            expected = vocab.data.encoder.encode_batch(rows, parse_special=False)
            encoded = vocab.encode_batch(rows)
            fast += sum(vocab.gigatoken.encode(row) is not None for row in rows)
            as_bytes = vocab.encode_batch([row.encode() for row in rows[::100]])
            for i, ids in enumerate(expected):
                same = encoded[i].tolist() == ids
                if i % 100 == 0:
                    same = same and as_bytes[i // 100].tolist() == ids
                if not same:
                    different += 1
                    print(f"{name}: {rows[i]!r:.300}", flush=True)
            seen += len(rows)
        wrong += different
        print(
            f"{name}: {seen:,} texts, {fast:,} by gigatoken, {different} different, "
            f"gigatoken {vocab.gigatoken.reason or 'used'}, "
            f"{time.process_time() - started:.0f} s",
            flush=True,
        )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
