"""Canonical ids several times faster than the tokenizer gives them, for whole corpora.

A byte-level BPE tokenizer cuts a text into pieces and encodes each by itself, and pieces repeat
(Zipf). Here the tokenizer encodes each distinct piece once; all else is looking up. Tokenizers of
other kinds encode as they always do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, chain
from typing import Any

import numpy as np

from robustok.ragged import Ragged
from robustok.samplers.pieces import PieceCutter
from robustok.tokenizer_files import TokenizersEncoder, byte_alphabet
from robustok.vocabulary import Text, Vocabulary

_MOST = 1 << 18  # pieces remembered; when there are more, all are forgotten and learned again
_LONGEST = 64  # characters; a piece beyond hardly comes twice
_NORMALIZERS = ("NoneType", "NFC", "NFKC")


class PieceEncoder:
    """The canonical ids of texts: what ``vocab.encode_batch`` gives, from remembered pieces.

    >>> PieceEncoder(vocab).encode_batch(texts) == vocab.encode_batch(texts)
    True
    """

    def __init__(self, vocab: Vocabulary) -> None:
        self.vocab = vocab
        self._cutter = _cutter_of(vocab)
        tokenizer = getattr(vocab.data.encoder, "tokenizer", None)
        self._model: Any = getattr(tokenizer, "model", None)
        self._normalizer = getattr(tokenizer, "normalizer", None)
        self._alphabet = {byte: character for character, byte in byte_alphabet().items()}
        self._added = getattr(vocab.data.encoder, "added", ())
        self._forget()

    def encode_batch(self, texts: Sequence[Text]) -> Ragged:
        """The canonical ids of many texts, a row each.

        Raises RobustokError for a text that is no Unicode or that the vocabulary cannot spell.
        """
        strings = [self._string(text) for text in texts]
        if any(s is None for s in strings):
            return self._with_others(texts, strings)
        cut = [self._cut(s) for s in strings if s is not None]
        counts = np.fromiter(map(len, cut), np.int64, len(cut))
        return self._gather(list(chain.from_iterable(cut)), counts)

    def _string(self, text: Text) -> str | None:
        """The text as the pieces spell it, or None where the tokenizer itself must encode it."""
        if self._cutter is None:
            return None
        if isinstance(text, bytes):
            try:
                text = text.decode("utf8")
            except UnicodeDecodeError:
                return None
        if not text.isascii():
            try:
                text.encode("utf8")
            except UnicodeEncodeError:
                return None
            if self._normalizer and self._normalizer.normalize_str(text) != text:
                return None
        return None if any(added in text for added in self._added) else text

    def _cut(self, text: str) -> list[str]:
        assert self._cutter is not None
        plain = self._cutter.plain(text)
        if plain is None:
            ends = self._cutter.ends([text])[0]
            return [text[a:b] for a, b in zip(chain((0,), ends), ends, strict=False)]
        pieces = self._cutter.pattern.findall(plain)  # type: ignore[union-attr]
        if plain is text:
            return pieces
        ends = list(accumulate(map(len, pieces)))
        return [text[a:b] for a, b in zip(chain((0,), ends), ends, strict=False)]

    def _gather(self, pieces: list[str], counts: np.ndarray) -> Ragged:
        if len(self._first) > _MOST:
            self._forget()
        number = self._number
        found = list(map(number.get, pieces))
        if None in found:
            self._learn(dict.fromkeys(p for p, n in zip(pieces, found, strict=True) if n is None))
            found = list(map(number.__getitem__, pieces))
            for piece in self._long:
                del number[piece]
            self._long.clear()
        numbers = np.array(found, np.int64)
        first, sizes = self._first[numbers], self._size[numbers]
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        at = np.repeat(first - ends[:-1], sizes) + np.arange(ends[-1])
        edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        return Ragged(self._ids[at], ends[edges])

    def _learn(self, pieces: dict[str, None]) -> None:
        new = list(pieces)
        spelled = [p.encode().decode("latin-1").translate(self._alphabet) for p in new]
        rows = [[token.id for token in self._model.tokenize(piece)] for piece in spelled]
        sizes = np.fromiter(map(len, rows), np.int64, len(rows))
        start, base = len(self._ids), len(self._first)
        self._first = np.concatenate([self._first, start + np.cumsum(sizes) - sizes])
        self._size = np.concatenate([self._size, sizes])
        flat = np.fromiter(chain.from_iterable(rows), np.int32, int(sizes.sum()))
        self._ids = np.concatenate([self._ids, flat])
        self._number.update(zip(new, range(base, base + len(new)), strict=True))
        self._long = [piece for piece in new if len(piece) > _LONGEST]

    def _forget(self) -> None:
        self._number: dict[str, int] = {}
        self._long: list[str] = []
        self._first, self._size = np.empty(0, np.int64), np.empty(0, np.int64)
        self._ids = np.empty(0, np.int32)

    def _with_others(self, texts: Sequence[Text], strings: list[str | None]) -> Ragged:
        """Some rows by pieces, the rest by the tokenizer."""
        by_hand = [i for i, s in enumerate(strings) if s is None]
        slow = self.vocab.encode_batch([texts[i] for i in by_hand])
        if len(by_hand) == len(texts):
            return slow
        rest = [s for s in strings if s is not None]
        fast = iter(self.encode_batch(rest))
        others = iter(slow)
        return Ragged.from_rows([next(others if s is None else fast) for s in strings])


def _cutter_of(vocab: Vocabulary) -> PieceCutter | None:
    """How the tokenizer cuts, if each of its pieces is encoded for itself; else None."""
    encoder = vocab.data.encoder
    if vocab.data.family != "byte-level BPE" or not isinstance(encoder, TokenizersEncoder):
        return None
    # These two leave ASCII alone, so that most texts need no normalizing at all.
    if encoder.prefix or type(encoder.tokenizer.normalizer).__name__ not in _NORMALIZERS:
        return None
    from tokenizers import Tokenizer, models

    # The cutter reads the tokenizer as JSON: of one without tokens that takes no memory.
    bare = Tokenizer(models.BPE())
    if encoder.tokenizer.pre_tokenizer is not None:
        bare.pre_tokenizer = encoder.tokenizer.pre_tokenizer
    cutter = PieceCutter(replace(vocab.data, source=bare))
    return None if cutter.pattern is None else cutter
