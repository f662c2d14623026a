"""Canonical ids by gigatoken, where they are known to equal those of the tokenizer's library.

gigatoken loads the same model, without added tokens, once enough text was encoded to repay the time
of loading. Before its first use it is compared with the library on texts of many kinds. A text that
it may encode differently is left to the caller, who encodes it with the library. gigatoken does not
check bytes, so it gets only str.

Texts are normalized, without added tokens, and cut where its model differs. The library looks for
added tokens before or after it normalizes a text; the parts between them are encoded on their own.
A SentencePiece text is encoded word by word, unless a token goes from one word to the next: the
library encodes such words. gigatoken's own reading is never relied on: where it may differ, a text
has no ids here.

gigatoken keeps the ids of pre-tokens in a hash table without limit, which is therefore replaced
after `TABLE` characters.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from robustok.errors import RobustokError
from robustok.runtime.environment import ForkSafeLock, give_back_memory, import_lock
from robustok.runtime.packages import EXTRAS, missing_line
from robustok.tokenizer.data import (
    TokenizerData,
    library_error,
    library_errors,
)
from robustok.tokenizer.gigatoken_check import (
    are_checked,
    check_texts,
    first_difference,
    has_unsafe,
)
from robustok.tokenizer.libraries import (
    MOST_SPACES,
    SAME_CUTS,
    SPACES_AS_MARKS,
    SentencePieceEncoder,
    TiktokenEncoder,
)
from robustok.tokenizer.stages import Stages, isolating
from robustok.tokenizer.tokenizers_api import (
    HAS_PARTS,
    AddedToken,
    TokenizersEncoder,
    json_of,
    name_of,
    tokenizer_json,
)

Text = str | bytes
_log = logging.getLogger(__name__)

LARGE = 1 << 20  # characters without gigatoken that are worth a message
TABLE = 1 << 29  # characters after which the table is replaced; a new word takes 7 bytes for each
_CALL = 64  # characters that take as long as the overhead of a call of a library


EncodePart: TypeAlias = Callable[[str], np.ndarray | None]

_MANY_SPACES = " " * MOST_SPACES
# What a token has that goes from one word to the next.
_SPAN = re.compile(r"[\t\n\r][ ▁]")
_WORD_END = re.compile(r"(?<=\S) ")
_ANY_SPAN = re.compile(rb"([^ \0]) ")


class _Rules(NamedTuple):
    """What happens to a text before its model.

    ``normalize``: returns the text as the model reads it, or None where gigatoken may read it
    otherwise. ``is_first``: whether it precedes the search for added tokens. ``ids``: those of
    added tokens that are found as the library finds them, whatever is around. ``find``: the search
    for them, which also finds special tokens, since they hide others although they are plain text.
    ``has_other``: a search of the text as it came for any other added token.
    """

    normalize: Callable[[str], str | None] | None
    is_first: bool = False
    ids: Mapping[str, int] = {}
    find: Callable[[str], Iterator[re.Match[str]]] | None = None
    has_other: Callable[[str], object] | None = None


class TextEncoder:
    """The ids of texts of a tokenizer whose parts without added tokens are encoded by gigatoken.

    ``data``: a tokenizer that gigatoken is likely to encode. ``added``: the added tokens that are
    found here, as text → id.
    """

    def __init__(self, data: TokenizerData) -> None:
        self._data = data
        self._byte_level = data.family.startswith("byte-level")
        self._rules = _rules_of(data)
        self.added = self._rules.ids
        alone = data.stages.space_rules == ("inside",) and data.stages.never_cuts
        self._spans_words = not self._byte_level and alone and _span_words(data.tokens)
        # Between parts that are encoded together, where no token goes beyond one.
        self._separator = _separator_of(data) if alone and self.added else None

    def json(self) -> str:
        """A tokenizer.json of the same model, without added tokens."""
        encoder: Any = self._data.encoder
        if not isinstance(encoder, TokenizersEncoder):
            text = encoder.model_json()
        else:
            spec = json.loads(json_of(encoder.tokenizer))
            marks = not self._byte_level and "inside" in (self._data.stages.space_rules or ())
            normalizer = SPACES_AS_MARKS if marks else None
            text = tokenizer_json(spec["model"], spec["pre_tokenizer"], normalizer)
        return _without_spanning(text) if self._spans_words else text

    def encode(self, text: str, encode_part: EncodePart) -> np.ndarray | None:
        """The ids of a text, int32, or None where gigatoken may read it otherwise.

        ``encode_part``: the ids by gigatoken of a part without added tokens, or None.
        """
        rules = self._rules
        if rules.has_other is not None and rules.has_other(text):
            return None
        if rules.find is None:
            return self._encode_between(encode_part, text, rules.normalize)
        # The library looks for added tokens in the text as it came, or as it became.
        normalize = rules.normalize
        if rules.is_first and normalize is not None:
            normalized = normalize(text)
            if normalized is None:
                return None
            text, normalize = normalized, None
        parts: list[str] = []
        between: list[int] = []
        begin = 0
        for match in rules.find(text):
            added = rules.ids.get(match.group())
            if added is not None:  # else a special token, which is text
                parts.append(text[begin : match.start()])
                between.append(added)
                begin = match.end()
        parts.append(text[begin:])
        if between and self._separator and self._separator[0] not in text:
            mark, number = self._separator
            row = self._encode_between(encode_part, mark.join(parts), normalize)
            if row is not None:
                row[row == number] = between
            return row
        rows = [self._encode_between(encode_part, parts[0], normalize)]
        for added, part in zip(between, parts[1:], strict=True):
            rows += [
                np.array([added], np.int32),
                self._encode_between(encode_part, part, normalize),
            ]
        return _joined(rows)

    def _encode_between(
        self,
        encode_part: EncodePart,
        text: str,
        normalize: Callable[[str], str | None] | None,
    ) -> np.ndarray | None:
        """:meth:`encode` for a text between added tokens, which has none."""
        if not text:
            return np.empty(0, np.int32)
        if normalize is not None:
            normalized = normalize(text)
            if normalized is None:
                return None
            text = normalized
        if self._byte_level:
            if has_unsafe(text):
                return None
        elif self._spans_words and _has_span(text):
            return self._encode_around_spans(encode_part, text)
        return encode_part(text)

    def _encode_around_spans(self, encode_part: EncodePart, text: str) -> np.ndarray | None:
        """The ids of a text with spans, which the library encodes with the words beside them."""
        parts = [*_parts_around_spans(text.replace("▁", " "))]
        spans = [part for part, has_span in parts if has_span]
        rows = iter(self._data.encoder.encode_batch(spans, parse_special=False))
        encoded: list[np.ndarray | None] = [
            np.array(next(rows), np.int32) if has_span else encode_part(part)
            for part, has_span in parts
        ]
        return _joined(encoded)


def _separator_of(data: TokenizerData) -> tuple[str, int] | None:
    """A character that is always one token of its own, and its id."""
    text = b"".join(token for token in data.tokens if len(token) > 1)
    for character in "\x01\x02\x03\x04\x05":
        if character.encode() not in text:
            ids = data.encoder.encode_batch([character], parse_special=False)[0]
            return (character, ids[0]) if len(ids) == 1 else None
    return None


def _span_words(tokens: list[bytes]) -> bool:
    """Whether tokens have a space after another character, and all of these are whitespace."""
    before = {*_ANY_SPAN.findall(b"\0".join(tokens))}
    return bool(before) and before <= {b"\t", b"\n", b"\r"}


def _has_span(text: str) -> bool:
    """Whether `_SPAN` is in a text, in a tenth of the time that its search takes."""
    spaces = " ▁" if "▁" in text else " "
    return any(c in text and any(c + space in text for space in spaces) for c in "\t\n\r")


def _parts_around_spans(text: str) -> Iterator[tuple[str, bool]]:
    """A text cut between words where no token goes on, and whether `_SPAN` is in each part."""
    begin = 0
    for span in _SPAN.finditer(text):
        if span.start() < begin:
            continue
        cut = text.rfind(" ", begin, span.start())
        while cut > begin and text[cut - 1].isspace():
            cut = text.rfind(" ", begin, cut)
        if cut > begin:
            yield text[begin:cut], False
        after = _WORD_END.search(text, span.end())
        end = len(text) if after is None else after.start()
        yield text[max(cut, begin) : end], True
        begin = end
    if begin < len(text):
        yield text[begin:], False


def _without_spanning(text: str) -> str:
    """A tokenizer.json without the tokens that `_SPAN` finds, which no text without it has."""
    spec = json.loads(text)
    model = spec["model"]
    model["merges"] = [merge for merge in model["merges"] if not _SPAN.search("".join(merge))]
    # Other names leave no hole in the ids.
    model["vocab"] = {
        f"\0{i}" if _SPAN.search(token) else token: i for token, i in model["vocab"].items()
    }
    return json.dumps(spec, ensure_ascii=False)


def _rules_of(data: TokenizerData) -> _Rules:
    """What happens to a text of a tokenizer that has no obstacle."""
    encoder: Any = data.encoder
    if isinstance(encoder, TiktokenEncoder):
        return _Rules(None)
    if isinstance(encoder, SentencePieceEncoder):
        # Its user-defined symbols are found in the normalized text.
        ids = {text.replace("▁", " "): i for text, i in encoder.user_defined.items()}
        find = search_all(ids)
        has_other = search_of(ids) if find is None else None

        def write_spaces(text: str) -> str | None:
            spelled = encoder.normalize(text)
            known = spelled is not None and _MANY_SPACES not in spelled
            return spelled if known else None

        return _Rules(write_spaces, True, ids, find, has_other)
    ids, find, others = _added_tokens(data)
    if not data.family.startswith("byte-level"):
        before = " " * (data.stages.space_rules or ()).count("before")
        # The normalizer leaves an empty text empty.
        write = (lambda text: before + text if text else text) if before else None
        search = search_of(others)
        if search is None or "▁" not in "".join(others):
            return _Rules(write, False, ids, find, search)
        # It writes spaces as "▁", also before the text.
        return _Rules(write, False, ids, find, lambda text: search("▁" + text.replace(" ", "▁")))
    has_other, normalizer = search_of(others), encoder.normalize
    composes = data.stages.composes

    def normalize(text: str) -> str | None:
        """The text by the library, since gigatoken has another release of Unicode."""
        if text.isascii() and composes:
            return text
        normalized = normalizer(text)
        return None if has_other and normalized != text and has_other(normalized) else normalized

    in_normalized = any(data.added[i].normalized for i in ids.values())
    return _Rules(normalizer and normalize, in_normalized, ids, find, has_other)


def _added_tokens(
    data: TokenizerData,
) -> tuple[dict[str, int], Callable[[str], Iterator[re.Match[str]]] | None, list[str]]:
    """How added tokens are found.

    Returns the ids of those that are found as the library finds them, whatever is around; the
    search for them, which also finds special tokens, since they hide others although they are
    plain text; and texts of the rest, none of which may be in a text.
    """
    tokenizer, stages, added = data.encoder.parsing, data.stages, data.added  # type: ignore
    # The library looks for tokens of both kinds one after the other.
    of_normalized = {token.normalized for token in added.values() if not token.special}
    alike = {i: token for i, token in added.items() if token.normalized in of_normalized}
    apart = _cuts_apart(stages, of_normalized)
    ids: Mapping[str, int] = {}
    others: set[str] = set()
    hidden: set[str] = set()
    for i, token in alike.items():
        content = token.content
        matched = name_of(tokenizer, i)  # the normalized content of a normalized token
        changes = _is_changed(token, matched, stages)
        if token.special:
            hidden.add(content)
            apart &= not changes
        elif any((changes, token.lstrip, token.rstrip, token.single_word)):
            others |= {content, matched}
        else:
            ids[content] = i
    search = search_all({*ids, *hidden}) if ids and apart else None
    if search is None:
        others |= {*ids}
        ids = {}
    if not stages.byte_level:
        others = {text.replace(" ", "▁") for text in others}
    return ids, search, sorted(others - {""})


def _is_changed(token: AddedToken, matched: str, stages: Stages) -> bool:
    """Whether an added token, looked for as ``matched``, may stand for another text."""
    has_marks = not stages.byte_level and bool({*token.content} & {" ", "▁"})
    return matched != token.content or (token.normalized and has_marks)


def _cuts_apart(stages: Stages, of_normalized: set[bool]) -> bool:
    """Whether the texts on both sides of an added token are cut as texts of their own.

    ``of_normalized``: in what texts added tokens are looked for, normalized ones or others.
    """
    writes = "before" in (stages.space_rules or ())
    is_alone = len(of_normalized) == 1 and not stages.adds_space
    return is_alone and not (writes and True in of_normalized)


def _joined(rows: list[np.ndarray | None]) -> np.ndarray | None:
    """The ids of all parts, None where one is not known."""
    known = [row for row in rows if row is not None]
    if len(known) < len(rows):
        return None
    return known[0] if len(known) == 1 else np.concatenate(known)


def search_of(strings: Collection[str]) -> Callable[[str], object] | None:
    """A search of a text for any of some strings; None where there is none, or an empty one.

    >>> bool(search_of(["<a>", "<b>"])("x<b>"))
    True

    One regular expression, with the common beginnings of the strings written once, so that its time
    does not grow with their number. The result is true where one is in the text.
    """
    ordered = sorted({*strings})
    if not ordered or not ordered[0]:
        return None
    try:
        return _Search(ordered).first
    except RecursionError:
        return lambda text: any(string in text for string in ordered)


def search_all(strings: Collection[str]) -> Callable[[str], Iterator[re.Match[str]]] | None:
    """All matches of some strings in a text, in order; None where there is no such search.

    >>> [match.group() for match in search_all(["a", "ab", "b"])("xabb")]
    ['ab', 'b']

    Each is the longest at the first place where there is one after the match before.
    """
    ordered = sorted({*strings})
    if not ordered or not ordered[0]:
        return None
    try:
        return _Search(ordered).all
    except RecursionError:
        return None


class _Search:
    """A search for any of sorted, distinct strings by regular expressions.

    If a text has one of their first characters, as a line break, those that begin with it are
    looked for alone, which takes a tenth of the time. Raises RecursionError where the expression is
    too deep.
    """

    def __init__(self, strings: list[str]) -> None:
        groups = itertools.groupby(strings, lambda string: string[0])
        self._of_start = {start: [*group] for start, group in groups}
        self._whole = _pattern(strings)
        self._patterns: dict[str, re.Pattern[str]] = {}

    def first(self, text: str) -> re.Match[str] | None:
        """The first match, or None."""
        pattern = self._pattern_of(text)
        return None if pattern is None else pattern.search(text)

    def all(self, text: str) -> Iterator[re.Match[str]]:
        """All matches, in order."""
        pattern = self._pattern_of(text)
        return iter(()) if pattern is None else pattern.finditer(text)

    def _pattern_of(self, text: str) -> re.Pattern[str] | None:
        """An expression with the same matches in this text as that of all strings, if any."""
        if len(self._of_start) > _MOST_STARTS:
            return self._whole
        present = [start for start in self._of_start if start in text]
        if len(present) != 1:
            return self._whole if present else None
        (start,) = present
        if start not in self._patterns:
            self._patterns[start] = _pattern(self._of_start[start])
        return self._patterns[start]


_MOST_STARTS = 64  # characters that are looked for one by one
_MOST_NESTED = 64  # groups in each other, which the compiler of `re` reads recursively


def _pattern(strings: list[str]) -> re.Pattern[str]:
    return re.compile(_one_of(strings, 0))


def _one_of(strings: list[str], depth: int) -> str:
    """A regular expression for any of sorted, distinct strings, the longest at one place.

    Raises RecursionError where it is too deep.
    """
    if len(strings) == 1:
        return re.escape(strings[0])
    shared = _shared(strings[0], strings[-1])
    rest = [string[shared:] for string in strings]
    begin = re.escape(strings[0][:shared])
    is_whole = not rest[0]  # all others begin with this one
    if depth == _MOST_NESTED:
        raise RecursionError
    groups = itertools.groupby(rest[is_whole:], lambda string: string[0])
    inner = [_one_of(list(group), depth + 1) for _, group in groups]
    return f"{begin}(?:{'|'.join(inner)}){'?' * is_whole}"


def _shared(a: str, b: str) -> int:
    """How many first characters are the same."""
    size = min(len(a), len(b))
    return next((i for i in range(size) if a[i] != b[i]), size)


class GigatokenEncoder:
    """The canonical encoder of a tokenizer by gigatoken, which says itself whether it can be used.

    >>> encoder = GigatokenEncoder(vocab.data)
    >>> encoder.load()
    >>> encoder.encode("hello world")
    array([276, 275], dtype=int32)

    ``reason`` says why gigatoken is not used, or is None. Where gigatoken is not installed, more
    than `LARGE` characters log how to install it.
    """

    def __init__(self, data: TokenizerData) -> None:
        self._data = data
        self.reason = _obstacle(data)
        self._left = 4 * len(data.tokens)  # characters until loading, or a new table, pays
        if self.reason is None and find_spec("gigatoken") is None:
            self.reason, self._left = missing_line("gigatoken"), LARGE
        self._backend: Callable[[str], np.ndarray] | None = None
        self._is_compared = False
        self._lock = ForkSafeLock()
        self._running: list[None] = []  # an entry for each call in progress
        self._texts: Any = TextEncoder(data) if self.reason is None else None
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
            if self._backend is not None or self.reason is not None:
                return
            try:
                with library_errors("gigatoken cannot load this tokenizer"):
                    with import_lock:
                        import gigatoken

                    backend = gigatoken.Tokenizer.from_json(self._texts.json()).backend.encode
                    different = None if self._is_compared else self._first_difference(backend)
            except RobustokError as e:
                self.reason = str(e)
                return
            if self.reason is not None:  # it failed
                return
            if different is not None:
                self.reason = f"gigatoken gives other ids for {different!r}"
                return
            give_back_memory()
            self._left, self._is_compared = TABLE, True
            self._backend = backend

    def _renew(self) -> None:
        """Load gigatoken once there was enough text, or anew once there was very much."""
        if self.reason is not None:
            if self.reason == missing_line("gigatoken"):
                _say_missing()
            return
        with self._lock:
            if self._left < 0:
                self._backend = None
                self.load()

    def _first_difference(self, backend: Callable[[str], np.ndarray]) -> str | None:
        """The first text or character of the comparison with the library that has other ids."""
        data = self._data
        some = data.tokens[:: max(1, len(data.tokens) // 256)]
        added = [*self._texts.added][:64]
        texts = [*check_texts(), *(token.decode("utf8", "ignore") for token in some)]
        texts += [
            f"{a} x{a}{a}y {a}{b}\n{b}z" for a, b in zip(added, added[1:] + added, strict=False)
        ]
        if isinstance(data.encoder, SentencePieceEncoder):
            texts += [" " * count + end for count in range(MOST_SPACES) for end in ("", "a")]
        expected = data.encoder.encode_batch(texts, parse_special=False)
        for text, ids in zip(texts, expected, strict=True):
            row = self._encode_with(backend, text)
            if row is not None and row.tolist() != ids:
                return text
        if not data.family.startswith("byte-level"):
            return None
        if isinstance(data.encoder, TiktokenEncoder):
            encoding = data.encoder.encoding
            return (
                None
                if are_checked("tiktoken")
                else first_difference(isolating(SAME_CUTS[encoding._pat_str]), data.encoder.over)
            )
        if are_checked("tokenizers"):
            return None
        return first_difference(data.stages.pre_tokenizer or {})

    def _encode_with(self, backend: Callable[[str], np.ndarray], text: Text) -> np.ndarray | None:
        """The ids by gigatoken, None where it may give other ids than the library."""
        if isinstance(text, bytes):
            try:
                text = text.decode("utf8")
            except UnicodeDecodeError:
                return None
        return self._texts.encode(text, partial(self._encode_part, backend))

    def _encode_part(self, backend: Callable[[str], np.ndarray], part: str) -> np.ndarray | None:
        self._running.append(None)
        try:
            return backend(part).view(np.int32)
        except BaseException as error:  # a panic of a Rust library is no Exception
            self.reason = str(library_error("gigatoken failed", error))
            self._backend = None
            return None
        finally:
            self._running.pop()


@cache
def _say_missing() -> None:
    """Log once that an installed gigatoken would encode faster."""
    _log.warning(
        "canonical ids are computed by the tokenizer's own library; gigatoken is usually 10 to 70"
        " times as fast: %s",
        EXTRAS["gigatoken"].install("gigatoken"),
    )


def _obstacle(data: TokenizerData) -> str | None:
    """Why gigatoken cannot be used for this tokenizer, as far as its settings tell."""
    encoder = data.encoder
    if isinstance(encoder, (TiktokenEncoder, SentencePieceEncoder)):
        return encoder.model_obstacle
    if not isinstance(encoder, TokenizersEncoder) or not data.family.endswith("BPE"):
        return f"gigatoken does not know {data.family}"
    if not HAS_PARTS:
        return "tokenizers 1.0 is as fast"
    model = encoder.parsing.model
    if not encoder.complete:
        return "the vocabulary lacks bytes"
    if encoder.names_bytes:
        return "the model reads names of bytes in the text"
    if not data.family.startswith("byte-level"):
        if not model.byte_fallback:
            return "the model has no byte fallback"
        known = data.stages.space_rules is not None
        return None if known else "gigatoken does not know this normalizer"
    if data.stages.adds_space:
        return "the pre-tokenizer adds a space"
    known = data.stages.isolates_then_spells
    return None if known else "gigatoken does not know this pre-tokenizer"


_encoders: weakref.WeakSet[GigatokenEncoder] = weakref.WeakSet()
_abandoned: list[Any] = []  # never freed, since another thread of the parent was changing them


def _forget_running() -> None:
    """In a forked child: load gigatoken anew where a thread of the parent was encoding."""
    for encoder in list(_encoders):
        if encoder._running:
            _abandoned.append(encoder._backend)
            encoder._running, encoder._backend, encoder._left = [], None, -1


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_forget_running)
