"""Verdicts of the guard on one id sequence and on a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from robustok.guard.findings import NO_FINDINGS, Findings, FindingTable, join_tables
from robustok.ragged import Ragged

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

    def as_dict(self) -> dict[str, Any]:
        """The verdict for JSON."""
        return {
            "canonical": self.canonical, "distance": self.distance, "splits": self.splits,
            "round_trip": self.round_trip, "findings_total": self.findings.total,
            "findings": [asdict(f) for f in self.findings], "repaired": self.repaired.tolist(),
        }  # fmt: skip


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
    def clean(self) -> np.ndarray:
        """Rows without any finding, bool [rows]."""
        clean = np.ones(len(self), np.bool_)
        clean[self.finding_rows] = False
        return clean

    @property
    def finding_rows(self) -> np.ndarray:
        """The row of each finding, int64 [findings]."""
        return np.searchsorted(self.offsets, self.table.begin, "right") - 1

    def __len__(self) -> int:
        return len(self.canonical)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        first, last = np.searchsorted(self.table.begin, self.offsets[i : i + 2]).tolist()
        table = FindingTable(*(column[first:last] for column in self.table))
        begin, end = self.offsets[i : i + 2].tolist()
        findings = Findings(
            table, self.given[begin:end], self.repaired[i], begin, int(self.repaired.offsets[i])
        )
        return Verdict(
            bool(self.canonical[i]), int(self.distance[i]), int(self.splits[i]),
            bool(self.round_trip[i]), findings, self.repaired[i],
        )  # fmt: skip


def join_verdicts(blocks: list[Verdicts]) -> Verdicts:
    """The verdicts on several batches as one."""
    if not blocks:
        none = np.empty(0, np.int64)
        flags, offsets = none.astype(np.bool_), np.zeros(1, np.int64)
        rows = Ragged(none.astype(np.int32), offsets)
        return Verdicts(none, offsets, none, flags, none, none, flags, rows, NO_FINDINGS)
    ids = np.cumsum([0] + [len(b.given) for b in blocks]).tolist()
    repaired = np.cumsum([0] + [len(b.repaired.values) for b in blocks]).tolist()
    shifts = list(zip(blocks, ids, repaired, strict=False))
    rows = Ragged(
        np.concatenate([b.repaired.values for b in blocks]),
        np.concatenate([[0], *(b.repaired.offsets[1:] + n for b, _, n in shifts)]),
    )
    columns = ("marks", "canonical", "distance", "splits", "round_trip")
    marks, canonical, distance, splits, back = (
        np.concatenate([getattr(b, name) for b in blocks]) for name in columns
    )
    return Verdicts(
        np.concatenate([b.given for b in blocks]),
        np.concatenate([[0], *(b.offsets[1:] + n for b, n, _ in shifts)]),
        marks, canonical, distance, splits, back, rows,
        join_tables([b.table.shifted(n, m) for b, n, m in shifts]),
    )  # fmt: skip
