"""Byte-exact alignment of two tokenizations of one text.

The common token boundaries of both cut the text into blocks, the finest ones that hold whole tokens
of both. Values of tokens, such as log-probabilities and masks, are reduced within each block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from robustok.checks import shown
from robustok.display import visible
from robustok.errors import RobustokError, nearest
from robustok.lattice import check_spelled
from robustok.utf8 import split_at_broken
from robustok.vocabulary import Vocabulary, check_vocabulary

REDUCTIONS = ("sum", "mean", "any", "all")
_REPLACEMENT = "\ufffd".encode()  # what a decoder writes for bytes that are not UTF-8


@dataclass(frozen=True, eq=False)
class Alignment:
    """Blocks of two tokenizations that spell the same bytes; :func:`align` makes it.

    >>> from robustok.rollouts import align
    >>> blocks = align(vocab, [*vocab.encode("t"), *vocab.encode("he")], vocab.encode("the"))
    >>> len(blocks), blocks.same.tolist()
    (1, [False])

    Args:
        ids_a: the first tokenization, int32 [n].
        ids_b: the second one, int32 [m].
        edges_a: int64 [blocks + 1], ascending from 0 to n: block i is
            ``ids_a[edges_a[i]:edges_a[i + 1]]``.
        edges_b: the same for ``ids_b``, ascending from 0 to m.

    Every block has at least one id on each side.
    """

    ids_a: np.ndarray
    ids_b: np.ndarray
    edges_a: np.ndarray = field(repr=False)
    edges_b: np.ndarray = field(repr=False)

    def __len__(self) -> int:
        return len(self.edges_a) - 1

    @property
    def same(self) -> np.ndarray:
        """Blocks of the same single id on both sides, bool [blocks]."""
        single = (np.diff(self.edges_a) == 1) & (np.diff(self.edges_b) == 1)
        same = np.zeros(len(self), np.bool_)
        same[single] = (
            self.ids_a[self.edges_a[:-1][single]] == self.ids_b[self.edges_b[:-1][single]]
        )
        return same

    def reversed(self) -> Alignment:
        """The alignment of the second tokenization with the first."""
        return Alignment(self.ids_b, self.ids_a, self.edges_b, self.edges_a)

    def block_values(self, values: Sequence[Any] | np.ndarray, how: str = "sum") -> np.ndarray:
        """Reduce values of the first tokenization within each block, [blocks].

        >>> blocks = align(vocab, [*vocab.encode("t"), *vocab.encode("he")], vocab.encode("the"))
        >>> blocks.block_values([-1.0, -0.5])
        array([-1.5])

        Args:
            values: one number or bool for each id of ``ids_a``, [n].
            how: ``sum`` (log-probabilities: the sum is that of the block's text), ``mean``
                (advantages), ``any`` or ``all`` (masks).
        """
        given = np.asarray(values)
        if given.shape != self.ids_a.shape or given.dtype.kind not in "biuf":
            raise RobustokError(
                f"values: give one number for each of the {len(self.ids_a)} ids, not "
                f"{shown(values)}"
            )
        if how not in REDUCTIONS:
            raise RobustokError(f"unknown reduction '{how}': {nearest(how, REDUCTIONS)}")
        if how in ("any", "all"):
            reduce = np.logical_or if how == "any" else np.logical_and
            return _reduced(reduce, given.astype(np.bool_), self.edges_a)
        summed = _reduced(np.add, given.astype(np.float64), self.edges_a)
        return summed / np.diff(self.edges_a) if how == "mean" else summed

    def carry(self, values: Sequence[Any] | np.ndarray, how: str = "sum") -> np.ndarray:
        """Values of the first tokenization for the ids of the second, [m].

        >>> blocks = align(vocab, [*vocab.encode("t"), *vocab.encode("he")], vocab.encode("the"))
        >>> blocks.carry([True, False], "any"), blocks.reversed().carry([-1.5])
        (array([ True]), array([ 0. , -1.5]))

        Args:
            values: one number or bool for each id of ``ids_a``, [n].
            how: as for :meth:`block_values`. With ``sum`` the last id of a block has the value of
                the block and the ids before it have 0, so that the total stays. Otherwise every id
                of a block has its value.
        """
        reduced = self.block_values(values, how)
        sizes = np.diff(self.edges_b)
        if how != "sum":
            return np.repeat(reduced, sizes)
        carried = np.zeros(len(self.ids_b))
        carried[self.edges_b[1:] - 1] = reduced
        return carried


def align(
    vocab: Vocabulary, ids_a: Sequence[int] | np.ndarray, ids_b: Sequence[int] | np.ndarray
) -> Alignment:
    """Align two tokenizations of one text, block by block.

    >>> from robustok.rollouts import align
    >>> sampled = [*vocab.encode("t"), *vocab.encode("he")]
    >>> blocks = align(vocab, sampled, vocab.encode("the"))
    >>> blocks.edges_a.tolist(), blocks.edges_b.tolist()
    ([0, 2], [0, 1])

    Args:
        vocab: the vocabulary of both.
        ids_a: the first tokenization, integers [n]; special ids are spelled by their names.
        ids_b: the second tokenization, integers [m].

    Bytes that are not UTF-8 in one text may be U+FFFD in the other one, as a decoder writes them: a
    block then holds all of a replaced character. Takes time linear in the number of bytes. Raises
    RobustokError where the two spell different texts, and for an id that is outside the vocabulary
    or has no bytes.
    """
    check_vocabulary(vocab)
    a, b = check_spelled(vocab, ids_a), check_spelled(vocab, ids_b)
    text_a, text_b = vocab.decode_bytes(a), vocab.decode_bytes(b)
    lengths = np.diff(vocab.token_offsets)
    ends_a, ends_b = np.cumsum(lengths[a]), np.cumsum(lengths[b])
    if text_a != text_b:
        replaced_a, ends_a = _replaced(text_a, ends_a)
        replaced_b, ends_b = _replaced(text_b, ends_b)
        if replaced_a != replaced_b:
            raise RobustokError(_difference(replaced_a, replaced_b))
    # A position of -1 lies inside a replaced character and is never a common boundary.
    common = np.intersect1d(ends_a[ends_a >= 0], ends_b[ends_b >= 0])
    return Alignment(a, b, _edges(ends_a, common), _edges(ends_b, common))


def _edges(ends: np.ndarray, common: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.flatnonzero(np.isin(ends, common)) + 1])


def _reduced(reduce: np.ufunc, values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    return reduce.reduceat(values, edges[:-1]) if len(edges) > 1 else values[:0]


def _replaced(text: bytes, ends: np.ndarray) -> tuple[bytes, np.ndarray]:
    """The text as a decoder writes it, and ``ends`` (byte positions) in it; -1: no position."""
    parts: list[bytes] = []
    positions = np.full(len(text) + 1, -1, np.int64)
    size = 0
    for begin, end, valid in split_at_broken(text):
        if valid:
            positions[begin : end + 1] = np.arange(size, size + end - begin + 1)
            parts.append(text[begin:end])
            size += end - begin
            continue
        while begin < end:  # one replacement for each maximal part of a character
            positions[begin] = size
            begin += _broken_size(text[begin:end])
            parts.append(_REPLACEMENT)
            size += len(_REPLACEMENT)
            positions[begin] = size
    return b"".join(parts), positions[ends]


def _broken_size(text: bytes) -> int:
    """How many bytes at the start of broken text are replaced by one U+FFFD."""
    try:
        text[:4].decode("utf8")
    except UnicodeDecodeError as e:
        return e.end - e.start
    raise AssertionError("the text is UTF-8")


def _difference(a: bytes, b: bytes) -> str:
    size = min(len(a), len(b))
    unequal = np.frombuffer(a[:size], np.uint8) != np.frombuffer(b[:size], np.uint8)
    at = int(unequal.argmax()) if unequal.any() else size
    begin = max(at - 8, 0)
    return (
        f"the two id sequences spell different texts from byte {at} on: "
        f"'{visible(a[begin : at + 12])}' and '{visible(b[begin : at + 12])}'; align tokenizations "
        "of one text"
    )
