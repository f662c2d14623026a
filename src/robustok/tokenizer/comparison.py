"""What two readers of texts are compared on: texts of all kinds, and every character of a text.

:func:`check_texts` are compared before a reader is used: every kind of character beside every other
kind, whitespace of all kinds, contractions, numbers, several scripts and code, and texts that are
hard for a hash table or a merge queue.

Each library has the properties of its own release of Unicode, so that two may cut a text elsewhere
around a character that one of them does not know. :class:`Characters` compares them around each
character before a text with it is read.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

import numpy as np

_POINTS = 0x110000  # code points, surrogates included
_SAME, _OTHER = 1, 2  # around a code point that was compared
_MOST = 1 << 12  # code points that are compared for one text
_BATCH = 256  # code points that are compared in one text
_CONTEXTS = (
    "a{0}a12{0}4{0}1", "!{0}!A{0}A {0} {0}{0}'s", "1{0}'S/{0}/\n{0}\n", "'{0}s {0}1  {0}",
)  # fmt: skip


class Characters:
    """The characters around which two readers were compared.

    >>> Characters(lambda text: "ß" in text).has_other("größer")
    True

    ``differ``: whether the readers read a text differently. It gets each character among letters,
    digits, spaces, punctuation, apostrophes and itself. ``is_ascii_same``: whether they read every
    ASCII character alike.
    """

    def __init__(self, differ: Callable[[str], bool]) -> None:
        self._differ = differ
        self._known = np.zeros(_POINTS, np.uint8)
        self._compare(np.arange(128))
        self.is_ascii_same = bool((self._known[:128] == _SAME).all())

    def has_other(self, text: str) -> bool:
        """Whether the readers may differ around a character of ``text``, without surrogates."""
        if self.is_ascii_same and text.isascii():
            return False
        points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        known = self._known.take(points)
        if not known.all():
            new = np.unique(points[known == 0])
            if len(new) > _MOST:  # more than a text in any language has
                return True
            self._compare(new)
            known = self._known.take(points)
        return bool((known == _OTHER).any())

    def _compare(self, points: np.ndarray) -> None:
        for begin in range(0, len(points), _BATCH):
            batch = points[begin : begin + _BATCH]
            others = (
                [point for point in batch.tolist() if self._differs([point])]
                if self._differs(batch.tolist())
                else []
            )
            self._known[batch] = _SAME
            self._known[others] = _OTHER

    def _differs(self, points: list[int]) -> bool:
        return self._differ(
            "\n".join(context.format(chr(point)) for point in points for context in _CONTEXTS)
        )


WRITTEN = (
    "", " ", "  ", "\n", "\t\n ", "a", " a", "a ", "Hello, world! It's 12:34.", "hello\u2028world",
    "don't DON'T we'll WE'LL I'd i'D they've THEY'Ve x's X'S 'tis ''s '\u017f 'S\u212a",
    "1 12 123 1234 12345 1234567890 ½²③ ٣٤٥ ४५६ Ⅷ 1,234.56 0x1F 1e-9",
    "def f(x: int) -> str:\n    return {'a': [1, 2], \"b\": x**2}[x]  # why?\n\n\n\tpass\r\n\r\n",
    "<html>\n  <a href=\"https://x.org/?q=1&r=%20\">…</a>\n</html>\n// --- ==== !!!! ((((]]]]",
    "The quick brown fox jumps over the lazy dog.   Three spaces.  \n \n  \n\n end  ",
    "Größe, naïve café, Ærøskøbing, żółć, ĲSSEL, ﬁne ǅ ʰ ª, e\u0301 \u0301e a\u0323\u0307 \u1e9b",
    "Привет, мир! Ήλιος και θάλασσα. שלום עולם. مرحبا بالعالم، كيف الحال؟ سلام\u200cدوستان",
    "नमस्ते दुनिया। বাংলা ভাষা। தமிழ் மொழி। ไทยไม่มีวรรค ភាសាខ្មែរ မြန်မာ ქართული հայերեն",
    "你好，世界！中文没有空格。日本語はひらがなとカタカナと漢字。한국어 문장입니다. ᄒ\u1161\u11ab",
    "😀😀 👩\u200d👩\u200d👧 🇩🇪🇫🇷 ✌🏽 ❤\ufe0f ☃ →←⇒ ∑∫√∞≠≤ ™®© „“”‘’ «» –—―…‥ €£¥₹",
    "\x00\x01\x1f\x7f\x80\x85\x9f\u00a0\u00ad\u1680\u180e\u2000\u2003\u200b\u2029\u202f\u205f\u3000",
    "\u0378\u0e3a\u1ac0\u2fe0\ufdd0\ufffd\uffff\U0001f000\U00016fff\U000e0041\U000f0000\U0010ffff",
    "<|endoftext|> <s> </s> <unk> <0x41><0x0A> [INST] <|im_start|>\n▁ ▁▁a Ġhello <think>",
    "a" * 700, "ab" * 300, " " * 300, "\n" * 200, "\u0301" * 150, "\ufffd" * 150, "中" * 200,
    "7" * 300, "!" * 300, " \n" * 150, "aaaaaaaaaaaaaaaab" * 20, "Zz" * 9 + "'" * 9,
)  # fmt: skip

# One character or more of each class that a pre-tokenizer of a known model distinguishes.
KINDS = (
    *"aZsStTdDmMlLrReEvV", *"059", *" \t\n\r", *"'\"-_/.,!?#$([{:;@&*+=<>|\\~`^%",
    "\u00a0", "\u2003", "\u3000", "\u0085", "\u2028", "é", "É", "ß", "ǅ", "ʰ", "ª", "я", "Я", "ω",
    "א", "ع", "\u064e", "ह", "\u093f", "\u094d", "ก", "\u0e31", "中", "〇", "々", "あ", "ア", "ー",
    "한", "²", "½", "٣", "Ⅷ", "。", "，", "…", "—", "“", "€", "∑", "→", "°", "\u0301", "\u20dd",
    "\u200d", "\u200b", "\ufe0f", "😀", "👩", "🇩", "\u00ad", "\x00", "\x7f", "\ufffd", "\U00020000",
    "\ue000", "the", " of", "tion", "  ", "\r\n", "\n\n",
)  # fmt: skip


def check_texts() -> Iterator[str]:
    """All texts of the comparison."""
    yield from WRITTEN
    chosen = random.Random(0)
    for size in (2, 3, 5, 9, 17, 33):
        for _ in range(160):
            yield "".join(chosen.choices(KINDS, k=size))
    for first, second in itertools.pairwise(chosen.sample(KINDS, len(KINDS))):
        yield f"{first}{second}{first}{first} {second}"
