"""The canonical ids of any ids: the one definition that encoding, the samplers and the guard use.

See `robustok.tokenizer.data`. Ids are looked at in segments, the runs of ids between special
ones. The canonical ids of a segment depend on its bytes, its placed ids and the special ids beside
it. They are therefore the same for all draws of a text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from robustok.checks import shown
from robustok.errors import RobustokError
from robustok.ragged import Ragged
from robustok.tokenizer.data import broken_spans

NONE = -1  # where there is no special id


class Segment(NamedTuple):
    """Ids between special ones."""

    ids: np.ndarray  # int32, none empty
    before: int = NONE  # the special id before them, where their text does not begin with them
    after: int = NONE  # the special id after them


class _Attempt(NamedTuple):
    """A text whose ids may be those of a segment.

    ``kind``: "alone", "amid" the special ids ``beside`` it, which the text spells, too, or
    "continued", without an encoder's first space.
    """

    text: bytes
    kind: str = "alone"
    beside: tuple[int, int] = (NONE, NONE)

    def inner(self, row: np.ndarray) -> np.ndarray:
        """The ids of the text between those beside it; none where other ids are there."""
        before, after = self.beside
        begin, end = int(before != NONE), len(row) - (after != NONE)
        around = [*row[:begin].tolist(), *row[max(begin, end) :].tolist()]
        return row[begin:end] if around == [i for i in self.beside if i != NONE] else row[:0]


class Canonicalizer:
    """The canonical ids of segments, and which ids are canonical.

    ``vocab``: a ``Vocabulary``, whose module imports this one.
    """

    def __init__(self, vocab: Any) -> None:
        self.vocab = vocab

    def segments(self, ids: np.ndarray) -> Iterator[Segment]:
        """The segments of a row and the runs of special ids, in order."""
        runs = np.split(ids, np.flatnonzero(np.diff(self.vocab.readable[ids])) + 1)
        # What the tokenizer puts before a text by itself is no part of it.
        frame = self.vocab.frame[0] if len(runs) > 1 else []
        begins = {0, len(frame)} if ids[: len(frame)].tolist() == frame else {0}
        at = 0
        for run in runs if len(ids) else []:
            begin, at = at, at + len(run)
            before = NONE if begin in begins else int(ids[begin - 1])
            yield Segment(run, before, int(ids[at]) if at < len(ids) else NONE)

    def is_special(self, segment: Segment) -> bool:
        """Whether a run is one of special ids."""
        return not self.vocab.readable[segment.ids[0]]

    def exact_batch(
        self, segments: Sequence[Segment], first: Sequence[np.ndarray] | None = None
    ) -> list[np.ndarray | None]:
        """The canonical ids of each segment, int32; None where no text gives ids with its bytes.

        With its placed ids at the same places where there are such ids.

        ``first``: the ids of the first source of each segment, where they are known.
        """
        texts = [self.vocab.decode_bytes(segment.ids) for segment in segments]
        attempts = [*map(self._attempts, segments, texts)]
        canonical: list[np.ndarray | None] = [None] * len(segments)
        pending: Sequence[int] = range(len(segments))
        while pending:
            tried = [(i, attempt) for i in pending if (attempt := next(attempts[i], None))]
            if first is None:
                rows = self._encode_attempts([attempt for _, attempt in tried])
            else:
                rows, first = [first[i] for i, _ in tried], None
            left = []
            for (i, _), row in zip(tried, rows, strict=True):
                if self.vocab.decode_bytes(row) == texts[i] and self.vocab.readable[row].all():
                    if self.places(row) == self.places(segments[i].ids):
                        canonical[i] = row
                        continue
                    canonical[i] = row if canonical[i] is None else canonical[i]
                left.append(i)
            pending = left
        return canonical

    def _attempts(self, segment: Segment, text: bytes) -> Iterator[_Attempt]:
        """The ways to encode a segment that spells ``text``, the likeliest first."""
        for source in self.vocab.sources(segment.ids):
            yield _Attempt(source)
        if text[:1] == b" ":  # some encoders add a space only where there is none
            yield _Attempt(text)
        beside = segment.before, segment.after
        if beside != (NONE, NONE):
            tokens = [b"" if i == NONE else self.vocab.tokens[i] for i in beside]
            for source in self.vocab.sources(segment.ids):
                yield _Attempt(source.join(tokens), "amid", beside)
        # The bytes of a character that is not whole get no space before them.
        if segment.before != NONE or (text[:1] == b" " and 0 in broken_spans(text[1:5])[0]):
            yield _Attempt(text, "continued")

    def _encode_attempts(self, attempts: Sequence[_Attempt]) -> list[np.ndarray]:
        """The ids of each attempt, int32; none where the tokenizer cannot encode it."""
        rows = [np.empty(0, np.int32)] * len(attempts)
        for kind, encode in (
            ("alone", self.encode_batch),
            ("amid", partial(self.encode_batch, parse_special=True)),
            ("continued", self.encode_continuations),
        ):
            chosen = [i for i, attempt in enumerate(attempts) if attempt.kind == kind]
            if chosen:  # a call without texts takes as long as one with some
                encoded = encode([attempts[i].text for i in chosen])
                for i, row in zip(chosen, encoded, strict=True):
                    rows[i] = attempts[i].inner(row)
        return rows

    def encode_batch(self, texts: list[bytes], parse_special: bool = False) -> Ragged:
        """The ids of each text, accepted or not; none where the tokenizer cannot encode it."""
        encode = partial(self.vocab.encode_batch_unchecked, parse_special=parse_special)
        return _known_rows(encode, texts)

    def encode_continuations(self, texts: list[bytes]) -> Ragged:
        """As :meth:`encode_batch`, without an encoder's first space."""
        return _known_rows(self.vocab.encode_continuations_unchecked, texts)

    def check(self, texts: Sequence[str | bytes], rows: Sequence[np.ndarray]) -> None:
        """Raise RobustokError where ids, those of a text each, are not canonical."""
        lossy = self.vocab.data.spelling.lossy
        for text, row in zip(texts, self._exact_of(rows), strict=True):
            for segment, canonical in row:
                if self.is_special(segment):
                    if self.vocab.token_lengths[segment.ids].all():
                        continue
                elif (spelled := self.vocab.decode_bytes(segment.ids)).startswith(lossy):
                    canonical = None
                elif isinstance(text, str) and len(broken_spans(spelled)[0]):
                    canonical = None  # the model reads the name of a byte, such as "<0xE4>"
                elif canonical is not None and np.array_equal(canonical, segment.ids):
                    continue
                raise RobustokError(self._refusal(text, segment.ids, canonical))

    def _exact_of(
        self, rows: Sequence[np.ndarray]
    ) -> list[list[tuple[Segment, np.ndarray | None]]]:
        """The segments of each row and their :meth:`exact_batch`; None for special ids."""
        segments = [[*self.segments(row)] for row in rows]
        texts = [one for row in segments for one in row if not self.is_special(one)]
        exact = iter(self.exact_batch(texts))
        return [
            [(one, None if self.is_special(one) else next(exact)) for one in row]
            for row in segments
        ]

    def _refusal(self, text: str | bytes, ids: np.ndarray, canonical: np.ndarray | None) -> str:
        """Why a text is refused, in one line."""
        spelled = shown(self.vocab.decode_bytes(ids).decode(errors="replace"))
        begin = f"the text {shown(text)} cannot be tokenized exactly: "
        without = np.flatnonzero(self.vocab.token_lengths[ids] == 0)
        if len(without):
            return f"{begin}id {ids[without[0]]} spells nothing"
        if canonical is None:
            return f"{begin}its ids spell {spelled}, which the tokenizer changes or reads otherwise"
        at = int(np.argmin([*(ids[: len(canonical)] == canonical[: len(ids)]), False]))
        token = shown(self.vocab.tokens[ids[min(at, len(ids) - 1)]].decode(errors="replace"))
        return (
            f"{begin}its ids spell {spelled}, whose ids are others from position {at} on, at the "
            f"token {token}"
        )

    def places(self, ids: np.ndarray) -> list[tuple[int, int]]:
        """The placed ids, and the byte that each begins at."""
        where = np.flatnonzero(self.vocab.is_placed[ids])
        if not len(where):
            return []
        lengths = self.vocab.token_lengths[ids]
        begins = (np.cumsum(lengths) - lengths)[where].tolist()
        return list(zip(begins, ids[where].tolist(), strict=True))

    def canonicalize(self, ids: np.ndarray) -> np.ndarray:
        """The canonical ids of a row, int32; special ids stay in place.

        Raises RobustokError where no ids of a text spell it.
        """
        (row,) = self._exact_of([ids])
        parts = [self._closest(segment, exact) for segment, exact in row]
        return np.concatenate(parts) if parts else np.empty(0, np.int32)

    def _closest(self, segment: Segment, exact: np.ndarray | None) -> np.ndarray:
        """The canonical ids of a segment, also where no text gives its bytes.

        ``exact``: what :meth:`exact_batch` returns of it.
        """
        if self.is_special(segment):
            return segment.ids
        if exact is not None:
            return exact
        placed = self.vocab.is_placed[segment.ids]
        if placed.any():  # a text of its own on each side, as amid ids that no text gives
            runs = np.split(segment.ids, np.flatnonzero(np.diff(placed)) + 1)
            texts = [Segment(run) for run in runs if not self.vocab.is_placed[run[0]]]
            closest = iter([*map(self._closest, texts, self.exact_batch(texts))])
            return np.concatenate(
                [run if self.vocab.is_placed[run[0]] else next(closest) for run in runs]
            )
        text, spelling = self.vocab.decode_bytes(segment.ids), self.vocab.data.spelling
        is_changed = False
        with suppress(RobustokError):
            encoded = self.vocab.encode_unchecked(spelling.plain_source(text))
            spelled = self.vocab.decode_bytes(encoded)
            is_changed = spelled not in (text, spelling.prefix + text, b" " + text)
        if is_changed:
            raise RobustokError(
                f"the tokenizer's normalizer changes the text {shown(text)}: no canonical ids "
                "spell it"
            )
        return self.vocab.encode_continuations_unchecked([text])[0]


def _known_rows(encode: Callable[[list[bytes]], Ragged], texts: list[bytes]) -> Ragged:
    """The ids of each text; none for one for which ``encode`` raises RobustokError."""
    try:
        return encode(texts)
    except RobustokError:
        if len(texts) == 1:
            return Ragged.from_rows([np.empty(0, np.int32)])
        return Ragged.from_rows([_known_rows(encode, [text])[0] for text in texts])
