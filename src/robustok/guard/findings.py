"""Findings of the guard, kept as arrays and converted to objects on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import numpy as np

from robustok.display import visible
from robustok.vocabulary import Vocabulary

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
    """Findings of a batch, a row each, sorted by ``begin``, ``end`` and kind.

    Positions are arrays, or lists for one short row, which take less time to make.
    """

    kind: np.ndarray  # uint8: index into KINDS
    begin: Any  # int64: position in all given ids
    end: Any  # int64
    canonical_begin: Any  # int64: position in all repaired ids, or SAME
    canonical_end: Any  # int64

    @classmethod
    def of(
        cls, kind: str, begin: np.ndarray, end: np.ndarray,
        canonical_begin: np.ndarray | int = SAME, canonical_end: np.ndarray | int = SAME,
    ) -> FindingTable:  # fmt: skip
        """Findings of one kind."""
        columns = (KINDS.index(kind), begin, end, canonical_begin, canonical_end)
        kinds, *positions = np.broadcast_arrays(*columns)
        return cls(kinds.astype(np.uint8), *(p.astype(np.int64) for p in positions))

    def shifted(self, ids: int, repaired: int) -> FindingTable:
        """The same findings, at positions after earlier given and repaired ids."""
        same = self.canonical_begin == SAME
        return FindingTable(
            self.kind, self.begin + ids, self.end + ids,
            np.where(same, SAME, self.canonical_begin + repaired),
            np.where(same, SAME, self.canonical_end + repaired),
        )  # fmt: skip


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
        table: the findings, with positions in the ids of the whole batch.
        given: the ids that were checked, integers [n], as an array or a list.
        repaired: their canonical ids, int32 [m].
        given_start: position in the batch of the first id of ``given``, by default 0.
        repaired_start: position in the repaired batch of the first id of ``repaired``, by default
            0.

    :meth:`Guard.check` makes it. ``kinds`` are the kinds of all findings, those after the first
    1,000 included.
    """

    def __init__(
        self, table: FindingTable, given: np.ndarray | list[int], repaired: np.ndarray,
        given_start: int = 0, repaired_start: int = 0,
    ) -> None:  # fmt: skip
        self._table = table  # its positions count from the starts
        self._given, self._given_start = given, given_start
        self._repaired, self._repaired_start = repaired, repaired_start

    @property
    def total(self) -> int:
        return len(self._table.kind)

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(KINDS[k] for k in np.unique(self._table.kind).tolist())

    def __len__(self) -> int:
        return min(self.total, MAX_FINDINGS)

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        i = range(len(self))[index]
        kind, begin, end, first, last = (int(column[i]) for column in self._table)
        begin, end = begin - self._given_start, end - self._given_start
        ids = canonical = tuple(map(int, self._given[begin:end]))
        if first != SAME:
            start = self._repaired_start
            canonical = tuple(self._repaired[first - start : last - start].tolist())
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
    parts = [visible(vocab.tokens[i]) if 0 <= i < vocab.size else f"<{i}?>" for i in ids[:12]]
    return f"'{'|'.join(parts)}'" + (" …" if len(ids) > 12 else "")
