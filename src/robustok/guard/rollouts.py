"""Token ids of rollouts: align two tokenizations, and compare the ids of two steps.

For pipelines whose policy samples ids while trainers, rewards and tools see text. :func:`align`
finds the finest blocks of one text that hold whole tokens of both tokenizations. :func:`prefix_of`
checks that the ids of one step begin those of the next one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from robustok.checks import check_ids, shown
from robustok.errors import RobustokError, check_choice
from robustok.guard.findings import NOT_UTF8, spelled
from robustok.lattice import check_spelled
from robustok.runtime.display import visible
from robustok.tokenizer.data import split_at_broken
from robustok.tokenizer.vocabulary import Vocabulary, check_vocabulary

RE_ENCODED, MERGED, SHORTENED, TEXT_CHANGED = "re-encoded", "merged", "shortened", "text-changed"
_REDUCTIONS = {"sum": np.add, "mean": np.add, "any": np.logical_or, "all": np.logical_and}
_REPLACEMENT = "\ufffd".encode()  # what a decoder writes for bytes that are not UTF-8
_SPACES = re.compile(b" *")
_SHOWN = 6  # ids on each side of a difference


@dataclass(frozen=True, eq=False)
class Alignment:
    """Blocks of two tokenizations that spell the same bytes; :func:`align` makes it.

    >>> blocks = rt.align(vocab, [84, 257], vocab, vocab.encode("the"))
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
        return single & (self.ids_a[self.edges_a[:-1]] == self.ids_b[self.edges_b[:-1]])

    def reversed(self) -> Alignment:
        """The alignment of the second tokenization with the first."""
        return Alignment(self.ids_b, self.ids_a, self.edges_b, self.edges_a)

    def block_values(self, values: Sequence[object] | np.ndarray, how: str = "sum") -> np.ndarray:
        """Reduce values of the first tokenization within each block, [blocks].

        >>> blocks = rt.align(vocab, [84, 257], vocab, vocab.encode("the"))
        >>> blocks.block_values([-1.0, -0.5])
        array([-1.5])

        Args:
            values: one finite number or bool for each id of ``ids_a``, [n].
            how: ``sum`` (log-probabilities: the sum is that of the block's text), ``mean``
                (advantages), ``any`` or ``all`` (masks).
        """
        given = np.asarray(values)
        if given.shape != self.ids_a.shape or given.dtype.kind not in "biuf":
            raise RobustokError(
                f"values: give one number for each of the {len(self.ids_a)} ids, not "
                f"{shown(values)}"
            )
        wrong = np.flatnonzero(~np.isfinite(given))
        if len(wrong):
            raise RobustokError(f"values: number {wrong[0]} is {given[wrong[0]]}, not finite")
        reduce = _REDUCTIONS[check_choice("reduction", how, _REDUCTIONS)]
        given = given.astype(np.float64 if reduce is np.add else np.bool_)
        reduced = reduce.reduceat(given, self.edges_a[:-1]) if len(self) else given
        return reduced / np.diff(self.edges_a) if how == "mean" else reduced

    def carry(self, values: Sequence[object] | np.ndarray, how: str = "sum") -> np.ndarray:
        """Values of the first tokenization for the ids of the second, [m].

        >>> blocks = rt.align(vocab, [84, 257], vocab, vocab.encode("the"))
        >>> blocks.carry([True, False], "any"), blocks.reversed().carry([-1.5])
        (array([ True]), array([ 0. , -1.5]))

        Args:
            values: one finite number or bool for each id of ``ids_a``, [n].
            how: as for :meth:`block_values`. With ``sum`` the last id of a block has the value of
                the block and the ids before it have 0, so that the total stays. Otherwise every id
                of a block has its value.
        """
        reduced = self.block_values(values, how)
        sizes = np.diff(self.edges_b)
        if how != "sum":
            return np.repeat(reduced, sizes)
        values_b = np.zeros(len(self.ids_b))
        values_b[self.edges_b[1:] - 1] = reduced
        return values_b


def align(
    vocab_a: Vocabulary,
    ids_a: Sequence[int] | np.ndarray,
    vocab_b: Vocabulary,
    ids_b: Sequence[int] | np.ndarray,
    *,
    special: Mapping[int, int] | None = None,
) -> Alignment:
    """Align two tokenizations of one text, by one tokenizer or by two, block by block.

    >>> sampled = [*vocab.encode("t"), *vocab.encode("he")]
    >>> blocks = rt.align(vocab, sampled, vocab, vocab.encode("the"))
    >>> blocks.edges_a.tolist(), blocks.edges_b.tolist()
    ([0, 2], [0, 1])

    Args:
        vocab_a: the vocabulary of the first tokenization.
        ids_a: the first tokenization, integers [n].
        vocab_b: the vocabulary of the second one, which may be the same.
        ids_b: the second tokenization, integers [m].
        special: which special ids of the first vocabulary mean the same as which of the second one,
            such as ``{eos_a: eos_b}``. Other special ids are spelled by their names.

    A space that one tokenizer adds before a text, or after a special token, belongs to the first
    block of that text. Bytes that are not UTF-8 in one text may be U+FFFD in the other one, as a
    decoder writes them: a block then holds all of a replaced character. Takes time linear in the
    number of bytes. Raises RobustokError where the two spell different texts, and for an id that is
    outside the vocabulary or has no bytes.
    """
    a, b = check_spelled(vocab_a, ids_a), check_spelled(vocab_b, ids_b)
    same = dict(special or {})
    check_spelled(vocab_a, [*same])
    check_spelled(vocab_b, [*same.values()])
    text_a, ends_a = _text_and_ends(vocab_a, a, {i: vocab_b.tokens[j] for i, j in same.items()})
    text_b, ends_b = _text_and_ends(vocab_b, b, {})
    if text_a != text_b:
        starts_a, starts_b = (
            np.concatenate([[0], ends[~vocab.readable[ids]]])
            for vocab, ids, ends in ((vocab_a, a, ends_a), (vocab_b, b, ends_b))
        )
        added_a, added_b = [], []
        for at_a, at_b in zip(starts_a.tolist(), starts_b.tolist(), strict=False):
            more = _spaces(text_a, at_a) - _spaces(text_b, at_b)
            if more == 1 and vocab_a.adds_space:
                added_a.append(at_a)
            elif more == -1 and vocab_b.adds_space:
                added_b.append(at_b)
        text_a, ends_a = _without(text_a, ends_a, added_a)
        text_b, ends_b = _without(text_b, ends_b, added_b)
    if text_a != text_b:
        replaced_a, ends_a = _replaced(text_a, ends_a)
        replaced_b, ends_b = _replaced(text_b, ends_b)
        if replaced_a != replaced_b:
            raise RobustokError(_difference(replaced_a, replaced_b))
    # A position of -1 lies inside a replaced character and is never a common boundary.
    common = np.intersect1d(ends_a[ends_a > 0], ends_b[ends_b > 0])
    return Alignment(a, b, _edges(ends_a, common), _edges(ends_b, common))


def _spaces(text: bytes, at: int) -> int:
    """How many spaces stand at a position."""
    match = _SPACES.match(text, at)
    return match.end() - at if match else 0


def _text_and_ends(
    vocab: Vocabulary, ids: np.ndarray, spelled_as: dict[int, bytes]
) -> tuple[bytes, np.ndarray]:
    """The text of ids, and where each ends in it; ``spelled_as``: other bytes of some ids."""
    if not spelled_as or not np.isin(ids, list(spelled_as)).any():
        return vocab.decode_bytes(ids), _ends(vocab, ids)
    parts = [spelled_as.get(i) or vocab.tokens[i] for i in ids.tolist()]
    return b"".join(parts), np.cumsum([len(part) for part in parts])


def _without(text: bytes, ends: np.ndarray, at: list[int]) -> tuple[bytes, np.ndarray]:
    """The text without the bytes ``at`` ascending positions, and the ends in it."""
    if not at:
        return text, ends
    edges = [-1, *at, len(text)]
    kept = [text[begin + 1 : end] for begin, end in itertools.pairwise(edges)]
    return b"".join(kept), ends - np.searchsorted(at, ends, "left")


def _edges(ends: np.ndarray, common: np.ndarray) -> np.ndarray:
    """Where blocks begin and end in the ids: each ends with the last id at a common boundary."""
    within = np.flatnonzero(ends >= 0)
    last = np.searchsorted(ends[within], common, "right") - 1
    return np.concatenate([[0], within[last] + 1])


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
    at = _common_bytes(a, b)
    begin = max(at - 8, 0)
    return (
        f"the two id sequences spell different texts from byte {at} on: "
        f"'{visible(a[begin : at + 12])}' and '{visible(b[begin : at + 12])}'; align tokenizations "
        "of one text"
    )


@dataclass(frozen=True)
class PrefixCheck:
    """Whether ids are a prefix of others, and the first difference; :func:`prefix_of` makes it.

    >>> bool(prefix_of(vocab, vocab.encode("the"), vocab.encode("the revolution")))
    True

    Args:
        shared: how many first ids are the same.
        cause: empty if the ids are a prefix; otherwise ``re-encoded`` (the same text in other ids),
            ``merged`` (the last id and the text after it became one token), ``not-utf8`` (bytes
            became U+FFFD when they were decoded), ``text-changed`` or ``shortened``.
        explanation: the first difference in one line, and what to do.
    """

    shared: int
    cause: str
    explanation: str

    def __bool__(self) -> bool:
        return not self.cause


def prefix_of(
    vocab: Vocabulary, step: Sequence[int] | np.ndarray, next_step: Sequence[int] | np.ndarray
) -> PrefixCheck:
    """Check that the ids of a step begin the ids of the next step.

    >>> sampled = [*vocab.encode("t"), *vocab.encode("he")]
    >>> print(prefix_of(vocab, sampled, vocab.encode("the revolution")).explanation)
    ids 0 to 1 't|he' became 'the': the same text was encoded again; keep the sampled ids

    Args:
        vocab: the vocabulary of both.
        step: prompt and completion of a step, integers [n].
        next_step: prompt of the next step, integers [m].

    Raises RobustokError for an id outside the vocabulary.
    """
    check_vocabulary(vocab)
    a, b = check_ids(step, vocab.size), check_ids(next_step, vocab.size)
    size = min(len(a), len(b))
    unequal = np.flatnonzero(a[:size] != b[:size])
    at = int(unequal[0]) if len(unequal) else size
    if at == len(a):
        return PrefixCheck(at, "", f"all {at} ids begin the next step")
    if at == len(b):
        return PrefixCheck(
            at,
            SHORTENED,
            f"the next step ends after {at} of {len(a)} ids: text was removed at its end",
        )
    return _explained(vocab, a, b, at)


def _explained(vocab: Vocabulary, a: np.ndarray, b: np.ndarray, at: int) -> PrefixCheck:
    """What differs from position ``at`` on, where both sides have an id."""
    a, b = a[at:], b[at:]
    text_a, text_b = vocab.decode_bytes(a), vocab.decode_bytes(b)
    length = _common_bytes(text_a, text_b)
    ends_a, ends_b = _ends(vocab, a), _ends(vocab, b)
    meeting = np.intersect1d(ends_a[ends_a <= length], ends_b[ends_b <= length])
    if len(meeting):
        cause, advice = RE_ENCODED, "the same text was encoded again; keep the sampled ids"
        a = a[: np.searchsorted(ends_a, meeting[0]) + 1]
        b = b[: np.searchsorted(ends_b, meeting[0]) + 1]
    elif text_b.startswith(text_a):
        cause = MERGED
        advice = "merged with the text that follows; encode new text by itself"
        b = b[: np.searchsorted(ends_b, len(text_a)) + 1]
    elif length < _common_bytes(*(t.decode(errors="replace").encode() for t in (text_a, text_b))):
        cause = NOT_UTF8
        advice = "bytes that are not UTF-8 became U+FFFD; keep the sampled ids"
    else:
        cause = TEXT_CHANGED
        advice = (
            "the text was changed, as by a template that trims or removes parts of earlier turns"
        )
    where = f"id {at}" if len(a) == 1 else f"ids {at} to {at + len(a) - 1}"
    line = f"{where} '{_spelled(vocab, a)}' became '{_spelled(vocab, b)}': {advice}"
    return PrefixCheck(at, cause, line)


def _common_bytes(a: bytes, b: bytes) -> int:
    """How many first bytes are the same."""
    size = min(len(a), len(b))
    unequal = np.frombuffer(a[:size], np.uint8) != np.frombuffer(b[:size], np.uint8)
    return int(unequal.argmax()) if unequal.any() else size


def _ends(vocab: Vocabulary, ids: np.ndarray) -> np.ndarray:
    """Where each id ends in the text of ``ids``, in bytes."""
    return np.cumsum(vocab.token_lengths[ids])


def _spelled(vocab: Vocabulary, ids: np.ndarray) -> str:
    return spelled(vocab, ids[:_SHOWN].tolist()) + ("|…" if len(ids) > _SHOWN else "")
