"""Drawn encodings: the interface of `tokenizers.Encoding`, with lists that are made when asked for.

An encoding is a row of parts: spans of drawn texts, special tokens, and padding. The ids are there
at once. Token strings, words and offsets follow from the canonical encodings, which may not
have been made either: the first question about one text makes those of all texts of its call.

Truncation, special tokens and padding are done here, as the wrapped tokenizer sets them:
`tokenizers` does them to encodings of its own kind alone. Where its post-processor puts special
tokens, and which types it gives, is read from what it makes of one token. What it does not treat:
a post-processor whose result depends on the tokens, of which the library has none.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, product
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Encoding, Tokenizer, processors
from tokenizers.processors import PostProcessor

from robustok.errors import RobustokError
from robustok.kernels.alignment import align
from robustok.tokenizer.vocabulary import Vocabulary

Span = tuple[int, int]
_TRIMMING = (processors.ByteLevel, processors.RobertaProcessing)
# White space as byte-level post-processors see it: Rust's, and the space of the byte alphabet.
_SPACES = "Ġ\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


class Lists(NamedTuple):
    """What is known of the tokens of one text, an entry a token."""

    tokens: list[str | None]
    words: list[int | None]
    offsets: list[Span]


def aligned(
    vocab: Vocabulary,
    names: Callable[[int], str | None],
    canonical: Sequence[np.ndarray],
    drawn: Sequence[np.ndarray],
    encodings: Sequence[Encoding],
) -> list[Lists]:
    """The lists of the texts of one call.

    Args:
        vocab: their vocabulary.
        names: gives the token string of an id.
        canonical: canonical ids of each text, int32.
        drawn: drawn ids of each text, int32.
        encodings: the canonical encoding of each text.
    """
    old, old_offsets = _joined(canonical)
    new, new_offsets = _joined(drawn)
    if [i for one in encodings for i in one.ids] != old.tolist():
        raise RobustokError(
            "the tokenizer has changed since it encoded this text: read tokens, words and "
            "offsets before, or encode the text again"
        )
    spans = np.array([span for one in encodings for span in one.offsets], np.int64)
    origins, kept, offsets, _ = align(
        old,
        old_offsets,
        new,
        new_offsets,
        vocab.token_bytes,
        vocab.token_offsets,
        spans.reshape(-1, 2),
    )
    rows, at = [], 0
    ids, origins, kept = new.tolist(), origins.tolist(), kept.tolist()
    places = list(map(tuple, offsets.tolist()))
    for one, row in zip(encodings, drawn, strict=True):
        span = slice(at, at + len(row))
        at += len(row)
        # A kept token has the canonical string: an added token is spelled as in the text.
        strings, words = one.tokens, one.word_ids
        parts = zip(ids[span], origins[span], kept[span], strict=True)
        tokens = [strings[j] if is_kept else names(i) for i, j, is_kept in parts]
        rows.append(Lists(tokens, [words[j] for j in origins[span]], places[span]))
    return rows


def _joined(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ids one after another, int32, and where each begins, int64 [rows + 1]."""
    if len(rows) == 1:
        return rows[0], np.array([0, len(rows[0])])
    return np.concatenate(rows), np.array([0, *accumulate(map(len, rows))])


class Text:
    """The ids of a drawn text, of special tokens or of padding, and their lists.

    Args:
        ids: an id a token.
        lists: their token strings, words and offsets, or a function that makes these.
    """

    __slots__ = ("_lists", "ids")

    def __init__(self, ids: list[int], lists: Lists | Callable[[], Lists]) -> None:
        self.ids, self._lists = ids, lists

    @classmethod
    def fixed(cls, token_id: int, token: str, count: int = 1) -> Text:
        """A token that stands for no characters, ``count`` times."""
        return cls([token_id] * count, Lists([token] * count, [None] * count, [(0, 0)] * count))

    @property
    def lists(self) -> Lists:
        if callable(self._lists):
            self._lists = self._lists()
        return self._lists

    def __reduce__(self) -> tuple[Any, ...]:
        """With the lists, and without the tokenizer that could make them."""
        return Text, (self.ids, self.lists)


class Part(NamedTuple):
    """Tokens ``begin`` to ``end`` of a text.

    ``keeps_prefix``: a byte-level post-processor has cut white space off the offsets; where it is
    true, a single space at the start of the text counts as the tokenizer's own, which has no
    offsets to cut. ``first``: the token that was the first of its encoding then.
    """

    text: Text
    begin: int
    end: int
    type_id: int
    attention: int = 1
    special: int = 0
    keeps_prefix: bool | None = None
    first: int = -1

    @property
    def size(self) -> int:
        return self.end - self.begin

    @property
    def ids(self) -> list[int]:
        return self.text.ids[self.begin : self.end]

    @property
    def tokens(self) -> list[str | None]:
        return self.text.lists.tokens[self.begin : self.end]

    @property
    def words(self) -> list[int | None]:
        return self.text.lists.words[self.begin : self.end]

    @property
    def offsets(self) -> list[Span]:
        spans = self.text.lists.offsets[self.begin : self.end]
        if self.keeps_prefix is None:
            return spans
        rows = enumerate(zip(self.tokens, spans, strict=True), self.begin)
        return [self._trimmed(i, token or "", span) for i, (token, span) in rows]

    def _trimmed(self, number: int, token: str, span: Span) -> Span:
        """The offsets of token ``number`` without white space."""
        low, high = span
        lead = len(token) - len(token.lstrip(_SPACES))
        trail = len(token) - len(token.rstrip(_SPACES))
        if lead == 1 and self.keeps_prefix and (number == self.first or low == 0):
            lead = 0
        low = min(low + lead, high)
        if trail and high >= trail:
            high = max(high - trail, low)
        return low, high


class DrawnEncoding:
    """Drawn tokens with the attributes and methods of `tokenizers.Encoding`, which mean the same.

    The methods that build encodings of others are left out: `merge` and `set_sequence_id`.

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
    def tokens(self) -> list[str | None]:
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
        places = [i for i, word in words if word == word_index]
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
        padding = Part(Text.fixed(pad_id, pad_token, n), 0, n, pad_type_id, attention=0, special=1)
        if direction == "right":
            self._change([*self.parts, padding])
        else:
            self._change([padding, *self.parts])
            self.ranges = {i: (begin + n, end + n) for i, (begin, end) in self.ranges.items()}

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

    def _change(self, parts: Iterable[Part]) -> None:
        self.parts, self._known = tuple(parts), {}

    def _window(self, begin: int, end: int) -> list[Part]:
        """The parts of tokens ``begin`` to ``end``."""
        parts: list[Part] = []
        at = 0
        for part in self.parts:
            low, high = max(begin - at, 0), min(end - at, part.size)
            if low < high:
                parts.append(part._replace(begin=part.begin + low, end=part.begin + high))
            at += part.size
        return parts

    def __len__(self) -> int:
        return sum(part.size for part in self.parts)

    def __repr__(self) -> str:
        return (
            f"Encoding(num_tokens={len(self)}, attributes=[ids, type_ids, tokens, offsets, "
            "attention_mask, special_tokens_mask, overflowing])"
        )


class Place(NamedTuple):
    """Where a sequence stands, and the type of its tokens."""

    sequence: int
    type_id: int


# A whole sequence, or a window of it with the types of its tokens in each place of the template.
_Chosen = tuple[DrawnEncoding, Sequence[int] | None]


class PostProcessing:
    """What a tokenizer does to encodings, with its settings of this moment.

    Args:
        tokenizer: a `tokenizers.Tokenizer`.
        probes: canonical encodings of one token, which show what its post-processor does: one
            without windows, one with a window more, and the same of type 1.
        add_special_tokens: whether the post-processor adds its special tokens.
    """

    def __init__(
        self, tokenizer: Tokenizer, probes: Sequence[Encoding], add_special_tokens: bool
    ) -> None:
        self._probes, self._adds = probes, add_special_tokens
        self._processor, self._truncation = tokenizer.post_processor, tokenizer.truncation
        self._keeps_prefix = _keeps_prefix(self._processor)
        self._templates: dict[int, list[Part | Place]] = {}

    def __call__(self, *sequences: DrawnEncoding) -> DrawnEncoding:
        """The encoding of one sequence or a pair; their own encodings are changed."""
        n = len(sequences)
        template = self._templates.get(n)
        if template is None:
            template = self._templates[n] = self._template(n)
        if self._truncation is not None:
            fixed = sum(isinstance(part, Part) for part in template)
            truncate(sequences, self._truncation, fixed)
        return self._combined([(one, None) for one in sequences], template)

    def _combined(self, chosen: list[_Chosen], template: Sequence[Part | Place]) -> DrawnEncoding:
        """The result for some sequences; ``overflowing`` has all others with windows of them."""
        parts: list[Part] = []
        ranges, at = {}, 0
        for number, place in enumerate(template):
            if isinstance(place, Part):
                parts.append(place)
                at += place.size
                continue
            own, types = chosen[place.sequence]
            begin, at = at, at + len(own)
            parts += self._changed(own, place.type_id if types is None else types[number])
            if self._processor is not None or (types is None and len(chosen) == 2):
                ranges[place.sequence] = begin, at
        whole = DrawnEncoding(parts, ranges)
        if self._truncation is not None and any(one.overflowing for one, _ in chosen):
            rows = [
                [(window, types) for window in one.overflowing]
                for (one, _), types in zip(chosen, self._window_types(len(chosen)), strict=False)
            ]
            choices = [[*rows[0], chosen[0]], [chosen[-1], *rows[-1]]][: len(chosen)]
            whole.overflowing = [
                self._combined(some, template)
                for some in map(list, product(*choices))
                if some != chosen
            ]
        return whole

    def _template(self, n: int) -> list[Part | Place]:
        """What the result of ``n`` sequences consists of, in order."""
        if self._processor is None:
            return [Place(i, i) for i in range(n)]
        alone, first, second = self._probes
        probe = (alone, None) if n == 1 else (first, second)
        one = self._processor.process(*probe, self._adds)
        rows = zip(one.sequence_ids, one.type_ids, one.ids, one.tokens, strict=True)
        return [
            Part(Text.fixed(token_id, token), 0, 1, type_id, special=1)
            if sequence is None
            else Place(sequence, type_id)
            for sequence, type_id, token_id, token in rows
        ]

    def _window_types(self, n: int) -> list[list[int]]:
        """The types of all places in a window of each sequence."""
        if self._processor is None:
            return [[i] * n for i in range(n)]
        # Windows have the types that their texts were encoded with, or those of the processor.
        _, first, second = self._probes
        one = self._processor.process(first, second if n == 2 else None, self._adds)
        return [one.overflowing[i].type_ids for i in (0, -1)]

    def _changed(self, one: DrawnEncoding, type_id: int) -> list[Part]:
        """The tokens of an encoding with another type, and offsets as the processor cuts them."""
        keeps_prefix = self._keeps_prefix
        first = one.parts[0].begin if one.parts else -1
        return [Part(p.text, p.begin, p.end, type_id, 1, 0, keeps_prefix, first) for p in one.parts]


def truncate(sequences: Sequence[DrawnEncoding], settings: dict[str, Any], fixed: int) -> None:
    """Cut one sequence or a pair to ``settings``, those of `tokenizers.Tokenizer.truncation`.

    ``fixed``: how many special tokens are added afterwards. Raises RobustokError where nothing of a
    sequence would be left.
    """
    limit = settings["max_length"] - fixed
    sizes = [len(one) for one in sequences]
    excess = sum(sizes) - limit
    options = settings["stride"], settings["direction"]
    if limit < 0 or excess <= 0:  # the library too leaves a text whose special tokens do not fit
        return
    if limit == 0:
        for one in sequences:
            one.truncate(0, *options)
    elif settings["strategy"] == "longest_first":
        for one, size in zip(sequences, _shares(sizes, limit), strict=True):
            one.truncate(size, *options)
    else:
        which = int(settings["strategy"] == "only_second")
        if which >= len(sequences):
            raise RobustokError("Truncation error: Second sequence not provided")
        if sizes[which] <= excess:
            raise RobustokError(
                "Truncation error: Sequence to truncate too short to respect the provided "
                "max_length"
            )
        sequences[which].truncate(sizes[which] - excess, *options)


def _shares(sizes: Sequence[int], limit: int) -> list[int]:
    """How many tokens of each sequence stay: the longest is cut first."""
    if len(sizes) == 1:
        return [limit]
    short, long = min(sizes), max(sizes)
    long = short if short > limit else max(short, limit - short)
    if short + long > limit:
        short, long = limit // 2, limit // 2 + limit % 2
    return [long, short] if sizes[0] > sizes[1] else [short, long]


def pad(encodings: Sequence[DrawnEncoding], settings: dict[str, Any] | None) -> None:
    """Pad to ``settings``, those of `tokenizers.Tokenizer.padding`; by default to the longest."""
    if settings is None or not encodings:
        return
    length = settings["length"] or max(map(len, encodings))
    length += -length % (settings["pad_to_multiple_of"] or 1)
    names = ("direction", "pad_id", "pad_type_id", "pad_token")
    for one in encodings:
        one.pad(length, **{name: settings[name] for name in names})


def _keeps_prefix(processor: PostProcessor | None) -> bool | None:
    """Whether a first space counts where white space is cut off offsets; None where it is not."""
    if isinstance(processor, processors.Sequence):
        return next((k for k in map(_keeps_prefix, processor) if k is not None), None)  # type: ignore
    if isinstance(processor, _TRIMMING) and processor.trim_offsets:
        return bool(processor.add_prefix_space)
    return None
