"""Check that the ids of one step of a rollout are a prefix of those of the next step.

Training on the last step of an agent's episode is correct only if each step's ids are a prefix of
the next step's: otherwise log-probabilities belong to ids that the next step does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robustok.checks import check_ids
from robustok.display import visible
from robustok.vocabulary import Vocabulary, check_vocabulary

RE_ENCODED, MERGED, NOT_UTF8 = "re-encoded", "merged", "not-utf8"
TEXT_CHANGED, SHORTENED = "text-changed", "shortened"
_SHOWN = 6  # ids on each side of a difference


@dataclass(frozen=True)
class PrefixCheck:
    """Whether ids are a prefix of others, and the first difference; :func:`prefix_of` makes it.

    >>> from robustok.rollouts import prefix_of
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

    >>> from robustok.rollouts import prefix_of
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
            at, SHORTENED, f"the next step ends after {at} of {len(a)} ids: text was removed at its"
            " end"
        )  # fmt: skip
    return _explained(vocab, a, b, at)


def _explained(vocab: Vocabulary, a: np.ndarray, b: np.ndarray, at: int) -> PrefixCheck:
    """What differs from position ``at`` on, where both sides have an id."""
    text_a, text_b = vocab.decode_bytes(a[at:]), vocab.decode_bytes(b[at:])
    length = _common_bytes(text_a, text_b)
    ends_a, ends_b = _ends(vocab, a[at:]), _ends(vocab, b[at:])
    meeting = np.intersect1d(ends_a[ends_a <= length], ends_b[ends_b <= length])
    if len(meeting):
        stop_a = at + int(np.searchsorted(ends_a, meeting[0])) + 1
        stop_b = at + int(np.searchsorted(ends_b, meeting[0])) + 1
        line = f"{_shown(vocab, a, at, stop_a)} became '{_spelled(vocab, b, at, stop_b)}': the same"
        return PrefixCheck(at, RE_ENCODED, f"{line} text was encoded again; keep the sampled ids")
    if text_b.startswith(text_a):
        stop = at + int(np.searchsorted(ends_b, len(text_a))) + 1
        line = f"{_shown(vocab, a, at, len(a))} became '{_spelled(vocab, b, at, stop)}'"
        return PrefixCheck(
            at, MERGED, f"{line}: merged with the text that follows; encode new text by itself"
        )
    line = f"{_shown(vocab, a, at, len(a))} became '{_spelled(vocab, b, at, len(b))}'"
    replaced = (text.decode(errors="replace").encode() for text in (text_a, text_b))
    if _common_bytes(*replaced) > length:
        return PrefixCheck(
            at, NOT_UTF8, f"{line}: bytes that are not UTF-8 became U+FFFD; keep the sampled ids"
        )
    return PrefixCheck(
        at, TEXT_CHANGED, f"{line}: the text was changed, as by a template that trims or removes"
        " parts of earlier turns",
    )  # fmt: skip


def _common_bytes(a: bytes, b: bytes) -> int:
    size = min(len(a), len(b))
    unequal = np.frombuffer(a[:size], np.uint8) != np.frombuffer(b[:size], np.uint8)
    return int(unequal.argmax()) if unequal.any() else size


def _ends(vocab: Vocabulary, ids: np.ndarray) -> np.ndarray:
    return np.cumsum(np.diff(vocab.token_offsets)[ids])


def _shown(vocab: Vocabulary, ids: np.ndarray, begin: int, end: int) -> str:
    where = f"id {begin}" if end == begin + 1 else f"ids {begin} to {end - 1}"
    return f"{where} '{_spelled(vocab, ids, begin, end)}'"


def _spelled(vocab: Vocabulary, ids: np.ndarray, begin: int, end: int) -> str:
    parts = [visible(vocab.tokens[i]) for i in ids[begin : min(end, begin + _SHOWN)].tolist()]
    return "|".join(parts) + ("|…" if end > begin + _SHOWN else "")
