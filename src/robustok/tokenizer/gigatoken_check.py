"""Comparison of gigatoken with other libraries: texts, and code points that may be cut differently.

:func:`check_texts` are compared before gigatoken is used: every kind of character beside every
other kind, whitespace of all kinds, contractions, numbers, several scripts and code, and texts that
are hard for a hash table or a merge queue.

Each library has the properties of its own release of Unicode: gigatoken 0.10 those of Unicode 17,
``tokenizers`` those of 14 up to 0.21.1 and of 16 since, as tiktoken has. A pre-tokenizer of another
release may cut a text elsewhere. :data:`UNASSIGNED` has every code point that Unicode 14 does not
assign, and thereby every one that a later release can add. ``benchmarks/unicode_ranges.py`` writes
its file, and checks with :func:`differences` that the libraries cut alike around all other code
points.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

import numpy as np

from robustok.runtime.environment import import_lock
from robustok.tokenizer.data import Encoder, byte_alphabet
from robustok.tokenizer.tokenizers_api import encode_batch, open_json, tokenizer_json

EncoderOver: TypeAlias = Callable[[list[bytes]], Encoder]
RANGES_FILE = Path(__file__).with_name("gigatoken_ranges.json")
_RANGES = json.loads(RANGES_FILE.read_text())
# By release of gigatoken: those of each library that cut alike around all assigned characters.
CHECKED: dict[str, dict[str, list[str]]] = _RANGES["checked"]
# First and last code point of each range that Unicode 14 does not assign.
UNASSIGNED = [
    tuple(int(end, 16) for end in span.split("-"))
    for span in " ".join(_RANGES["unassigned"]).split()
]
SIZE = 0x110000  # code points, surrogates included
# Ranges of Unicode 14 whose code points all have the same properties.
_UNIFORM = (
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xF8FF), (0x17000, 0x187F7),
    (0x18800, 0x18CD5), (0x20000, 0x3134A), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD),
)  # fmt: skip
_STEP = 97  # of the code points of those ranges that a quick comparison takes
_BATCH = 256  # code points that are compared in one text
_BEFORE, _AFTER = "aA1! '/\n", "aAs1!'/\n"
_CONTEXTS = (
    "a{0}a12{0}4{0}1", "!{0}!A{0}A {0} {0}{0}'s", "1{0}'S/{0}/\n{0}\n", "'{0}s {0}1  {0}",
)  # fmt: skip

_SHORT = 256  # characters that a search takes less time for than arrays do
# Where no character is above this one, all are assigned.
_LATER = re.compile(f"[^\0-{chr(UNASSIGNED[0][0] - 1)}]")


def has_unsafe(text: str) -> bool:
    """Whether a code point of ``text``, a str without surrogates, is in :data:`UNASSIGNED`.

    >>> has_unsafe("größer, 中"), has_unsafe("\\u0c5c;d")
    (False, True)
    """
    if text.isascii() or (len(text) < _SHORT and _LATER.search(text) is None):
        return False
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    return bool(unsafe_table().take(points).any())


@functools.cache
def unsafe_table() -> np.ndarray:
    """bool [code points]: whether each is in :data:`UNASSIGNED`."""
    table = np.zeros(SIZE, np.bool_)
    for first, last in UNASSIGNED:
        table[first : last + 1] = True
    return table


def are_checked(library: str) -> bool:
    """Whether :data:`UNASSIGNED` was checked with the installed releases of both libraries."""
    with import_lock:  # `version` imports what reads the metadata of packages
        return version(library) in CHECKED.get(version("gigatoken"), {}).get(library, ())


def first_difference(pre_tokenizer: dict, encoder_over: EncoderOver | None = None) -> str | None:
    """A character outside :data:`UNASSIGNED` around which the two libraries cut differently.

    The arguments are those of :func:`differences`. For releases that were not checked; takes
    seconds.
    """
    return next(map(chr, differences(pre_tokenizer, safe_points(), encoder_over)), None)


def safe_points() -> list[int]:
    """The code points outside :data:`UNASSIGNED`; of long ranges with equal properties a few."""
    kept = ~unsafe_table()
    kept[0xD800:0xE000] = False
    for first, last in _UNIFORM:
        kept[first + 1 : last] &= np.arange(first + 1, last) % _STEP == 0
    return np.flatnonzero(kept).tolist()


def differences(
    pre_tokenizer: dict, points: Iterable[int], encoder_over: EncoderOver | None = None
) -> Iterator[int]:
    """The code points around which gigatoken and another library cut differently, ascending.

    Args:
        pre_tokenizer: the stage of a tokenizer.json, of a kind that gigatoken knows.
        points: code points to compare, without surrogates.
        encoder_over: makes the encoder of the other library from its tokens, by id; by default that
            of ``tokenizers``.

    Both libraries encode each code point among letters, digits, spaces, punctuation, apostrophes
    and itself, with a model that has a token for every two bytes on both sides of a possible cut.
    """
    with import_lock:
        from gigatoken import Tokenizer as Gigatoken

    spec = _probe(pre_tokenizer)
    backend = Gigatoken.from_json(spec).backend.encode
    if encoder_over is None:
        tokenizer = open_json(spec)
    else:
        encoder = encoder_over([*map(bytes, _probe_tokens())])

    def differ(some: Sequence[int]) -> bool:
        text = "\n".join(context.format(chr(point)) for point in some for context in _CONTEXTS)
        if encoder_over is None:
            (ids,) = encode_batch(tokenizer, [text], False)
        else:
            ids = encoder.encode_batch([text], False)[0]
        return backend(text).tolist() != ids

    ordered = sorted(points)
    for begin in range(0, len(ordered), _BATCH):
        batch = ordered[begin : begin + _BATCH]
        if differ(batch):
            yield from (point for point in batch if differ([point]))


def _probe_tokens() -> list[tuple[int, ...]]:
    """The tokens of :func:`_probe`, by id: all bytes, then pairs of them."""
    first, last = range(0xC2, 0xF5), range(0x80, 0xC0)
    pairs = [(ord(a), b) for a in _BEFORE for b in first]
    pairs += [(a, ord(b)) for a in last for b in _AFTER]
    pairs += [(a, b) for a in last for b in first]
    pairs += [(ord(a), ord(b)) for a in _BEFORE for b in _AFTER]
    return [*((byte,) for byte in byte_alphabet().values()), *dict.fromkeys(pairs)]


def _probe(pre_tokenizer: dict) -> str:
    """A tokenizer.json whose ids show where a text was cut around a character.

    It merges ASCII characters with first and last bytes of other characters, and with each other.
    """
    letter = {byte: character for character, byte in byte_alphabet().items()}
    spellings = ["".join(letter[byte] for byte in token) for token in _probe_tokens()]
    merges = [[*spelling] for spelling in spellings if len(spelling) == 2]
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
        "vocab": {spelling: i for i, spelling in enumerate(spellings)}, "merges": merges,
    }  # fmt: skip
    return tokenizer_json(model, pre_tokenizer)


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
