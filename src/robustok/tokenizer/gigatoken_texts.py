"""Texts as gigatoken reads them: normalized, without added tokens, cut where its model differs.

The library looks for added tokens before or after it normalizes a text; the parts between them are
encoded on their own. A SentencePiece text is encoded word by word, unless a token goes from one
word to the next: the library encodes such words. gigatoken's own reading is never relied on: where
it may differ, a text has no ids here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from tokenizers import Tokenizer, normalizers

from robustok.tokenizer.data import TokenizerData, search_all, search_of
from robustok.tokenizer.gigatoken_check import has_unsafe
from robustok.tokenizer.libraries import MOST_SPACES, SentencePieceEncoder, TiktokenEncoder
from robustok.tokenizer.tokenizer_json import TokenizersEncoder

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
            plain = Tokenizer(encoder.tokenizer.model)
            if not self._byte_level and "inside" in (self._data.stages.space_rules or ()):
                plain.normalizer = normalizers.Replace(" ", "▁")  # type: ignore[assignment]
            plain.pre_tokenizer = encoder.tokenizer.pre_tokenizer
            text = plain.to_str()
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
    has_other, normalizer = search_of(others), encoder.tokenizer.normalizer
    composes = data.stages.composes

    def normalize(text: str) -> str | None:
        """The text by the library, since gigatoken has another release of Unicode."""
        if text.isascii() and composes:
            return text
        normalized: str = normalizer.normalize_str(text)
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
    tokenizer, stages = data.encoder.tokenizer, data.stages  # type: ignore
    added = tokenizer.get_added_tokens_decoder()
    plain = {i: token for i, token in added.items() if not token.special}
    # The library looks for tokens of both kinds one after the other.
    of_normalized = {token.normalized for token in plain.values()}
    alike = {i: token for i, token in added.items() if token.normalized in of_normalized}
    writes = "before" in (stages.space_rules or ())
    # A text on each side of an added token is cut as one of its own.
    apart = len(of_normalized) == 1 and not stages.adds_space
    apart = apart and not (writes and True in of_normalized)
    ids: Mapping[str, int] = {}
    others: set[str] = set()
    hidden: set[str] = set()
    for i, token in alike.items():
        content = token.content
        matched = tokenizer.id_to_token(i)  # the normalized content of a normalized token
        marks = token.normalized and not stages.byte_level and bool({*content} & {" ", "▁"})
        if token.special:
            hidden.add(content)
            apart = apart and matched == content and not marks
        elif matched != content or marks or token.lstrip or token.rstrip or token.single_word:
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


def _joined(rows: list[np.ndarray | None]) -> np.ndarray | None:
    """The ids of all parts, None where one is not known."""
    known = [row for row in rows if row is not None]
    if len(known) < len(rows):
        return None
    return known[0] if len(known) == 1 else np.concatenate(known)
