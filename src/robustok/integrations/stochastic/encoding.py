"""Drawn encodings: the interface of `tokenizers.Encoding`, with lists that are made when asked for.

An encoding is a row of parts: spans of drawn texts, and special tokens or padding. The ids are
there at once. Token strings, words and offsets follow from the canonical encodings, which may not
have been made either: the first question about one text makes those of all texts of its call.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, takewhile
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Encoding

from robustok.errors import RobustokError
from robustok.kernels.alignment import align
from robustok.tokenizer.vocabulary import Vocabulary

Span = tuple[int, int]
# White space as byte-level post-processors see it: Rust's, and the space of the byte alphabet.
_SPACES = "Ġ\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


class Lists(NamedTuple):
    """What is known of the tokens of one text, an entry a token."""

    tokens: list[str]
    words: list[int | None]
    offsets: list[Span]


class Call:
    """The texts of one call, with canonical and drawn ids.

    Args:
        vocab: their vocabulary.
        names: the token string of each id.
        old: canonical ids of each text, int32.
        new: drawn ids of each text, int32.
        encoded: returns the canonical `tokenizers.Encoding` of each text.
    """

    def __init__(
        self,
        vocab: Vocabulary,
        names: dict[int, str],
        old: Sequence[np.ndarray],
        new: Sequence[np.ndarray],
        encoded: Callable[[], Sequence[Encoding]],
    ) -> None:
        self._vocab, self._names, self._old, self._new = vocab, names, old, new
        self._encoded = encoded
        self._lists: list[Lists] | None = None

    @property
    def lists(self) -> list[Lists]:
        """The lists of each text; the first read makes them."""
        if self._lists is None:
            self._lists = self._aligned()
        return self._lists

    def _aligned(self) -> list[Lists]:
        encoded = self._encoded()
        old, old_offsets = _joined(self._old)
        new, new_offsets = _joined(self._new)
        if [i for one in encoded for i in one.ids] != old.tolist():
            raise RobustokError(
                "the tokenizer has changed since it encoded this text: read tokens, words and "
                "offsets before, or encode the text again"
            )
        spans = np.array([span for one in encoded for span in one.offsets], np.int64)
        vocab = self._vocab
        origins, kept, offsets, _ = align(
            old,
            old_offsets,
            new,
            new_offsets,
            vocab.token_bytes,
            vocab.token_offsets,
            spans.reshape(-1, 2),
        )
        names, rows, at = self._names, [], 0
        ids, origins, kept = new.tolist(), origins.tolist(), kept.tolist()
        places = list(map(tuple, offsets.tolist()))
        for one, row in zip(encoded, self._new, strict=True):
            span = slice(at, at + len(row))
            at += len(row)
            # A kept token has the canonical string: an added token is spelled as in the text.
            strings, words = one.tokens, one.word_ids
            parts = zip(ids[span], origins[span], kept[span], strict=True)
            tokens = [strings[j] if is_kept else names[i] for i, j, is_kept in parts]
            rows.append(Lists(tokens, [words[j] for j in origins[span]], places[span]))
        return rows


def _joined(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ids one after another, int32, and where each begins, int64 [rows + 1]."""
    if len(rows) == 1:
        return rows[0], np.array([0, len(rows[0])])
    return np.concatenate(rows), np.array([0, *accumulate(map(len, rows))])


class DrawnText:
    """The drawn tokens of one text of a `Call`."""

    __slots__ = ("_call", "_lists", "_number", "ids")

    def __init__(self, ids: list[int], call: Call, number: int) -> None:
        self.ids, self._call, self._number = ids, call, number
        self._lists: Lists | None = None

    @property
    def lists(self) -> Lists:
        """Token strings, words and offsets."""
        if self._lists is None:
            self._lists = self._call.lists[self._number]
        return self._lists

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """The lists, without the tokenizer that could make them."""
        return None, {"ids": self.ids, "_call": None, "_number": 0, "_lists": self.lists}


class Trim(NamedTuple):
    """How a byte-level post-processor cut white space off the offsets of tokens.

    ``keeps_prefix``: a single space at the start of the text counts as the tokenizer's own, which
    has no offsets to cut. ``first``: the token that was the first of its encoding.
    """

    keeps_prefix: bool
    first: int

    def cut(self, number: int, token: str, span: Span) -> Span:
        """The offsets of token ``number``."""
        low, high = span
        lead = len(token) - len(token.lstrip(_SPACES))
        trail = len(token) - len(token.rstrip(_SPACES))
        if lead == 1 and self.keeps_prefix and (number == self.first or low == 0):
            lead = 0
        low = min(low + lead, high)
        if trail and high >= trail:
            high = max(high - trail, low)
        return low, high


class Drawn(NamedTuple):
    """Tokens ``begin`` to ``end`` of a drawn text; ``shift`` is added to their offsets."""

    text: DrawnText
    begin: int
    end: int
    type_id: int
    trim: Trim | None = None
    shift: int = 0

    attention, special = 1, 0

    @property
    def size(self) -> int:
        return self.end - self.begin

    @property
    def ids(self) -> list[int]:
        return self.text.ids[self.begin : self.end]

    @property
    def tokens(self) -> list[str]:
        return self.text.lists.tokens[self.begin : self.end]

    @property
    def words(self) -> list[int | None]:
        return self.text.lists.words[self.begin : self.end]

    @property
    def offsets(self) -> list[Span]:
        spans = self.text.lists.offsets[self.begin : self.end]
        if self.trim is not None:
            rows = enumerate(zip(self.tokens, spans, strict=True), self.begin)
            spans = [self.trim.cut(i, token, span) for i, (token, span) in rows]
        shift = self.shift
        return [(low + shift, high + shift) for low, high in spans] if shift else spans

    def slice(self, begin: int, end: int) -> Drawn:
        """Some of the tokens, numbered from this part's first."""
        return self._replace(begin=self.begin + begin, end=self.begin + end)


class Fixed(NamedTuple):
    """Special tokens of a post-processor, or padding."""

    ids: list[int]
    tokens: list[str]
    type_id: int
    attention: int
    shift: int = 0

    special = 1

    @property
    def size(self) -> int:
        return len(self.ids)

    @property
    def words(self) -> list[int | None]:
        return [None] * len(self.ids)

    @property
    def offsets(self) -> list[Span]:
        return [(self.shift, self.shift)] * len(self.ids)

    def slice(self, begin: int, end: int) -> Fixed:
        """Some of the tokens."""
        return self._replace(ids=self.ids[begin:end], tokens=self.tokens[begin:end])


Part = Drawn | Fixed


class DrawnEncoding:
    """Drawn tokens with the attributes and methods of `tokenizers.Encoding`, which mean the same.

    >>> drawing = rt.stochastic(tokenizer, "uniform", seed=0)
    >>> encoding = drawing.encode("hello world")
    >>> encoding.ids == drawing.encode("hello world").ids, encoding.char_to_token(6)
    (True, 5)

    Lists are made when they are read; each read returns a new one, as in the library.
    """

    __slots__ = ("_known", "overflowing", "parts", "ranges")

    def __init__(
        self,
        parts: Sequence[Part] = (),
        ranges: dict[int, Span] | None = None,
        overflowing: Iterable[DrawnEncoding] = (),
    ) -> None:
        self.parts = tuple(parts)
        self.ranges = ranges or {}  # the tokens of each sequence
        self.overflowing = list(overflowing)
        self._known: dict[str, list[Any]] = {}  # lists that questions about one place share

    # --- lists, an entry a token --------------------------------------------------------------

    @property
    def ids(self) -> list[int]:
        return [i for part in self.parts for i in part.ids]

    @property
    def type_ids(self) -> list[int]:
        return [i for part in self.parts for i in [part.type_id] * part.size]

    @property
    def attention_mask(self) -> list[int]:
        return [i for part in self.parts for i in [part.attention] * part.size]

    @property
    def special_tokens_mask(self) -> list[int]:
        return [i for part in self.parts for i in [part.special] * part.size]

    @property
    def tokens(self) -> list[str]:
        return [token for part in self.parts for token in part.tokens]

    @property
    def word_ids(self) -> list[int | None]:
        return [word for part in self.parts for word in part.words]

    words = word_ids

    @property
    def offsets(self) -> list[Span]:
        return [span for part in self.parts for span in part.offsets]

    @property
    def sequence_ids(self) -> list[int | None]:
        numbers: list[int | None] = [None] * len(self)
        for i in range(self.n_sequences):
            begin, end = self._range(i)
            numbers[begin:end] = [i] * (end - begin)
        return numbers

    @property
    def n_sequences(self) -> int:
        return len(self.ranges) or 1

    # --- questions about one place --------------------------------------------------------------

    def token_to_sequence(self, token_index: int) -> int | None:
        if not self.ranges:
            return 0 if token_index <= len(self) else None
        ranges = self.ranges.items()
        return next((i for i, (begin, end) in ranges if begin <= token_index < end), None)

    def token_to_chars(self, token_index: int) -> Span | None:
        return self._of_token("offsets", token_index)

    def token_to_word(self, token_index: int) -> int | None:
        return self._of_token("word_ids", token_index)

    def char_to_token(self, char_pos: int, sequence_index: int = 0) -> int | None:
        begin, end = self._range(sequence_index)
        spans = enumerate(self._list("offsets")[begin:end], begin)
        return next((i for i, (low, high) in spans if low <= char_pos < high), None)

    def char_to_word(self, char_pos: int, sequence_index: int = 0) -> int | None:
        token = self.char_to_token(char_pos, sequence_index)
        return None if token is None else self.token_to_word(token)

    def word_to_tokens(self, word_index: int, sequence_index: int = 0) -> Span | None:
        begin, end = self._range(sequence_index)
        words = enumerate(self._list("word_ids")[begin:end], begin)
        # Words ascend, but in merged encodings: the library looks no further than a later one.
        some = takewhile(lambda pair: pair[1] is None or pair[1] <= word_index, words)
        places = [i for i, word in some if word == word_index]
        return (places[0], places[-1] + 1) if places else None

    def word_to_chars(self, word_index: int, sequence_index: int = 0) -> Span | None:
        span = self.word_to_tokens(word_index, sequence_index)
        if span is None:
            return None
        offsets = self._list("offsets")
        return offsets[span[0]][0], offsets[span[1] - 1][1]

    def _range(self, sequence: int) -> Span:
        return self.ranges.get(sequence, (0, len(self)))

    def _of_token(self, name: str, token: int) -> Any:
        if not 0 <= token < len(self) or self.token_to_sequence(token) is None:
            return None
        return self._list(name)[token]

    def _list(self, name: str) -> list[Any]:
        if name not in self._known:
            self._known[name] = getattr(self, name)
        return self._known[name]

    # --- changes ----------------------------------------------------------------------------------

    def set_sequence_id(self, sequence_id: int) -> None:
        self.ranges[sequence_id] = (0, len(self))

    def pad(
        self,
        length: int,
        *,
        direction: str = "right",
        pad_id: int = 0,
        pad_type_id: int = 0,
        pad_token: str = "[PAD]",
    ) -> None:
        if direction not in ("left", "right"):
            raise ValueError(f"Unknown `direction`: `{direction}`. Use one of `left` or `right`")
        for one in self.overflowing:
            one.pad(
                length,
                direction=direction,
                pad_id=pad_id,
                pad_type_id=pad_type_id,
                pad_token=pad_token,
            )
        n = length - len(self)
        if n <= 0:
            return
        padding = Fixed([pad_id] * n, [pad_token] * n, pad_type_id, 0)
        if direction == "right":
            self._change([*self.parts, padding])
        else:
            self._change([padding, *self.parts])
            self.ranges = _moved(self.ranges, n)

    def truncate(self, max_length: int, stride: int = 0, direction: str = "right") -> None:
        if direction not in ("left", "right"):
            raise ValueError(f"Invalid truncation direction value : {direction}")
        size = len(self)
        if max_length >= size:
            return
        if max_length == 0:
            self.overflowing = [copy.copy(self)]
            self._change(())
            self.ranges = {}
            return
        if stride >= max_length:
            raise ValueError(
                f"`stride` must be strictly less than `max_len={max_length}` (note that `max_len` "
                "may be shorter than the max length of the original model, as it subtracts the "
                "number of special characters"
            )
        windows = [(0, max_length)]
        while windows[-1][1] < size:
            begin = windows[-1][0] + max_length - stride
            windows.append((begin, min(begin + max_length, size)))
        if direction == "left":
            windows = [(size - end, size - begin) for begin, end in windows]
        first, *others = [self._window(*window) for window in windows]
        self._change(first)
        self.ranges = {}
        self.overflowing = [DrawnEncoding(parts) for parts in others]

    @staticmethod
    def merge(encodings: Iterable[DrawnEncoding], growing_offsets: bool = True) -> DrawnEncoding:
        whole = DrawnEncoding()
        for one in encodings:
            whole = whole._joined(one, growing_offsets)
        return whole

    def _joined(self, other: DrawnEncoding, growing_offsets: bool) -> DrawnEncoding:
        """Both side by side; ``overflowing`` has all other pairs of both and their windows."""
        overflowing = [
            mine._joined(theirs, growing_offsets)
            for mine in (*self.overflowing, self)
            for theirs in (other, *other.overflowing)
            if mine is not self or theirs is not other
        ]
        parts, offset = other.parts, 0
        if growing_offsets and self.parts:
            offset = self.offsets[-1][1] if len(self) else 0
        if offset:
            parts = [part._replace(shift=part.shift + offset) for part in parts]
        ranges = {**self.ranges, **_moved(other.ranges, len(self))}
        return DrawnEncoding([*self.parts, *parts], ranges, overflowing)

    def _change(self, parts: Iterable[Part]) -> None:
        self.parts, self._known = tuple(parts), {}

    def _window(self, begin: int, end: int) -> list[Part]:
        """The parts of tokens ``begin`` to ``end``."""
        parts: list[Part] = []
        at = 0
        for part in self.parts:
            low, high = max(begin - at, 0), min(end - at, part.size)
            if low < high:
                parts.append(part.slice(low, high))
            at += part.size
        return parts

    def __len__(self) -> int:
        return sum(part.size for part in self.parts)

    def __repr__(self) -> str:
        return (
            f"Encoding(num_tokens={len(self)}, attributes=[ids, type_ids, tokens, offsets, "
            "attention_mask, special_tokens_mask, overflowing])"
        )


def _moved(ranges: dict[int, Span], n: int) -> dict[int, Span]:
    return {i: (begin + n, end + n) for i, (begin, end) in ranges.items()}
