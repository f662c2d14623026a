"""The canonical ids of segments, the runs of ids between two special ones, for the guard.

The text of each segment is encoded by the tokenizer itself. Tokenizers that add a space before a
text, normalize it or find added tokens in it are tried with every text that could give the ids.
"""

from __future__ import annotations

import itertools
from contextlib import suppress

import numpy as np

from robustok.errors import RobustokError
from robustok.kernels import comparison as kernels
from robustok.kernels.comparison import CanonicalIds, Segments
from robustok.ragged import Ragged
from robustok.tokenizer.canonical import Segment
from robustok.tokenizer.vocabulary import Vocabulary

_ROUNDS = 4  # for a normalizer that changes its own output


class SegmentEncoder:
    """The canonical encoder of a vocabulary, for segments of ids.

    >>> encoder = SegmentEncoder(vocab)
    >>> ids = vocab.encode("the")
    >>> segments = Segments(ids, np.array([0]), np.array([len(ids)]))
    >>> encoder.encode([b"the"], segments, np.array([[-1, -1]])).ids.tolist() == ids.tolist()
    True
    """

    def __init__(self, vocab: Vocabulary) -> None:
        self.vocab = vocab

    def decode(self, segments: Segments) -> tuple[bytes, list[bytes]]:
        """The bytes of all segments, one 0 after each, and the bytes of each."""
        ids, begin, end = segments
        total = np.concatenate([[0], np.cumsum(self.vocab.token_lengths[ids])])
        text = np.empty(int((total[end] - total[begin]).sum()) + len(begin), np.uint8)
        offsets = np.empty(len(begin) + 1, np.int64)
        kernels.decode(segments, self.vocab.token_bytes, self.vocab.token_offsets, text, offsets)
        joined = text.tobytes()
        return joined, [joined[a : b - 1] for a, b in itertools.pairwise(offsets.tolist())]

    def encode(self, texts: list[bytes], segments: Segments, beside: np.ndarray) -> CanonicalIds:
        """The canonical ids of each text.

        ``segments`` are the ids that spell the texts, ``beside`` (int32 [texts, 2]) the special ids
        before and after each, or -1. Where no text gives ids that spell ``texts[s]``, the ids are
        those of the nearest text that the tokenizer has, or none where it can encode no such text,
        and ``same_text[s]`` is false.
        """
        placed = self.vocab.is_placed[segments.ids]
        plain_source = self.vocab.data.spelling.plain_source
        sources = [plain_source(text) for text in texts]
        before = np.concatenate([[0], np.cumsum(placed)])
        for s in np.flatnonzero(before[segments.end] > before[segments.begin]).tolist():
            ids = segments.ids[segments.begin[s] : segments.end[s]]
            sources[s] = next(self.vocab.sources(ids), texts[s])
        encoded = self.vocab.canonicalizer.encode_batch(sources)
        if np.array_equal(segments.ids, encoded.values) and np.array_equal(
            segments.begin, encoded.offsets[:-1]
        ):  # nearly all batches: every id is canonical, and none is special
            same = np.ones(len(texts), np.bool_)
            return CanonicalIds(encoded.values, encoded.offsets, same)
        same = self.same_text(encoded, texts)
        placed_at = self.vocab.is_placed[encoded.values]
        if same.all() and not (placed.any() or placed_at.any()):
            return CanonicalIds(encoded.values, encoded.offsets, same)
        rows = list(encoded)
        self._try_other_texts(rows, segments, beside, same)
        self._encode_until_stable(rows, np.flatnonzero(~same))
        encoded = Ragged.from_rows(rows)
        return CanonicalIds(encoded.values, encoded.offsets, same)

    def _try_other_texts(
        self, rows: list[np.ndarray], segments: Segments, beside: np.ndarray, same: np.ndarray
    ) -> None:
        """Replace rows that the first source does not explain, and set ``same``."""
        canonicalizer = self.vocab.canonicalizer
        spans = zip(segments.begin.tolist(), segments.end.tolist(), beside.tolist(), strict=True)
        parts = [Segment(segments.ids[begin:end], *special) for begin, end, special in spans]
        differ = [s for s, part in enumerate(parts) if not np.array_equal(rows[s], part.ids)]
        other = [
            s
            for s in differ
            if not same[s] or canonicalizer.places(rows[s]) != canonicalizer.places(parts[s].ids)
        ]
        first = [rows[s] for s in other]
        exact = canonicalizer.exact_batch([parts[s] for s in other], first)
        for s, canonical in zip(other, exact, strict=True):
            ids = parts[s].ids
            if canonical is None and self.vocab.is_placed[ids].any():
                with suppress(RobustokError):
                    canonical = canonicalizer.canonicalize(ids)
            if canonical is not None:
                rows[s] = canonical
                same[s] = self.vocab.decode_bytes(canonical) == self.vocab.decode_bytes(ids)

    def continued(
        self, canonical: CanonicalIds, texts: list[bytes], segments: Segments, first: np.ndarray
    ) -> CanonicalIds:
        """``canonical``, where the ``first`` segments of rows may continue a text.

        Their ids are those that the tokenizer gives in mid-text if these are the given ones, or if
        no text gives ids that spell the segment.
        """
        rows, same = list(Ragged(canonical.ids, canonical.offsets)), canonical.same_text
        given = [segments.ids[a:b] for a, b in zip(segments.begin, segments.end, strict=True)]
        differ = [s for s in first.tolist() if not np.array_equal(rows[s], given[s])]
        if not differ:
            return canonical
        for s in differ:
            ids = np.empty(0, np.int32)
            with suppress(RobustokError):
                ids = self.vocab.encode_continuations_unchecked([texts[s]])[0]
            if np.array_equal(ids, given[s]) or not same[s]:
                rows[s], same[s] = ids, self.vocab.decode_bytes(ids) == texts[s]
        encoded = Ragged.from_rows(rows)
        return CanonicalIds(encoded.values, encoded.offsets, same)

    def _decoded(self, rows: Ragged) -> list[bytes]:
        return self.decode(Segments(rows.values, rows.offsets[:-1], rows.offsets[1:]))[1]

    def same_text(self, rows: Ragged, texts: list[bytes]) -> np.ndarray:
        """Whether each row spells its text and has no special ids, bool [rows]."""
        pairs = zip(self._decoded(rows), texts, strict=True)
        same = np.fromiter((a == b for a, b in pairs), np.bool_, len(texts))
        readable = self.vocab.readable[rows.values]
        if not readable.all():  # such as an unknown token that the model reads by its name
            same[np.searchsorted(rows.offsets, np.flatnonzero(~readable), "right") - 1] = False
        return same

    def _encode_until_stable(self, rows: list[np.ndarray], changed: np.ndarray) -> None:
        """Encode changed texts again until the normalizer leaves them as they are."""
        left = changed.tolist()
        plain_source = self.vocab.data.spelling.plain_source
        for _ in range(_ROUNDS):
            if not left:
                return
            texts = self._decoded(Ragged.from_rows([rows[i] for i in left]))
            encoded = self.vocab.canonicalizer.encode_batch([plain_source(text) for text in texts])
            again = dict(zip(left, encoded, strict=True))
            left = [i for i, row in again.items() if not np.array_equal(rows[i], row)]
            for i in left:
                rows[i] = again[i]
