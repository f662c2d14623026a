"""Findings and verdicts of the guard, kept as arrays and converted to objects on demand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from robustok.ragged import Ragged
from robustok.runtime.display import visible
from robustok.runtime.files import JsonObject
from robustok.tokenizer.vocabulary import Vocabulary

NOT_CANONICAL = "not-canonical"  # the text of these ids is encoded to other ids
UNKNOWN_ID = "unknown-id"  # the vocabulary has no such id
SPECIAL_ID = "special-id"  # a special or control token where plain text is expected
SPECIAL_TEXT = "special-text"  # ordinary tokens that spell a special one
NOT_UTF8 = "not-utf8"  # bytes that no text has
TEXT_CHANGES = "text-changes"  # no text gives these ids: the tokenizer would change it

KINDS = (NOT_CANONICAL, NOT_UTF8, SPECIAL_ID, SPECIAL_TEXT, TEXT_CHANGES, UNKNOWN_ID)
MAX_FINDINGS = 1000  # that a verdict lists; it counts all of them
SAME = -1  # in FindingTable: repairing leaves the ids as they are


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


class FindingTable(NamedTuple):
    """Findings, sorted by ``begin``, ``end`` and kind."""

    kind: np.ndarray  # uint8: index into KINDS
    begin: np.ndarray  # int64: position in the given ids
    end: np.ndarray  # int64
    canonical_begin: np.ndarray  # int64: position in the repaired ids, or SAME
    canonical_end: np.ndarray  # int64

    @classmethod
    def of(
        cls,
        kind: str,
        begin: np.ndarray,
        end: np.ndarray,
        canonical_begin: np.ndarray | int = SAME,
        canonical_end: np.ndarray | int = SAME,
    ) -> FindingTable:
        """Findings of one kind."""
        if not len(begin):
            return NO_FINDINGS
        columns = (KINDS.index(kind), begin, end, canonical_begin, canonical_end)
        kinds, *positions = np.broadcast_arrays(*columns)
        return cls(kinds.astype(np.uint8), *(p.astype(np.int64) for p in positions))

    @property
    def deletes(self) -> np.ndarray:
        """Findings whose text the tokenizer does not change but delete, bool [findings]."""
        has_no_ids = (self.canonical_begin == self.canonical_end) & (self.canonical_begin != SAME)
        return has_no_ids & (self.kind == KINDS.index(TEXT_CHANGES))


_NONE = np.empty(0, np.int64)
NO_FINDINGS = FindingTable(np.empty(0, np.uint8), _NONE, _NONE, _NONE, _NONE)


def join_tables(tables: Sequence[FindingTable]) -> FindingTable:
    """All findings of several tables, in order."""
    tables = [table for table in tables if len(table.kind)]
    if len(tables) < 2:
        return tables[0] if tables else NO_FINDINGS
    columns = [np.concatenate(column) for column in zip(*tables, strict=True)]
    kind, begin, end, *_ = columns
    order = np.lexsort((kind, end, begin))
    return FindingTable(*(column[order] for column in columns))


class Findings(Sequence[Finding]):
    """The first 1,000 findings in one id sequence; ``total`` counts all of them.

    >>> findings = rt.Guard(vocab).check([84, 257, 99999]).findings
    >>> len(findings), findings.total, sorted(findings.kinds)
    (2, 2, ['not-canonical', 'unknown-id'])

    Args:
        table: the findings.
        given: the ids that were checked, integers [n], as an array or a list.
        repaired: their canonical ids, int32 [m].

    :meth:`Guard.check` makes it. ``kinds`` are the kinds of all findings, those after the first
    1,000 included, and ``deletes_text`` says whether the tokenizer deletes a part of the text
    instead of changing it, so that the repaired ids lack it.
    """

    def __init__(
        self, table: FindingTable, given: np.ndarray | list[int], repaired: np.ndarray
    ) -> None:
        self._table, self._given, self._repaired = table, given, repaired

    @property
    def total(self) -> int:
        return len(self._table.kind)

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(KINDS[k] for k in np.unique(self._table.kind).tolist())

    @property
    def deletes_text(self) -> bool:
        return bool(self._table.deletes.any())

    def __len__(self) -> int:
        return min(self.total, MAX_FINDINGS)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        i = range(len(self))[index]
        kind, begin, end, first, last = (int(column[i]) for column in self._table)
        ids = canonical = tuple(map(int, self._given[begin:end]))
        if first != SAME:
            canonical = tuple(self._repaired[first:last].tolist())
        return Finding(KINDS[kind], begin, end, ids, canonical)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))


def describe(vocab: Vocabulary, finding: Finding) -> str:
    """A finding as one line of text.

    >>> verdict = rt.Guard(vocab).check([*vocab.encode("t"), *vocab.encode("he")])
    >>> describe(vocab, verdict.findings[0])
    "ids 0 to 1, 't|he', should be 'the'"

    Args:
        vocab: the vocabulary that was checked against.
        finding: the finding.
    """
    where = f"id {finding.begin}"
    if finding.end > finding.begin + 1:
        where = f"ids {finding.begin} to {finding.end - 1}"
    if finding.kind == UNKNOWN_ID:
        return f"{where}: {finding.ids[0]} is not in the vocabulary (0 to {vocab.size - 1})"
    description = {
        NOT_CANONICAL: f"should be {_shown(vocab, finding.canonical)}",
        SPECIAL_ID: "is a special token where text is expected",
        SPECIAL_TEXT: "spells a special token",
        NOT_UTF8: "is not UTF-8",
        TEXT_CHANGES: "spells a text that the tokenizer would change",
    }[finding.kind]
    return f"{where}, {_shown(vocab, finding.ids)}, {description}"


def _shown(vocab: Vocabulary, ids: Sequence[int]) -> str:
    return f"'{spelled(vocab, ids[:12])}'" + (" …" if len(ids) > 12 else "")


def spelled(vocab: Vocabulary, ids: Iterable[int]) -> str:
    """The tokens of ids with ``|`` between them; an unknown id is ``<99999?>``."""
    return "|".join(visible(vocab.tokens[i]) if 0 <= i < vocab.size else f"<{i}?>" for i in ids)


MATCHES, DEVIATES, SPECIAL, UNKNOWN = range(4)  # marks of ids


@dataclass(frozen=True)
class Verdict:
    """The verdict of a guard on one id sequence.

    >>> verdict = rt.Guard(vocab).check([*vocab.encode("t"), *vocab.encode("he")])
    >>> verdict.canonical, verdict.splits, [f.kind for f in verdict.findings]
    (False, 1, ['not-canonical'])

    ``canonical``: every id stands as the canonical encoder puts it. ``distance``: how many do not;
    ``splits``: boundaries that the canonical encoding does not have. ``round_trip``: decoding and
    encoding again gives the ids back. ``repaired``: the canonical ids, int32, special ids in place.
    ``findings`` lists the first 1,000 findings; ``findings.total`` counts all of them and
    ``findings.kinds`` has the kinds of all of them.
    """

    canonical: bool
    distance: int
    splits: int
    round_trip: bool
    findings: Findings
    repaired: np.ndarray = field(compare=False)

    def as_dict(self) -> JsonObject:
        """The verdict for JSON."""
        return {
            "canonical": self.canonical,
            "distance": self.distance,
            "splits": self.splits,
            "round_trip": self.round_trip,
            "findings_total": self.findings.total,
            "findings": [asdict(f) for f in self.findings],
            "repaired": self.repaired.tolist(),
        }


@dataclass(frozen=True, eq=False)
class Verdicts(Sequence[Verdict]):
    """The verdicts of a guard on a batch; ``verdicts[i]`` is the :class:`Verdict` on row i.

    >>> verdicts = rt.Guard(vocab).check_batch([vocab.encode("the"), [84, 257]])
    >>> verdicts.canonical, verdicts[1].distance
    (array([ True, False]), 2)

    ``canonical`` and ``round_trip`` are bool, ``distance`` and ``splits`` int64, all of shape
    [rows]. ``repaired`` holds the canonical ids of each row. ``given`` are the ids of all rows as
    they came, ``offsets`` says where each row begins, and ``marks`` (uint8) says of each id
    whether it stands, deviates, is special or unknown. ``table`` holds all findings as arrays.
    """

    given: np.ndarray
    offsets: np.ndarray
    marks: np.ndarray = field(repr=False)
    canonical: np.ndarray
    distance: np.ndarray
    splits: np.ndarray
    round_trip: np.ndarray
    repaired: Ragged
    table: FindingTable = field(repr=False)

    @property
    def deviates(self) -> np.ndarray:
        """Ids that are unknown or not canonical, bool [ids]."""
        return (self.marks == DEVIATES) | (self.marks == UNKNOWN)

    @property
    def finding_rows(self) -> np.ndarray:
        """The row of each finding, int64 [findings]."""
        return np.searchsorted(self.offsets, self.table.begin, "right") - 1

    def has(self, kind: str) -> np.ndarray:
        """Rows with a finding of one kind, bool [rows].

        Args:
            kind: a constant of this module, such as ``not-utf8``.
        """
        rows = np.zeros(len(self), np.bool_)
        rows[self.finding_rows[self.table.kind == KINDS.index(kind)]] = True
        return rows

    def __len__(self) -> int:
        return len(self.canonical)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        first, last = np.searchsorted(self.table.begin, self.offsets[i : i + 2]).tolist()
        kind, *columns = (column[first:last] for column in self.table)
        begin, end = self.offsets[i : i + 2].tolist()
        given, repaired = columns[:2], columns[2:]
        start = self.repaired.offsets[i]
        table = FindingTable(
            kind,
            *(position - begin for position in given),
            *(np.where(position == SAME, SAME, position - start) for position in repaired),
        )
        findings = Findings(table, self.given[begin:end], self.repaired[i])
        return Verdict(
            bool(self.canonical[i]),
            int(self.distance[i]),
            int(self.splits[i]),
            bool(self.round_trip[i]),
            findings,
            self.repaired[i],
        )
