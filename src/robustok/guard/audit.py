"""Measures the drift of sampled ids from the encoding of their text, over rollouts.

An *event* is a run of ids that the encoder would not give where they stand, or an id outside the
vocabulary. Prompt and completion are judged as one sequence, and a sequence may begin in the middle
of a text, as completions do. `robustok.guard.layouts` reads the rollouts of files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from robustok.guard.check import Guard, IdSequences, flatten
from robustok.guard.findings import (
    KINDS,
    MATCHES,
    NOT_CANONICAL,
    UNKNOWN_ID,
    Verdicts,
    spelled,
)
from robustok.guard.layouts import Part, Rollout
from robustok.runtime.files import JsonObject
from robustok.tokenizer.data import split_at_broken
from robustok.tokenizer.vocabulary import Vocabulary

FIRST = (256, 1024, 4096)  # sampled tokens of a rollout
_ROLLOUTS, _IDS = 1024, 1 << 18  # checked at once, one rollout at least
_MOST_EXCHANGES = 1 << 16  # of which the rarer half is forgotten
_LONGEST_EXCHANGE = 64  # ids; longer runs are counted by their kind only
_FIRST_ROWS = 10  # drifted ones that a report names


@dataclass(frozen=True)
class DriftPart:
    """The drift of some ids: all, the first ones of each rollout, those of a role or kind.

    >>> part = DriftPart("role", "completion", rows=9, drifted_rows=1, ids=80, drifted=2, events=1)
    >>> part.drifted / part.ids
    0.025

    Args:
        group: ``all``, ``first``, ``role``, ``kind`` or ``exchange``.
        name: which of the group.
        rows: rollouts that have such ids (of a kind or an exchange: all rollouts).
        drifted_rows: of these, how many have an event there.
        ids: number of ids (of a kind or an exchange: in its events).
        drifted: ids that the encoder would not give.
        events: number of events.
    """

    group: str
    name: str
    rows: int
    drifted_rows: int
    ids: int
    drifted: int
    events: int


@dataclass(frozen=True)
class Drift:
    """The totals of an audit.

    >>> audit = Audit(vocab)
    >>> _ = audit.add([vocab.encode("the"), [*vocab.encode("t"), *vocab.encode("he")]])
    >>> drift = audit.report()
    >>> drift.rows, drift.drifted_rows, drift.first_rows
    (2, 1, (1,))

    Args:
        rows: number of rollouts.
        drifted_rows: rollouts with an event.
        sequences: number of id sequences.
        changed_sequences: sequences that decoding and encoding changes.
        parts: one for all ids, for the first 256, 1,024 and 4,096 sampled ids of each rollout, each
            role, each kind (``split``: more ids than the encoder gives, ``merge``: fewer,
            ``boundary``: as many, ``byte fragment``: an id that is a part of a character,
            ``id outside`` the vocabulary), and the most frequent exchanges of ids. Of about 65,000
            different exchanges the rarer half is forgotten.
        first_rows: numbers of the first ten rollouts with an event.
    """

    rows: int
    drifted_rows: int
    sequences: int
    changed_sequences: int
    parts: tuple[DriftPart, ...]
    first_rows: tuple[int, ...]

    def as_dict(self) -> JsonObject:
        """The whole report for JSON."""
        return asdict(self)


class Audit:
    """Adds up the drift of one batch after another.

    >>> audit = Audit(vocab)
    >>> rows = vocab.encode_batch(texts)
    >>> _ = audit.add([*rows, [*vocab.encode("t"), *vocab.encode("he")]])
    >>> audit.report().drifted_rows, audit.report().rows
    (1, 3)

    Args:
        vocab: the vocabulary that the ids are checked against.

    Special ids are no events: rollouts contain them.
    """

    def __init__(self, vocab: Vocabulary) -> None:
        self.vocab = vocab
        self._guard = Guard(vocab, allow_special=True, max_length=None, mid_text=True)
        # By group and name: rollouts, those with events, ids, drifted ids, events.
        self._counts: defaultdict[tuple[str, Any], np.ndarray] = defaultdict(
            lambda: np.zeros(5, np.int64)
        )
        self._sequences = self._changed = 0
        self._first_rows: list[int] = []
        self.by_prompt: dict[bytes | int, tuple[int, int]] = {}

    def add(self, rows: IdSequences) -> Verdicts:
        """Check sequences of sampled ids, each a rollout, and return their verdicts.

        Args:
            rows: a Ragged, or an iterable of id sequences.

        Raises RobustokError, and adds nothing, for rows that are no id sequences.
        """
        given, offsets = flatten(rows, None)
        ids = np.split(given, offsets[1:-1]) if len(offsets) > 1 else []
        return self._add([Rollout([(row, [Part(0, len(row), "completion", True)])]) for row in ids])

    def add_rollouts(self, rollouts: Iterable[Rollout]) -> None:
        """Check rollouts as :func:`read_rollouts` gives them.

        Args:
            rollouts: id sequences with their parts.
        """
        batch: list[Rollout] = []
        size = 0
        for rollout in rollouts:
            batch.append(rollout)
            size += sum(len(ids) for ids, _ in rollout.sequences)
            if len(batch) >= _ROLLOUTS or size >= _IDS:
                self._add(batch)
                batch, size = [], 0
        self._add(batch)

    def _add(self, rollouts: Sequence[Rollout]) -> Verdicts:
        """Check a batch of rollouts; the verdicts of all sequences."""
        sequences = [sequence for rollout in rollouts for sequence in rollout.sequences]
        verdicts = self._guard.check_batch([ids for ids, _ in sequences])
        self._sequences += len(verdicts)
        self._changed += int((~verdicts.round_trip).sum())
        events = list(self._events(verdicts))
        drifted = np.concatenate([[0], np.cumsum(verdicts.marks != MATCHES)])
        at_event, number = 0, 0
        for rollout in rollouts:
            begin = int(verdicts.offsets[number])
            number += len(rollout.sequences)
            end, first = int(verdicts.offsets[number]), at_event
            while at_event < len(events) and events[at_event].begin < end:
                at_event += 1
            own = events[first:at_event]
            self._add_rollout(rollout, begin, own, drifted)
        return verdicts

    def _events(self, verdicts: Verdicts) -> Iterator[_Event]:
        """The events of all sequences in order; an unknown id inside a run is a part of the run."""
        kinds = [KINDS.index(NOT_CANONICAL), KINDS.index(UNKNOWN_ID)]
        chosen = np.flatnonzero(np.isin(verdicts.table.kind, kinds))
        last = 0
        for begin, end, a, b in zip(*(c[chosen].tolist() for c in verdicts.table[1:]), strict=True):
            if begin >= last:
                ids = tuple(verdicts.given[begin:end].tolist())
                canonical = tuple(verdicts.repaired.values[a:b].tolist()) if a >= 0 else ()
                yield _Event(begin, end, ids, canonical, self._kind_of(ids, canonical))
                last = end

    def _kind_of(self, ids: tuple[int, ...], canonical: tuple[int, ...]) -> str:
        if not all(0 <= i < self.vocab.size for i in ids):
            return "id outside"
        if not all(_is_whole(self.vocab.tokens[i]) for i in ids):
            return "byte fragment"
        if len(ids) == len(canonical):
            return "boundary"
        return "split" if len(ids) > len(canonical) else "merge"

    def _add_rollout(
        self, rollout: Rollout, begin: int, events: list[_Event], drifted: np.ndarray
    ) -> None:
        """Count the ids of a rollout from ``begin`` in the batch, and its events.

        ``drifted``: how many ids of the batch before each one drifted.
        """
        number = int(self._counts["all", ""][0])
        if events:
            self._first_rows += [number][: _FIRST_ROWS - len(self._first_rows)]
        key = number if rollout.prompt is None else rollout.prompt
        before = self.by_prompt.get(key, (0, 0))
        self.by_prompt[key] = (before[0] + bool(events), before[1] + 1)
        spans: list[tuple[tuple[str, Any], int, int]] = []
        sampled = 0
        for ids, parts in rollout.sequences:
            spans.append((("all", ""), begin, begin + len(ids)))
            for part in parts:
                first, last = begin + part.begin, begin + part.end
                spans.append((("role", part.role), first, last))
                for size in FIRST if part.is_sampled else ():
                    if sampled < size:
                        end = min(last, first + size - sampled)
                        spans.append((("first", f"{size:,}"), first, end))
                sampled += (last - first) * part.is_sampled
            begin += len(ids)
        totals: dict[tuple[str, Any], np.ndarray] = {("all", ""): np.zeros(3, np.int64)}
        starts = np.array([event.begin for event in events])
        for name, first, last in spans:
            inside = int(((starts >= first) & (starts < last)).sum()) if events else 0
            counts = last - first, int(drifted[last] - drifted[first]), inside
            totals[name] = totals.get(name, 0) + np.array(counts)
        for name, size in _names(events):
            totals[name] = totals.get(name, 0) + np.array([size, size, 1])
        for name, (size, off, count) in totals.items():
            self._counts[name] += (1, count > 0, size, off, count)
        if len(self._counts) > _MOST_EXCHANGES:
            kept = sorted(self._counts.items(), key=_order)[: _MOST_EXCHANGES // 2]
            self._counts = defaultdict(self._counts.default_factory, kept)

    def report(self, top: int = 10) -> Drift:
        """All that was added, with the ``top`` most frequent exchanges."""
        rows, drifted_rows, *_ = self._counts["all", ""].tolist()
        parts: list[DriftPart] = []
        for (group, name), counts in sorted(self._counts.items(), key=_order):
            of, *others = counts.tolist()
            if group == "exchange":
                if not top:
                    break
                top -= 1
                name = " for ".join(spelled(self.vocab, ids) for ids in name)
            of = rows if group in ("kind", "exchange") else of
            parts.append(DriftPart(group, name, of, *others))
        return Drift(
            rows,
            drifted_rows,
            self._sequences,
            self._changed,
            tuple(parts),
            tuple(self._first_rows),
        )


class _Event(NamedTuple):
    """A run of ids that drifted, from ``begin`` to ``end`` in the batch."""

    begin: int
    end: int
    ids: tuple[int, ...]
    canonical: tuple[int, ...]
    kind: str


def _names(events: Iterable[_Event]) -> Iterator[tuple[tuple[str, Any], int]]:
    """The groups and names of events, each with the number of ids of its event."""
    for event in events:
        size = event.end - event.begin
        yield ("kind", event.kind), size
        if size + len(event.canonical) <= _LONGEST_EXCHANGE:
            yield ("exchange", (event.ids, event.canonical)), size


def _order(entry: tuple[tuple[str, Any], np.ndarray]) -> tuple[int, int, str]:
    """Where a part stands in the table: the first ids by their number, others by their events."""
    (group, name), counts = entry
    size = int(name.replace(",", "")) if group == "first" else -int(counts[4])
    last = "" if group == "exchange" else name  # of equally frequent ones the first that was seen
    return ("all", "first", "role", "kind", "exchange").index(group), size, last


def _is_whole(token: bytes) -> bool:
    """Whether a token consists of whole characters."""
    return all(is_valid for *_, is_valid in split_at_broken(token))
