"""Measures the drift of id sequences from the encoding of their text, over a data set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from robustok.errors import RobustokError
from robustok.guard.check import Guard
from robustok.guard.findings import (
    MATCHES,
    NOT_CANONICAL,
    NOT_UTF8,
    SPECIAL_TEXT,
    TEXT_CHANGES,
    UNKNOWN,
    UNKNOWN_ID,
    Verdicts,
)
from robustok.ragged import Ragged
from robustok.runtime.display import visible
from robustok.tokenizer.vocabulary import Vocabulary

_FIRST_BIN = 16  # positions; each further bin is as wide as all bins before it
_MOST_EXCHANGES = 100_000  # counted at most
_FIRST_ROWS = 10  # drifted rows that a report names
_AROUND = 8  # ids of an example before and after its first finding


@dataclass(frozen=True)
class PositionDrift:
    """Of the ids at positions ``begin`` to ``end`` (not included), how many drifted."""

    begin: int
    end: int
    ids: int
    drifted: int


@dataclass(frozen=True)
class TokenDrift:
    """How often an id occurs, and how often it is not canonical."""

    id: int
    token: str
    ids: int
    drifted: int


@dataclass(frozen=True)
class Exchange:
    """How often ids occur where the encoder gives others."""

    ids: tuple[int, ...]
    canonical: tuple[int, ...]
    given: str
    becomes: str
    times: int


@dataclass(frozen=True)
class GroupDrift:
    """Of the sequences of one turn or role, how many drifted, and how many of their ids."""

    name: str
    rows: int
    drifted_rows: int
    ids: int
    drifted: int


@dataclass(frozen=True)
class DriftExample:
    """The first finding of a drifted row: ids ``begin`` to ``end`` (not included) of it.

    ``before`` and ``after`` are up to eight ids around them, ``ids`` the ids themselves and
    ``canonical`` those of the encoder in their place. ``turn`` and ``role`` are those of the row,
    where they are known.
    """

    row: int
    turn: int | None
    role: str | None
    begin: int
    end: int
    before: tuple[int, ...]
    ids: tuple[int, ...]
    canonical: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True)
class Drift:
    """Totals of an audit, over all sequences.

    >>> audit = Audit(vocab)
    >>> _ = audit.add([vocab.encode("the"), [*vocab.encode("t"), *vocab.encode("he")]])
    >>> drift = audit.report()
    >>> drift.rows, drift.drifted_rows, drift.first_rows
    (2, 1, (1,))

    Args:
        rows: number of sequences.
        drifted_rows: sequences that are not canonical.
        changed_rows: sequences that decoding and encoding changes.
        ids: number of ids, over all sequences.
        drifted: ids that the canonical encoding does not have at their place.
        splits: boundaries that the canonical encoding does not have.
        unknown: ids outside the vocabulary.
        kinds: number of rows with each other kind of finding, by its name.
        by_position: ids and drifted ids by position in the sequence. The first interval has 16
            positions, each further one as many as all before it.
        by_token: ids and drifted ids by token, those that drift most often first.
        exchanges: runs of ids and the canonical ids of the same text, the most frequent first.
        first_rows: numbers of the first ten drifted rows.
        by_turn: totals by the number of the turn, where the rows were given one.
        by_role: totals by the role, where the rows were given one, most drifted ids first.
        examples: the first finding of each of the first ten drifted rows.
    """

    rows: int
    drifted_rows: int
    changed_rows: int
    ids: int
    drifted: int
    splits: int
    unknown: int
    kinds: dict[str, int]
    by_position: tuple[PositionDrift, ...]
    by_token: tuple[TokenDrift, ...]
    exchanges: tuple[Exchange, ...]
    first_rows: tuple[int, ...]
    by_turn: tuple[GroupDrift, ...] = ()
    by_role: tuple[GroupDrift, ...] = ()
    examples: tuple[DriftExample, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The whole report for JSON."""
        return asdict(self)


@dataclass
class Audit:
    """Adds up the drift of one batch after another.

    >>> audit = Audit(vocab)
    >>> rows = vocab.encode_batch(texts)
    >>> _ = audit.add([*rows, [*vocab.encode("t"), *vocab.encode("he")]])
    >>> audit.report().drifted_rows, audit.report().rows
    (1, 3)

    Args:
        vocab: the vocabulary that the ids are checked against.

    Special ids are no findings: rollouts contain them.
    """

    vocab: Vocabulary
    _guard: Guard = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._guard = Guard(self.vocab, allow_special=True, max_length=None)
        self._totals: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        self._seen = np.zeros((2, self.vocab.size), np.int64)
        self._at = np.zeros((2, 64), np.int64)
        self._exchanges: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()
        self._first_rows: list[int] = []
        self._examples: list[DriftExample] = []
        self._turns: dict[int, np.ndarray] = {}
        self._roles: dict[str, np.ndarray] = {}

    def add(
        self,
        rows: Ragged | Iterable[Any],
        turns: Sequence[int] | None = None,
        roles: Sequence[str] | None = None,
    ) -> Verdicts:
        """Check some rows, add their drift to the totals, and return their verdicts.

        Args:
            rows: a Ragged, or an iterable of id sequences.
            turns: the number of the turn of each row, if the rows are turns of conversations.
            roles: the role of each row, such as ``assistant`` or ``tool:search``.
        """
        verdicts = self._guard.check_batch(rows)
        off, unknown = verdicts.marks != MATCHES, verdicts.marks == UNKNOWN
        self._totals.update(
            rows=0, drifted_rows=int((~verdicts.canonical).sum()),
            changed_rows=int((~verdicts.round_trip).sum()), ids=len(off), drifted=int(off.sum()),
            splits=int(verdicts.splits.sum()), unknown=int(unknown.sum()),
        )  # fmt: skip
        for seen, which in ((self._seen[0], ~unknown), (self._seen[1], off & ~unknown)):
            seen += np.bincount(verdicts.given[which], minlength=self.vocab.size)
        position = np.arange(len(off)) - np.repeat(verdicts.offsets[:-1], np.diff(verdicts.offsets))
        bins = np.ceil(np.log2((position + 1) / _FIRST_BIN)).clip(0).astype(np.int64)
        for at, which in ((self._at[0], slice(None)), (self._at[1], off)):
            at += np.bincount(bins[which], minlength=64)
        self._add_groups(verdicts, turns, roles)
        for kind in (NOT_UTF8, SPECIAL_TEXT, TEXT_CHANGES):
            self._kinds[kind] += int(verdicts.has(kind).sum())
        for row in np.flatnonzero(~verdicts.canonical).tolist():
            if len(self._first_rows) < _FIRST_ROWS:
                self._first_rows.append(self._totals["rows"] + row)
                self._examples += _example(verdicts, row, self._totals["rows"], turns, roles)
            if self._totals["exchanges"] >= _MOST_EXCHANGES:
                break
            runs = [f for f in verdicts[row].findings if f.kind == NOT_CANONICAL]
            self._exchanges.update((f.ids, f.canonical) for f in runs)
            self._totals["exchanges"] += len(runs)
        self._totals["rows"] += len(verdicts)
        return verdicts

    def _add_groups(
        self, verdicts: Verdicts, turns: Sequence[int] | None, roles: Sequence[str] | None
    ) -> None:
        off = np.concatenate([[0], np.cumsum(verdicts.marks != MATCHES)])
        counts = np.stack([
            np.ones(len(verdicts), np.int64), ~verdicts.canonical, np.diff(verdicts.offsets),
            np.diff(off[verdicts.offsets]),
        ], axis=1)  # fmt: skip
        _add_counts(self._turns, turns, counts)
        _add_counts(self._roles, roles, counts)

    def report(self, top: int = 20) -> Drift:
        """All that was added, with the ``top`` tokens and exchanges that drifted most often."""
        t = self._totals
        most = np.argsort(-self._seen[1], kind="stable")[:top]
        used = np.flatnonzero(self._at[0])
        return Drift(
            t["rows"], t["drifted_rows"], t["changed_rows"], t["ids"], t["drifted"], t["splits"],
            t["unknown"], dict(+self._kinds),
            tuple(
                PositionDrift(_bin_start(b), _bin_start(b + 1), *map(int, self._at[:, b]))
                for b in used.tolist()
            ),
            tuple(
                TokenDrift(i, self._text([i]), *map(int, self._seen[:, i]))
                for i in most.tolist() if self._seen[1, i]
            ),
            tuple(
                Exchange(ids, canonical, self._text(ids), self._text(canonical), times)
                for (ids, canonical), times in self._exchanges.most_common(top)
            ),
            tuple(self._first_rows),
            tuple(
                GroupDrift(str(turn), *map(int, count))
                for turn, count in sorted(self._turns.items())
            ),
            tuple(
                GroupDrift(role, *map(int, count))
                for role, count in sorted(self._roles.items(), key=lambda e: (-e[1][3], e[0]))
            ),
            tuple(self._examples),
        )  # fmt: skip

    def _text(self, ids: Iterable[int]) -> str:
        return "|".join(visible(self.vocab.tokens[i]) for i in ids)


def _add_counts(groups: dict[Any, np.ndarray], names: Sequence[Any] | None, counts: Any) -> None:
    """Add the counts of each row, int64 [rows, 4], to those of its group."""
    if names is None:
        return
    if len(names) != len(counts):
        raise RobustokError(
            f"{len(names)} turns or roles for {len(counts)} rows: give one for each row"
        )
    for name, count in zip(names, counts, strict=True):
        groups[name] = groups.get(name, 0) + count


def _example(
    verdicts: Verdicts, row: int, rows_before: int, turns: Sequence[int] | None,
    roles: Sequence[str] | None,
) -> list[DriftExample]:  # fmt: skip
    """The first finding of drift in a row; None if it is beyond the listed findings."""
    findings = verdicts[row].findings
    finding = next((f for f in findings if f.kind in (NOT_CANONICAL, UNKNOWN_ID)), None)
    if finding is None:
        return []
    start, stop = verdicts.offsets[row : row + 2].tolist()
    ids = verdicts.given[start:stop].tolist()
    return [DriftExample(
        rows_before + row, None if turns is None else int(turns[row]),
        None if roles is None else roles[row], finding.begin, finding.end,
        tuple(ids[max(finding.begin - _AROUND, 0) : finding.begin]), finding.ids,
        finding.canonical if finding.kind == NOT_CANONICAL else (),
        tuple(ids[finding.end : finding.end + _AROUND]),
    )]  # fmt: skip


def _bin_start(number: int) -> int:
    return _FIRST_BIN << number - 1 if number else 0
