"""Canonical ids by gigatoken, where they are known to equal those of the tokenizer's library.

gigatoken loads the same model, without added tokens, once enough text was encoded to repay the time
of loading. Before its first use it is compared with the library on texts of many kinds, and around
each character before a text with it is encoded (`comparison`). A text that it may encode
differently is left to the caller, who encodes it with the library. It reads tokenizers of the
``tokenizers`` library; those of tiktoken and SentencePiece encode themselves.

Texts are normalized by the library, without added tokens, since the library looks for these before
or after it normalizes a text: the parts between them are encoded on their own.

gigatoken keeps the ids of pre-tokens in a hash table without limit, which is therefore replaced
after `TABLE` characters.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np

from robustok.errors import RobustokError
from robustok.runtime.environment import ForkSafeLock, give_back_memory, import_lock
from robustok.runtime.packages import missing_line
from robustok.tokenizer.comparison import Characters, check_texts
from robustok.tokenizer.data import (
    Text,
    TokenizerData,
    byte_alphabet,
    library_error,
    library_errors,
)
from robustok.tokenizer.stages import MARK_BEFORE, MARK_FOR_SPACE
from robustok.tokenizer.tokenizers_api import (
    HAS_PARTS,
    AddedToken,
    TokenizersEncoder,
    json_of,
    library_ids,
    name_of,
    normalizer_of,
    open_json,
    tokenizer_json,
)

Encode: TypeAlias = Callable[[str], np.ndarray]  # uint32 ids of a text

TABLE = 1 << 29  # characters after which the table is replaced; a new word takes 7 bytes for each
_CALL = 64  # characters that take as long as the overhead of a call of a library
_FEW = 8  # characters that are looked for one by one
_SPAN = re.compile(r"[\t\n\r][ ▁]")  # in tokens that go from one word to the next
_ANY_SPAN = re.compile(rb"([^ \0]) ")


class TextEncoder:
    """The ids of texts of a tokenizer whose parts without added tokens are encoded by gigatoken.

    ``data``: a tokenizer that gigatoken is likely to encode. ``added``: the added tokens that cut a
    text here, as text → id, int32 [1]: as the library finds them, whatever is around. Where they do
    not cut it like this, a text with one is left to the library.
    """

    def __init__(self, data: TokenizerData) -> None:
        self._encoder: Any = data.encoder
        self._normalizer = normalizer_of(self._encoder.parsing, self._encoder.normalizer)
        self._stages, self._byte_level = data.stages, data.stages.byte_level
        self._composes = data.stages.composes
        normalizers = [] if self._byte_level else [*data.stages.normalizers]
        self._before = " " * normalizers.count(MARK_BEFORE)
        self._marks = MARK_FOR_SPACE in normalizers
        self._has_spans = not self._byte_level and _has_spans(data.tokens)
        self.added: dict[str, np.ndarray] = {}
        self._read_added(data)

    def _read_added(self, data: TokenizerData) -> None:
        """Note how added tokens are found."""
        plain, tokenizer = data.plain_added, self._encoder.parsing
        # The library looks for tokens of both kinds one after the other.
        of_normalized = {token.normalized for token in plain.values()}
        alike = {i: t for i, t in data.added.items() if t.normalized in of_normalized}
        # A special token is text, and still hides those that it overlaps.
        is_simple = len(of_normalized) == 1 and all(
            self._is_simple(token, name_of(tokenizer, i)) for i, token in alike.items()
        )
        # Whether the texts on both sides of it are cut as texts of their own.
        is_apart = not (self._stages.adds_space or (self._before and True in of_normalized))
        self._is_cut = is_simple and is_apart
        if self._is_cut:
            self._found = Strings(token.content for token in alike.values())
            self.added = {t.content: np.array([i], np.int32) for i, t in plain.items()}
        else:
            names = [(name_of(tokenizer, i), token.content) for i, token in plain.items()]
            self._found = Strings(map(self._marked, itertools.chain(*names)))
        self._is_normalized_first = not self._is_cut or True in of_normalized
        self._is_bare = not self._found

    def _is_simple(self, token: AddedToken, name: str) -> bool:
        """Whether an added token is found wherever its text is, and is no other text."""
        if name != token.content or not (token.special or token.content):
            return False
        if token.normalized and not self._byte_level and {*token.content} & {" ", "▁"}:
            return False
        return token.special or not (token.lstrip or token.rstrip or token.single_word)

    def _marked(self, text: str) -> str:
        """A text as the matcher or the model reads its spaces."""
        return text if self._byte_level else text.replace(" ", "▁")

    def json(self) -> str:
        """A tokenizer.json of the same model, without added tokens."""
        spec = json.loads(json_of(self._encoder.tokenizer))
        model = spec["model"]
        if self._has_spans:  # a text with one goes to the library
            model["merges"] = [m for m in model["merges"] if not _SPAN.search("".join(m))]
            # Other names leave no hole in the ids.
            model["vocab"] = {
                f"\0{i}" if _SPAN.search(token) else token: i for token, i in model["vocab"].items()
            }
        return tokenizer_json(model, spec["pre_tokenizer"], MARK_FOR_SPACE if self._marks else None)

    def encode(
        self, text: str, backend: Encode, characters: Characters | None
    ) -> np.ndarray | None:
        """The ids of a text, int32, or None where gigatoken may read it otherwise.

        ``backend``: the ids by gigatoken of a text without added tokens. ``characters``: those
        around which it was compared with the library.
        """
        read = self._normalize(text) if self._is_normalized_first else text
        if self._is_bare:
            return self._encode_part(read, backend, characters)
        if not self._is_cut:
            if self._has_added(text) or (read != text and self._has_added(read)):
                return None
            return self._encode_part(read, backend, characters)
        rows: list[np.ndarray] = []
        for number, part in enumerate(self._parts(read)):
            if number % 2:
                rows.append(self.added[part])
                continue
            normalized = part if self._is_normalized_first else self._normalize(part)
            row = self._encode_part(normalized, backend, characters)
            if row is None:
                return None
            rows.append(row)
        return np.concatenate(rows) if len(rows) > 1 else rows[0]

    def _encode_part(
        self, text: str, backend: Encode, characters: Characters | None
    ) -> np.ndarray | None:
        """:meth:`encode` of a normalized text without added tokens."""
        is_other = characters is not None and characters.has_other(text)
        if is_other or (self._has_spans and _has_span(text)):
            return None
        return backend(text).view(np.int32) if text else np.empty(0, np.int32)

    def _parts(self, text: str) -> list[str]:
        """The parts of a text between added tokens, and these tokens, in turn."""
        parts = self._found.split(text)
        if all(map(self.added.__contains__, parts[1::2])):
            return parts
        joined = parts[:1]  # a special token among them is text
        for token, part in zip(parts[1::2], parts[2::2], strict=True):
            if token in self.added:
                joined += token, part
            else:
                joined[-1] += token + part
        return joined

    def _has_added(self, text: str) -> bool:
        if not self._byte_level:  # the normalizer may write a mark before it
            text = "▁" + self._marked(text)
        return len(self._found.split(text)) > 1

    def _normalize(self, text: str) -> str:
        """The text as the model reads it, but with spaces for marks."""
        if not self._byte_level:  # the normalizer leaves an empty text empty
            return self._before + text if text else text
        normalize = self._normalizer
        if normalize is None or (self._composes and text.isascii()):
            return text
        return normalize(text)


def _has_spans(tokens: list[bytes]) -> bool:
    """Whether tokens have a space after another character, all of which are whitespace."""
    before = {*_ANY_SPAN.findall(b"\0".join(tokens))}
    return bool(before) and before <= {b"\t", b"\n", b"\r"}


def _has_span(text: str) -> bool:
    """Whether `_SPAN` is in a text, in a tenth of the time that its search takes."""
    spaces = " ▁" if "▁" in text else " "
    return any(c in text and any(c + space in text for space in spaces) for c in "\t\n\r")


class Strings:
    """A search for any of some strings that are not empty, the longest at one place.

    >>> Strings(["a", "ab", "b"]).split("xabb")
    ['x', 'ab', '', 'b', '']

    One regular expression. Where few characters begin the strings, and a text has one of these, as
    a line break, the others are not looked for, which takes a tenth of the time.
    """

    def __init__(self, strings: Iterable[str]) -> None:
        self._strings = sorted({*strings} - {""}, key=len, reverse=True)
        self._starts = "".join(sorted({string[0] for string in self._strings}))
        self._pattern_of = cache(self._pattern)

    def __bool__(self) -> bool:
        return bool(self._strings)

    def split(self, text: str) -> list[str]:
        """The parts of a text between the strings, and the strings, in turn."""
        starts = self._starts
        if len(starts) <= _FEW:
            starts = "".join([start for start in starts if start in text])
        return self._pattern_of(starts).split(text) if starts else [text]

    def _pattern(self, starts: str) -> re.Pattern[str]:
        chosen = (re.escape(string) for string in self._strings if string[0] in starts)
        return re.compile(f"({'|'.join(chosen)})")


class GigatokenEncoder:
    """The canonical encoder of a tokenizer by gigatoken, which says itself whether it can be used.

    >>> encoder = GigatokenEncoder(vocab.data)
    >>> encoder.load()
    >>> encoder.encode("hello world")
    array([276, 275], dtype=int32)

    ``reason`` says why gigatoken is not used, or is None.
    """

    def __init__(self, data: TokenizerData) -> None:
        self._data, self._texts = data, None
        self.reason = _obstacle(data)
        if self.reason is None:
            self._texts = TextEncoder(data)
        self._left = 4 * len(data.tokens)  # characters until loading, or a new table, pays
        if self.reason is None and find_spec("gigatoken") is None:
            self.reason = missing_line("gigatoken")
        self._backend: Encode | None = None
        self._characters: Characters | None = None
        self._is_compared = False
        self._lock = ForkSafeLock()
        self._running: list[None] = []  # an entry for each call in progress
        _encoders.add(self)

    def encode(self, text: Text) -> np.ndarray | None:
        """The ids of a text, int32, or None for one that the tokenizer's library must encode.

        A str holds no lone surrogate.
        """
        self._left -= len(text) + _CALL
        if self._left < 0:
            self._renew()
        backend = self._backend
        return None if backend is None else self._encode_with(backend, text)

    def load(self) -> None:
        """Load gigatoken now, if it can be used."""
        with self._lock:
            if self._backend is not None or self._texts is None or self.reason is not None:
                return
            try:
                with library_errors("gigatoken cannot load this tokenizer"):
                    backend = _gigatoken(self._texts.json())
                    if not self._is_compared:
                        if self._data.stages.byte_level:
                            differ = _differ(self._data.stages.pre_tokenizers)
                            self._characters = Characters(differ)
                            if not self._characters.is_ascii_same:
                                raise RobustokError("gigatoken cuts ASCII characters otherwise")
                        self._compare(backend)
            except RobustokError as e:
                self.reason = str(e)
            if self.reason is None:
                give_back_memory()
                self._left, self._is_compared = TABLE, True
                self._backend = backend

    def _renew(self) -> None:
        """Load gigatoken once there was enough text, or anew once there was very much."""
        with self._lock:
            if self._left < 0 and self.reason is None:
                self._backend = None
                self.load()

    def _compare(self, backend: Encode) -> None:
        """Raise RobustokError for a text that has other ids than by the library."""
        tokens, added = self._data.tokens, [*self._texts.added][:64] if self._texts else []
        some = tokens[:: max(1, len(tokens) // 256)]
        texts = [*check_texts(), *(token.decode("utf8", "ignore") for token in some)]
        texts += [
            f"{a} x{a}{a}y {a}{b}\n{b}z" for a, b in zip(added, added[1:] + added, strict=False)
        ]
        expected = self._data.encoder.encode_batch(texts, parse_special=False)
        for text, ids in zip(texts, expected, strict=True):
            row = self._encode_with(backend, text)
            if row is not None and row.tolist() != ids:
                raise RobustokError(f"gigatoken gives other ids for {text!r}")

    def _encode_with(self, backend: Encode, text: Text) -> np.ndarray | None:
        """The ids by gigatoken, None where it may give other ids than the library."""
        if self._texts is None or isinstance(text, bytes):  # bytes that are not UTF-8
            return None
        self._running.append(None)
        try:
            return self._texts.encode(text, backend, self._characters)
        except BaseException as error:  # a panic of a Rust library is no Exception
            self.reason = str(library_error("gigatoken failed", error))
            self._backend = None
            return None
        finally:
            self._running.pop()


def _obstacle(data: TokenizerData) -> str | None:
    """Why gigatoken cannot be used for this tokenizer, as far as its settings tell."""
    encoder, stages = data.encoder, data.stages
    if not isinstance(encoder, TokenizersEncoder):
        return "gigatoken needs the tokenizer.json of the model"
    if not data.family.endswith("BPE"):
        return f"gigatoken does not know {data.family}"
    if not HAS_PARTS:
        return "tokenizers 1.0 is as fast"
    if not encoder.complete:
        return "the vocabulary lacks bytes"
    if stages.byte_level:
        if stages.adds_space:
            return "the pre-tokenizer adds a space"
        known = stages.isolates_then_spells
        return None if known else "gigatoken does not know this pre-tokenizer"
    if not encoder.parsing.model.byte_fallback:
        return "the model has no byte fallback"
    return None if stages.writes_marks else "gigatoken does not know this normalizer"


def _gigatoken(spec: str) -> Encode:
    """The encoder that gigatoken makes of a tokenizer.json."""
    with import_lock:
        import gigatoken

    return gigatoken.Tokenizer.from_json(spec).backend.encode


def _differ(pre_tokenizers: Sequence[dict]) -> Callable[[str], bool]:
    """Whether gigatoken and the library cut a text differently by pre-tokenizers.

    Both encode it with a model that has a token for every two bytes on both sides of a possible
    cut: it merges ASCII characters with first and last bytes of other characters, and with each
    other.
    """
    before, after = map(str.encode, ("aA1! '/\n", "aAs1!'/\n"))
    first, last = range(0xC2, 0xF5), range(0x80, 0xC0)
    sides = (before, first), (last, after), (last, first), (before, after)
    letter = {byte: character for character, byte in byte_alphabet().items()}
    pairs = [[letter[a], letter[b]] for left, right in sides for a in left for b in right]
    names = dict.fromkeys([*letter.values(), *map("".join, pairs)])
    model = {"type": "BPE", "vocab": {name: i for i, name in enumerate(names)}, "merges": pairs}
    both = {"type": "Sequence", "pretokenizers": [*pre_tokenizers]}
    spec = tokenizer_json(model, both if len(pre_tokenizers) > 1 else pre_tokenizers[0])
    fast, library = _gigatoken(spec), open_json(spec)
    return lambda text: fast(text).tolist() != library_ids(library, [text], False)[0]


_encoders: weakref.WeakSet[GigatokenEncoder] = weakref.WeakSet()
_abandoned: list[Any] = []  # never freed, since another thread of the parent was changing them


def _forget_running() -> None:
    """In a forked child: load gigatoken anew where a thread of the parent was encoding."""
    for encoder in list(_encoders):
        if encoder._running:
            _abandoned.append((encoder._backend, encoder._characters))
            encoder._running, encoder._backend, encoder._left = [], None, -1
            encoder._is_compared = False


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_forget_running)
