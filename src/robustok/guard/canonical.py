"""Canonical ids of the text of each segment, from the tokenizer itself.

Handles tokenizers that add a space before a text or normalize it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from robustok.errors import RobustokError
from robustok.kernels import comparison as kernels
from robustok.kernels.comparison import CanonicalIds, Segments
from robustok.ragged import Ragged
from robustok.tokenizer.data import broken_spans
from robustok.tokenizer.spelling import MARK
from robustok.tokenizer.vocabulary import Vocabulary

_ROUNDS = 4  # for a normalizer that changes its own output
_RARE = "\U0010ffff"  # a character that is likely unknown


class SegmentEncoder:
    """The canonical encoder of a vocabulary, for segments of ids.

    >>> encoder = SegmentEncoder(vocab)
    >>> ids = vocab.encode("the")
    >>> segments = Segments(ids, np.array([0]), np.array([len(ids)]))
    >>> encoder.encode([b"the"], segments, np.array([-1])).ids.tolist() == ids.tolist()
    True
    """

    def __init__(self, vocab: Vocabulary) -> None:
        self.vocab = vocab

    def _adds_space_after(self, fixed: int) -> bool:
        """Whether the encoder puts a space before a text that follows this id, which is no text."""
        name, word = self.vocab.tokens[fixed].decode(errors="replace"), self.vocab.some_word
        for before in (name, _RARE):
            with suppress(RobustokError):
                ids = self.vocab.encode(before + word, parse_special=True)
                at = np.flatnonzero(ids[:-1] == fixed)
                if len(at):
                    return self.vocab.decode_bytes(ids[at[-1] + 1 :]) == b" " + word.encode()
        return True  # the encoder never gives this id: each text is encoded alone

    def _joins(self, fixed: int) -> bool:
        """Whether ``fixed`` is an id, not -1, after which the encoder adds no space."""
        return fixed >= 0 and not self.vocab.derived(
            f"space after {fixed}", lambda: self._adds_space_after(fixed)
        )

    def decode(self, segments: Segments) -> tuple[bytes, list[bytes]]:
        """The bytes of all segments, one 0 after each, and the bytes of each."""
        ids, begin, end = segments
        total = np.concatenate([[0], np.cumsum(self.vocab.token_lengths[ids])])
        text = np.empty(int((total[end] - total[begin]).sum()) + len(begin), np.uint8)
        offsets = np.empty(len(begin) + 1, np.int64)
        kernels.decode(segments, self.vocab.token_bytes, self.vocab.token_offsets, text, offsets)
        joined = text.tobytes()
        return joined, [joined[a : b - 1] for a, b in itertools.pairwise(offsets.tolist())]

    def encode(self, texts: list[bytes], segments: Segments, before: np.ndarray) -> CanonicalIds:
        """The canonical ids of each text; ``before`` (int32 [texts]): the id before it, or -1.

        ``segments`` are the ids that spell the texts. Where no text gives ids that spell
        ``texts[s]``, the ids are those of the nearest text that the tokenizer has, or none where it
        can encode no such text, and ``same_text[s]`` is false.
        """
        placed = self.vocab.is_placed[segments.ids]
        encoded = self.encode_batch(self._first_sources(texts, segments, placed))
        if np.array_equal(segments.ids, encoded.values) and np.array_equal(
            segments.begin, encoded.offsets[:-1]
        ):  # nearly all batches: every id is canonical, and none is special
            same = np.ones(len(texts), np.bool_)
        else:
            same = self.same_text(encoded, texts)
        words = self.vocab.data.spelling.words
        if same.all() and not placed.any() and not words:
            return CanonicalIds(encoded.values, encoded.offsets, same)
        rows = list(encoded)
        self._try_other_sources(rows, texts, segments, placed, same)
        continued = np.zeros(len(texts), np.bool_)
        if self.vocab.adds_space:
            continued = np.isin(before, [i for i in set(before.tolist()) if self._joins(i)])
            self._try_other_beginnings(rows, texts, continued, same)
            self._accept_continuations(rows, texts, segments, before, same)
        self._encode_until_stable(rows, np.flatnonzero(~same & ~continued))
        encoded = Ragged.from_rows(rows)
        return CanonicalIds(encoded.values, encoded.offsets, same)

    def encode_batch(self, texts: list[bytes]) -> Ragged:
        """The ids of each text, accepted or not; none where the tokenizer cannot encode it."""
        try:
            return self.vocab.encode_batch_unchecked(texts)
        except RobustokError:
            return _rows_of(self.vocab.encode_unchecked, texts)

    def plain_sources(self, texts: list[bytes]) -> list[bytes]:
        """The first source of each text of ids without placed ones (see `tokenizer.spelling`)."""
        return [self.vocab.data.spelling.plain_source(text) for text in texts]

    def _first_sources(
        self, texts: list[bytes], segments: Segments, placed: np.ndarray
    ) -> list[bytes]:
        sources = self.plain_sources(texts)
        if placed.any():
            for s, (begin, end) in enumerate(zip(segments.begin, segments.end, strict=True)):
                if placed[begin:end].any():
                    ids = segments.ids[begin:end]
                    sources[s] = next(self.vocab.sources(ids), texts[s])
        return sources

    def _try_other_sources(
        self,
        rows: list[np.ndarray],
        texts: list[bytes],
        segments: Segments,
        placed: np.ndarray,
        same: np.ndarray,
    ) -> None:
        """Replace rows by the canonical ids of other sources, and set ``same``."""
        spelling = self.vocab.data.spelling
        spans = list(zip(segments.begin.tolist(), segments.end.tolist(), strict=True))
        has_placed = [bool(placed[begin:end].any()) for begin, end in spans]
        if spelling.marked:  # ids without placed ones have one other source: "▁" for each space
            chosen = [i for i in np.flatnonzero(~same).tolist() if not has_placed[i]]
            sources = self.plain_sources([texts[i] for i in chosen])
            marked = self.encode_batch([source.replace(b" ", MARK) for source in sources])
            self._replace(rows, same, chosen, texts, marked)
        words = spelling.words
        for s, (begin, end) in enumerate(spans):
            ids = segments.ids[begin:end]
            if np.array_equal(rows[s], ids):
                continue
            if has_placed[s]:
                canonical = self.vocab.canonical_of(ids)
                if canonical is None:
                    with suppress(RobustokError):
                        canonical = self.vocab.canonicalize(ids)
                if canonical is not None:
                    rows[s] = canonical
                    same[s] = self.vocab.decode_bytes(canonical) == self.vocab.decode_bytes(ids)
            # Special tokens that are words of the model: the ids where they are parsed.
            if words and not words.isdisjoint(ids.tolist()):
                for source in self.vocab.sources(ids):
                    with suppress(RobustokError):
                        if np.array_equal(self.vocab.encode(source, parse_special=True), ids):
                            rows[s], same[s] = ids, True

    def _decoded(self, rows: Ragged) -> list[bytes]:
        return self.decode(Segments(rows.values, rows.offsets[:-1], rows.offsets[1:]))[1]

    def same_text(self, rows: Ragged, texts: list[bytes]) -> np.ndarray:
        """Whether each row spells its text, bool [rows]."""
        pairs = zip(self._decoded(rows), texts, strict=True)
        return np.fromiter((a == b for a, b in pairs), np.bool_, len(texts))

    def _try_other_beginnings(
        self, rows: list[np.ndarray], texts: list[bytes], continued: np.ndarray, same: np.ndarray
    ) -> None:
        """Replace rows that do not come from the text without its first space, and set ``same``.

        ``continued``: bool [texts], the encoder adds no space before this text.
        """
        # Some encoders add a space only where there is none.
        spaced = [i for i in np.flatnonzero(~same).tolist() if texts[i][:1] == b" "]
        self._replace(rows, same, spaced, texts, self.encode_batch([texts[i] for i in spaced]))
        others = np.flatnonzero(~same).tolist()
        starts = ((i, broken_spans(texts[i][1:5])[0]) for i in others if texts[i][:1] == b" ")
        broken = [i for i, spans in starts if 0 in spans]
        chosen = sorted({*broken, *np.flatnonzero(~same & continued).tolist()})
        encoded = _rows_of(self.vocab.encode_continuation, [texts[i] for i in chosen])
        self._replace(rows, same, chosen, texts, encoded)
        for i, row in zip(chosen, encoded, strict=True):
            if continued[i]:
                rows[i] = row

    def _accept_continuations(
        self,
        rows: list[np.ndarray],
        texts: list[bytes],
        segments: Segments,
        before: np.ndarray,
        same: np.ndarray,
    ) -> None:
        """Accept ids after a special one that are those of their text without a first space."""
        for s in np.flatnonzero(~same & (before >= 0)).tolist():
            ids = segments.ids[segments.begin[s] : segments.end[s]]
            with suppress(RobustokError):
                if self.vocab.encode_continuation(texts[s]) == ids.tolist():
                    rows[s], same[s] = ids, True

    def _replace(
        self,
        rows: list[np.ndarray],
        same: np.ndarray,
        chosen: list[int],
        texts: list[bytes],
        encoded: Ragged,
    ) -> None:
        fits = self.same_text(encoded, [texts[i] for i in chosen])
        for i, row, fit in zip(chosen, encoded, fits.tolist(), strict=True):
            if fit:
                rows[i], same[i] = row, True

    def _encode_until_stable(self, rows: list[np.ndarray], changed: np.ndarray) -> None:
        """Encode changed texts again until the normalizer leaves them as they are."""
        left = changed.tolist()
        for _ in range(_ROUNDS):
            if not left:
                return
            texts = self._decoded(Ragged.from_rows([rows[i] for i in left]))
            again = dict(zip(left, self.encode_batch(self.plain_sources(texts)), strict=True))
            left = [i for i, row in again.items() if not np.array_equal(rows[i], row)]
            for i in left:
                rows[i] = again[i]


def _rows_of(encode: Callable[[bytes], Sequence[int] | np.ndarray], texts: list[bytes]) -> Ragged:
    """The ids of each text, encoded alone; none where ``encode`` raises RobustokError."""
    rows = [np.empty(0, np.int32) for _ in texts]
    for i, text in enumerate(texts):
        with suppress(RobustokError):
            rows[i] = np.array(encode(text), np.int32)
    return Ragged.from_rows(rows)
