"""Encodes many texts with one beginning in a few calls of the encoder.

A call of an encoder costs microseconds, however short its text is. The texts are joined with a
separator between them. Where the pre-tokenizer cuts the joined text as it cuts a text alone, the
ids of the text are those of its part. The others are tried with other separators, and those that
are left are the caller's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.pretokenize.pre_tokenizer import PreTokenizer
from robustok.ragged import Ragged
from robustok.vocabulary import Vocabulary

SEPARATORS = b"\n1."  # one of them is cut from most characters
_SMALLEST = 16  # rows of a chunk that is not divided further
_CHUNK = 2048  # rows encoded in one call


class Joining(NamedTuple):
    """What decides how texts of a vocabulary can be joined.

    ``possible``: pre-tokens are encoded one by one, and nothing but NFC and the like changes a text
    before. ``normalizes``: something does. ``added``: the spellings of tokens that the encoder
    looks for before it pre-tokenizes.
    """

    possible: bool
    normalizes: bool
    added: tuple[bytes, ...]

    @classmethod
    def of(cls, vocab: Vocabulary, pre_tokenizer: PreTokenizer) -> Joining:
        """The rules of a vocabulary."""
        cuts = len(pre_tokenizer.cut(np.frombuffer(b"a b", np.uint8), np.array([0, 3]))) > 1
        possible = cuts and vocab.data.family.startswith("byte-level")
        tokenizer = getattr(vocab.data.encoder, "tokenizer", None)
        if tokenizer is None:
            return cls(possible, False, ())
        normalizer = tokenizer.normalizer
        tokens = tokenizer.get_added_tokens_decoder().values()
        added = tuple(token.content.encode() for token in tokens if not token.special)
        possible = possible and not any(set(one) & set(SEPARATORS) for one in added)
        known = normalizer is None or type(normalizer).__name__ in ("NFC", "NFD", "NFKC", "NFKD")
        return cls(possible and known, normalizer is not None, added)


def encode_joined(
    vocab: Vocabulary, pre_tokenizer: PreTokenizer, head: bytes, ends: Ragged, separator: int
) -> tuple[Ragged, np.ndarray]:
    """The canonical ids of ``head`` with each of its ends, and which rows have them, bool [rows].

    Args:
        vocab: the vocabulary. Its encoder encodes pre-tokens one by one and adds no space.
        pre_tokenizer: its pre-tokenizer.
        head: the bytes that all texts begin with; may be empty.
        ends: what follows in each text, bytes as int32, not empty.
        separator: the byte between two texts, one of ``SEPARATORS``.

    Rows without ids are empty. The ids are exact: a row has them only if its pre-tokens in the
    joined text are those of the row alone, and the joined ids spell the joined text.
    """
    chunks = [
        _encode(
            vocab, pre_tokenizer, head, separator,
            _part(ends, first, min(first + _CHUNK, len(ends))),
        )
        for first in range(0, len(ends), _CHUNK)
    ]  # fmt: skip
    if not chunks:
        return Ragged.from_rows([]), np.empty(0, np.bool_)
    ids, counts, known = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    return Ragged(ids, np.concatenate([[0], np.cumsum(counts)])), known


def cut_after(pre_tokenizer: PreTokenizer, head: bytes, ends: Ragged) -> np.ndarray:
    """Whether each text has the pre-tokens of ``head``, and then its own, bool [rows].

    Args:
        pre_tokenizer: cuts each text alone.
        head: the bytes that all texts begin with.
        ends: what follows in each text, bytes as int32.
    """
    text, begins = _joined(head, SEPARATORS[0], ends)
    cuts = np.zeros(len(text) + 1, np.bool_)
    cuts[pre_tokenizer.cut(text, np.sort(np.concatenate([begins, begins[1:] - 1])))] = True
    own = np.zeros(len(head) + 1, np.bool_)
    own[pre_tokenizer.cut(np.frombuffer(bytearray(head), np.uint8), np.array([0, len(head)]))] = 1
    return (cuts[begins[:-1, None] + np.arange(1, len(head) + 1)] == own[1:]).all(axis=1)


def rows_where(rows: Ragged, chosen: np.ndarray) -> Ragged:
    """Some rows of a batch, ``chosen``: bool [rows].

    >>> rows_where(Ragged.from_rows([[1], [2, 3]]), np.array([False, True])).values
    array([2, 3], dtype=int32)
    """
    lengths = rows.lengths
    offsets = np.concatenate([[0], np.cumsum(lengths[chosen])])
    return Ragged(rows.values[np.repeat(chosen, lengths)], offsets)


def _part(rows: Ragged, first: int, last: int) -> Ragged:
    begin, end = rows.offsets[first], rows.offsets[last]
    return Ragged(rows.values[begin:end], rows.offsets[first : last + 1] - begin)


def _encode(
    vocab: Vocabulary, pre_tokenizer: PreTokenizer, head: bytes, separator: int, ends: Ragged
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ids of the known rows, the number of ids of each row, and which rows are known.

    Where the ids do not spell the text, since the encoder normalizes it, the rows are halved; those
    of the smallest parts become unknown.
    """
    text, begins = _joined(head, separator, ends)
    ids = np.asarray(vocab.encode(text.tobytes()), np.int32)
    if vocab.decode_bytes(ids) != text.tobytes():
        if len(ends) <= _SMALLEST:
            return ids[:0], np.zeros(len(ends), np.int64), np.zeros(len(ends), np.bool_)
        middle = len(ends) // 2
        halves = [
            _encode(vocab, pre_tokenizer, head, separator, _part(ends, *span))
            for span in ((0, middle), (middle, len(ends)))
        ]
        return tuple(np.concatenate(parts) for parts in zip(*halves, strict=True))  # type: ignore
    known = _cut_alike(pre_tokenizer, text, begins)
    sizes = np.diff(vocab.token_offsets)[ids]
    places = np.cumsum(sizes) - sizes  # where each id begins
    low = np.searchsorted(places, begins[:-1])
    high = np.searchsorted(places, begins[1:] - 1)
    marks = np.zeros(len(ids) + 1, np.int64)
    np.add.at(marks, low[known], 1)
    np.add.at(marks, high[known], -1)
    return ids[np.cumsum(marks)[:-1] > 0], np.where(known, high - low, 0), known


def _joined(head: bytes, separator: int, ends: Ragged) -> tuple[np.ndarray, np.ndarray]:
    """All texts with a separator after each, uint8, and where each begins, int64 [rows + 1]."""
    lengths = ends.lengths
    begins = np.concatenate([[0], np.cumsum(lengths + len(head) + 1)])
    text = np.full(int(begins[-1]), separator, np.uint8)
    start = np.frombuffer(head, np.uint8)
    for at in range(len(start)):
        text[begins[:-1] + at] = start[at]
    inside = np.arange(len(ends.values)) + np.repeat(
        begins[:-1] + len(head) - ends.offsets[:-1], lengths
    )
    text[inside] = ends.values
    return text, begins


def _cut_alike(pre_tokenizer: PreTokenizer, text: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Whether each row has the pre-tokens in the joined text that it has alone, bool [rows]."""
    joined, alone = np.zeros(len(text) + 1, np.bool_), np.zeros(len(text) + 1, np.bool_)
    joined[pre_tokenizer.cut(text, np.array([0, len(text)]))] = True
    edges = np.sort(np.concatenate([begins, begins[1:] - 1]))
    alone[pre_tokenizer.cut(text, edges)] = True
    joined[0] = alone[0] = True
    different = np.concatenate([[0], np.cumsum(joined != alone)])
    # Cuts at a row's first byte, inside it and at its end, without the separator.
    return different[begins[1:]] == different[begins[:-1]]
