"""What a guard says of an id sequence, and of many."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from robustok.ragged import Ragged
from robustok.vocabulary import Vocabulary

NOT_CANONICAL = "not-canonical"  # the text of these ids is encoded to other ids
UNKNOWN_ID = "unknown-id"  # the vocabulary has no such id
SPECIAL_ID = "special-id"  # a special or control token where plain text is expected
SPECIAL_TEXT = "special-text"  # ordinary tokens that spell a special one
NOT_UTF8 = "not-utf8"  # bytes that no text has
TEXT_CHANGES = "text-changes"  # the tokenizer's normalizer would turn the text into another

STANDS, DEVIATES, SPECIAL, UNKNOWN = range(4)  # the marks of ids


@dataclass(frozen=True)
class Finding:
    """What is wrong with the ids ``begin`` to ``end`` of a sequence (end not included).

    >>> rt.Guard(vocab).check([*vocab.encode("t"), *vocab.encode("he")]).findings[0]
    Finding(kind='not-canonical', begin=0, end=2, ids=(84, 257), canonical=(266,))

    ``kind`` is one of the constants of this module; ``ids`` are as they were given, ``canonical``
    what they become when repaired.
    """

    kind: str
    begin: int
    end: int
    ids: tuple[int, ...]
    canonical: tuple[int, ...]


@dataclass(frozen=True)
class Verdict:
    """What a guard found in one id sequence.

    >>> verdict = rt.Guard(vocab).check([*vocab.encode("t"), *vocab.encode("he")])
    >>> verdict.canonical, verdict.splits, [f.kind for f in verdict.findings]
    (False, 1, ['not-canonical'])

    ``canonical``: every id stands as the canonical encoder puts it. ``distance``: how many do not;
    ``splits``: boundaries that the canonical encoding does not have. ``round_trip``: decoding and
    encoding again gives the ids back. ``repaired``: the canonical ids, int32, special ids in place.
    """

    canonical: bool
    distance: int
    splits: int
    round_trip: bool
    findings: tuple[Finding, ...]
    repaired: np.ndarray = field(compare=False)

    def as_dict(self) -> dict[str, Any]:
        """The verdict for JSON."""
        findings = [
            {"kind": f.kind, "begin": f.begin, "end": f.end, "ids": list(f.ids),
             "canonical": list(f.canonical)}
            for f in self.findings
        ]  # fmt: skip
        return {
            "canonical": self.canonical, "distance": self.distance, "splits": self.splits,
            "round_trip": self.round_trip, "findings": findings, "repaired": self.repaired.tolist(),
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Verdicts(Sequence[Verdict]):
    """What a guard found in a batch; ``verdicts[i]`` is the :class:`Verdict` on row i.

    >>> verdicts = rt.Guard(vocab).check_batch([vocab.encode("the"), [84, 257]])
    >>> verdicts.canonical, verdicts[1].distance
    (array([ True, False]), 2)

    ``canonical`` and ``round_trip`` are bool, ``distance`` and ``splits`` int64, all of shape
    [rows]. ``deviates`` is bool, one for each id given: it is unknown or does not stand.
    """

    given: np.ndarray
    offsets: np.ndarray
    marks: np.ndarray = field(repr=False)
    canonical: np.ndarray
    distance: np.ndarray
    splits: np.ndarray
    round_trip: np.ndarray
    repaired: Ragged
    repaired_stands: np.ndarray = field(repr=False)
    in_text: dict[int, tuple[Finding, ...]] = field(repr=False)

    @property
    def deviates(self) -> np.ndarray:
        return (self.marks == DEVIATES) | (self.marks == UNKNOWN)

    @property
    def clean(self) -> np.ndarray:
        """Rows without any finding, bool [rows]."""
        clean = self.canonical.copy()
        clean[list(self.in_text)] = False
        rows = np.searchsorted(self.offsets, np.flatnonzero(self.marks == SPECIAL), "right") - 1
        clean[rows] = False
        return clean

    def __len__(self) -> int:
        return len(self.canonical)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        findings = sorted(
            [*self._stretches(i), *self._single_ids(i), *self.in_text.get(i, ())],
            key=lambda f: (f.begin, f.end, f.kind),
        )
        return Verdict(
            bool(self.canonical[i]), int(self.distance[i]), int(self.splits[i]),
            bool(self.round_trip[i]), tuple(findings), self.repaired[i],
        )  # fmt: skip

    def _stretches(self, i: int) -> Iterator[Finding]:
        """Ids that do not stand beside the canonical ones in their place, between those that do."""
        old = self.marks[self.offsets[i] : self.offsets[i + 1]] == DEVIATES
        if not old.any():
            return
        begin, end = self.repaired.offsets[i : i + 2]
        new = ~self.repaired_stands[begin:end]
        given, repaired = self.given[self.offsets[i] :], self.repaired.values[begin:end]
        # As many ids stand before a stretch of the one as of the other.
        marks = self.marks[self.offsets[i] : self.offsets[i + 1]]
        stood_old = np.cumsum((marks == STANDS) | (marks == SPECIAL))
        stood_new = np.cumsum(~new)
        for first, last in _stretches_of(old):
            before = int(stood_old[first])
            a, b = np.searchsorted(stood_new, [before, before + 1])
            a += before > 0  # past the last one that stands
            yield Finding(
                NOT_CANONICAL, first, last, tuple(given[first:last].tolist()),
                tuple(repaired[a:b].tolist()),
            )  # fmt: skip

    def _single_ids(self, i: int) -> Iterator[Finding]:
        begin = int(self.offsets[i])
        marks = self.marks[begin : int(self.offsets[i + 1])]
        for at in np.flatnonzero(marks >= SPECIAL).tolist():
            kind = SPECIAL_ID if marks[at] == SPECIAL else UNKNOWN_ID
            token = (int(self.given[begin + at]),)
            yield Finding(kind, at, at + 1, token, token if kind == SPECIAL_ID else ())


def tell(vocab: Vocabulary, finding: Finding) -> str:
    """A finding in one line for people.

    >>> verdict = rt.Guard(vocab).check([*vocab.encode("t"), *vocab.encode("he")])
    >>> tell(vocab, verdict.findings[0])
    "ids 0 to 1, 't|he', should be 'the'"
    """
    where = f"id {finding.begin}"
    if finding.end > finding.begin + 1:
        where = f"ids {finding.begin} to {finding.end - 1}"
    if finding.kind == UNKNOWN_ID:
        return f"{where}: {finding.ids[0]} is not in the vocabulary (0 to {vocab.size - 1})"
    given = _shown(vocab, finding.ids)
    said = {
        NOT_CANONICAL: f"should be {_shown(vocab, finding.canonical)}",
        SPECIAL_ID: "is a special token where text is expected",
        SPECIAL_TEXT: "spells a special token",
        NOT_UTF8: "is not UTF-8",
        TEXT_CHANGES: "spells a text that the tokenizer's normalizer would change",
    }[finding.kind]
    return f"{where}, {given}, {said}"


def _shown(vocab: Vocabulary, ids: Sequence[int]) -> str:
    pieces = [
        vocab.tokens[i].decode(errors="backslashreplace") if 0 <= i < vocab.size else f"<{i}?>"
        for i in ids[:12]
    ]
    return repr("|".join(pieces)) + (" …" if len(ids) > 12 else "")


def _stretches_of(flags: np.ndarray) -> Iterator[tuple[int, int]]:
    """Begin and end of every stretch of true flags."""
    edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0)).tolist()
    return itertools.zip_longest(edges[::2], edges[1::2])
