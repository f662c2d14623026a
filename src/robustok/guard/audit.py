"""Measures the drift of id sequences from the encoding of their text, over a data set.

The sequences come from files, Parquet or JSON Lines: bare ones, or conversations with ids for each
turn. The values of the first row that has ids say which column holds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from robustok.checks import check_list, shown
from robustok.errors import RobustokError, nearest
from robustok.guard.check import Guard
from robustok.guard.findings import (
    KINDS,
    MATCHES,
    NOT_CANONICAL,
    NOT_UTF8,
    SPECIAL_TEXT,
    TEXT_CHANGES,
    UNKNOWN,
    Verdicts,
    spelled,
)
from robustok.ragged import Ragged
from robustok.runtime.files import JsonObject
from robustok.runtime.inputs import find_inputs, json_lines_and_shares, kind_of
from robustok.tokenizer.vocabulary import Vocabulary

_TOTALS = ("rows", "drifted_rows", "changed_rows", "ids", "drifted", "splits", "unknown")
_FIRST_BIN = 16  # positions; each further bin is as wide as all bins before it
_MOST_HELD = 1 << 27  # bytes of different exchanges
_EXCHANGE = 256  # bytes that one takes besides its ids
_FIRST_ROWS = 10  # drifted rows that a report names
ROWS = 4096  # sequences in a batch
_PARQUET_ROWS = 256  # read at a time
_TOOL_NAMES = ("tool", "tool_name", "name")  # keys of a turn that may name a tool


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
        exchanges: runs of ids and the canonical ids of the same text, the most frequent first. Of
            about 400,000 different ones the rarer half is forgotten, so that the number of times of
            a rare one can be too small.
        first_rows: numbers of the first ten drifted rows.
        by_turn: totals by the number of the turn, where the rows were given one.
        by_role: totals by the role, where the rows were given one, most drifted ids first.
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

    Special ids are no findings: rollouts contain them.
    """

    def __init__(self, vocab: Vocabulary) -> None:
        self.vocab = vocab
        self._guard = Guard(vocab, allow_special=True, max_length=None)
        self._totals: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        self._seen = np.zeros((2, vocab.size), np.int64)
        self._at = np.zeros((2, 64), np.int64)
        self._exchanges: Counter[tuple[bytes, bytes]] = Counter()  # of ids and canonical ids, int64
        self._held = 0  # bytes of them
        self._first_rows: list[int] = []
        self._turns: dict[Any, np.ndarray] = {}
        self._roles: dict[Any, np.ndarray] = {}

    def add(
        self,
        rows: Ragged | Iterable[Any],
        turns: Sequence[int] | np.ndarray | None = None,
        roles: Sequence[str] | None = None,
    ) -> Verdicts:
        """Check some rows, add their drift to the totals, and return their verdicts.

        Args:
            rows: a Ragged, or an iterable of id sequences.
            turns: the number of the turn of each row, if the rows are turns of conversations.
            roles: the role of each row, such as ``assistant`` or ``tool:search``.

        Raises RobustokError, and adds nothing, for rows that are no id sequences and for turns or
        roles that are not one for each row.
        """
        verdicts = self._guard.check_batch(rows)
        turns = _names("turns", turns, (int, np.integer), len(verdicts))
        roles = _names("roles", roles, str, len(verdicts))
        off, unknown = verdicts.marks != MATCHES, verdicts.marks == UNKNOWN
        self._totals.update(
            rows=0,
            drifted_rows=int((~verdicts.canonical).sum()),
            changed_rows=int((~verdicts.round_trip).sum()),
            ids=len(off),
            drifted=int(off.sum()),
            splits=int(verdicts.splits.sum()),
            unknown=int(unknown.sum()),
        )
        for seen, which in ((self._seen[0], ~unknown), (self._seen[1], off & ~unknown)):
            seen += np.bincount(verdicts.given[which], minlength=self.vocab.size)
        position = np.arange(len(off)) - np.repeat(verdicts.offsets[:-1], np.diff(verdicts.offsets))
        bins = np.ceil(np.log2((position + 1) / _FIRST_BIN)).clip(0).astype(np.int64)
        for at, which in ((self._at[0], slice(None)), (self._at[1], off)):
            at += np.bincount(bins[which], minlength=64)
        self._add_groups(verdicts, turns, roles)
        for kind in (NOT_UTF8, SPECIAL_TEXT, TEXT_CHANGES):
            self._kinds[kind] += int(verdicts.has(kind).sum())
        drifted = self._totals["rows"] + np.flatnonzero(~verdicts.canonical)
        self._first_rows += drifted[: _FIRST_ROWS - len(self._first_rows)].tolist()
        self._add_exchanges(verdicts)
        self._totals["rows"] += len(verdicts)
        return verdicts

    def _add_exchanges(self, verdicts: Verdicts) -> None:
        """Count the runs that are not canonical, and forget the rarest where they are too many."""
        kind, *spans = verdicts.table
        runs = np.flatnonzero(kind == KINDS.index(NOT_CANONICAL))
        if not len(runs):
            return
        given, repaired = (
            ids.astype(np.int64).tobytes() for ids in (verdicts.given, verdicts.repaired.values)
        )
        for a, b, c, d in zip(*((8 * span[runs]).tolist() for span in spans), strict=True):
            exchange = given[a:b], repaired[c:d]
            self._exchanges[exchange] += 1
            if self._exchanges[exchange] == 1:
                self._held += _size_of(exchange)
                if self._held > _MOST_HELD:
                    self._forget_rare()

    def _forget_rare(self) -> None:
        """Keep the exchanges that are the most frequent, up to half of the bytes."""
        ordered = self._exchanges.most_common()
        held = np.cumsum([_size_of(exchange) for exchange, _ in ordered])
        kept = int(np.searchsorted(held, _MOST_HELD // 2))
        self._exchanges = Counter(dict(ordered[:kept]))
        self._held = int(held[kept - 1]) if kept else 0

    def _add_groups(
        self, verdicts: Verdicts, turns: list[Any] | None, roles: list[Any] | None
    ) -> None:
        off = np.concatenate([[0], np.cumsum(verdicts.marks != MATCHES)])
        ids, drifted = np.diff(verdicts.offsets), np.diff(off[verdicts.offsets])
        rows = np.ones(len(verdicts), np.int64)
        counts = np.stack([rows, ~verdicts.canonical, ids, drifted], axis=1)
        for totals, names in ((self._turns, turns), (self._roles, roles)):
            if names is not None:
                for name, count in zip(names, counts, strict=True):
                    totals[name] = totals.get(name, 0) + count

    def report(self, top: int = 20) -> Drift:
        """All that was added, with the ``top`` tokens and exchanges that drifted most often."""
        most = np.argsort(-self._seen[1], kind="stable")[:top]
        used = np.flatnonzero(self._at[0])
        return Drift(
            **{name: self._totals[name] for name in _TOTALS},
            kinds=dict(+self._kinds),
            by_position=tuple(
                PositionDrift(_bin_start(b), _bin_start(b + 1), *map(int, self._at[:, b]))
                for b in used.tolist()
            ),
            by_token=tuple(
                TokenDrift(i, spelled(self.vocab, [i]), *map(int, self._seen[:, i]))
                for i in most.tolist()
                if self._seen[1, i]
            ),
            exchanges=tuple(
                self._exchange(exchange, times)
                for exchange, times in self._exchanges.most_common(top)
            ),
            first_rows=tuple(self._first_rows),
            by_turn=tuple(
                GroupDrift(str(turn), *map(int, count))
                for turn, count in sorted(self._turns.items())
            ),
            by_role=tuple(
                GroupDrift(role, *map(int, count))
                for role, count in sorted(self._roles.items(), key=lambda e: (-e[1][3], e[0]))
            ),
        )

    def _exchange(self, exchange: tuple[bytes, bytes], times: int) -> Exchange:
        ids, canonical = (tuple(np.frombuffer(x, np.int64).tolist()) for x in exchange)
        given, becomes = spelled(self.vocab, ids), spelled(self.vocab, canonical)
        return Exchange(ids, canonical, given, becomes, times)


def _names(what: str, names: object, kind: Any, rows: int) -> list[Any] | None:
    """One name of this kind for each row; None: the rows have none."""
    if names is None:
        return None
    listed = check_list(what, names)
    if len(listed) != rows:
        raise RobustokError(f"{len(listed)} {what} for {rows} rows: give one for each row")
    for name in listed:
        if not isinstance(name, kind):
            raise RobustokError(
                f"{what}: give numbers of turns and names of roles, not {shown(name)}"
            )
    return listed


def _size_of(exchange: tuple[bytes, bytes]) -> int:
    return sum(map(len, exchange)) + _EXCHANGE


def _bin_start(number: int) -> int:
    return _FIRST_BIN << number - 1 if number else 0


_Sequence = tuple[np.ndarray, int | None, str | None]  # ids int32, turn and role where known


class RolloutBatch(NamedTuple):
    """Some sequences of a file.

    ``turns`` (the number of the turn in its conversation) and ``roles`` have one entry for each
    row, and are None where the file has bare sequences. ``share`` of the file is read.
    """

    rows: Ragged
    turns: list[int] | None
    roles: list[str] | None
    share: float

    @classmethod
    def of(cls, sequences: list[_Sequence], share: float) -> RolloutBatch:
        """Some sequences, at least one: turns of conversations, or all bare."""
        ids, turns, roles = map(list, zip(*sequences, strict=True))
        rows = Ragged.from_rows(ids)
        return cls(rows, *((None, None) if turns[0] is None else (turns, roles)), share)


def read_rollouts(path: Path, column: str | None = None) -> Iterator[RolloutBatch]:
    """The sequences of a file in batches; for conversations, the ids of every turn that has ids.

    >>> turn = '{"role": "tool", "name": "search", "ids": [276, 275]}'
    >>> _ = Path("rollouts.jsonl").write_text('{"turns": [%s]}' % turn)
    >>> [(b.rows[0].tolist(), b.turns, b.roles) for b in read_rollouts(Path("rollouts.jsonl"))]
    [([276, 275], [0], ['tool:search'])]

    Args:
        path: a Parquet or JSON Lines file, as :func:`find_inputs` finds them, of objects with a
            column of ids or conversations, or of bare lists. A conversation is a list of turns,
            objects with ``role``, integers in one list, and for a tool its name (``tool``,
            ``tool_name`` or ``name``).
        column: the column of ids, or of conversations; by default the only one.

    Turns without ids are counted and not read. An id outside int32 becomes -1. Raises RobustokError
    for anything that is not a sequence of ids.
    """
    find_inputs(path)
    name, is_conversation = _column_of(path, column)
    sequences: list[_Sequence] = []
    for label, row, share in _rows(path, name):
        value = row.get(name) if name is not None and isinstance(row, dict) else row
        if not is_conversation:
            sequences.append((_ids(value, label), None, None))
        elif _is_list(value):
            sequences += _turns(value, label)
        else:
            raise RobustokError(f"{label}: no conversation in '{name}'")
        if len(sequences) >= ROWS:
            yield RolloutBatch.of(sequences, share)
            sequences = []
    if sequences:
        yield RolloutBatch.of(sequences, 1.0)


def _column_of(path: Path, column: str | None) -> tuple[str | None, bool]:
    """The given column of a file or its only one, and whether it holds conversations.

    None where the first row with ids is a bare list.
    """
    row = None
    for _, one, _ in _rows(path):
        row = one if row is None or _has_ids(one) else row
        if _has_ids(one):
            break
    if not isinstance(row, dict):
        return None, False
    if column is not None and column not in row:
        raise RobustokError(f"{path}: no column of ids '{column}': {nearest(column, row)}")
    conversations = [key for key, value in row.items() if _is_conversation(value)]
    names = [column] if column else conversations or id_columns(row)
    if len(names) != 1:
        several = f"several columns of ids ({', '.join(names)})" if names else "no column of ids"
        raise RobustokError(f"{path} has {several}: name one as column")
    return names[0], names[0] in conversations


def _rows(path: Path, column: str | None = None) -> Iterator[tuple[str, Any, float]]:
    """The rows of a file: the name of each in an error, its value, and the share of the file read.

    Of Parquet only its lists, or ``column`` alone; they are arrays, also within others.
    """
    if kind_of(path) != ("parquet", ""):
        for number, value, share in json_lines_and_shares(path):
            yield f"{path}, line {number}", value, share
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as e:
        raise RobustokError(f"{path}: not a Parquet file ({str(e).splitlines()[0]})") from e
    with file:
        lists = [field.name for field in file.schema_arrow if pa.types.is_nested(field.type)]
        names = [column] if column in lists else lists
        if not names:
            raise RobustokError(f"{path} has no column of ids")
        number, batches = 0, file.iter_batches(_PARQUET_ROWS, columns=names)
        while True:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError) as e:
                reason = str(e).splitlines()[0]
                raise RobustokError(f"{path}: damaged after {number} rows ({reason})") from e
            if batch is None:
                return
            columns = [values.to_numpy(zero_copy_only=False) for values in batch.columns]
            for values in zip(*columns, strict=True):
                row = dict(zip(batch.schema.names, values, strict=True))
                number += 1
                yield f"{path}, row {number - 1}", row, number / file.metadata.num_rows


def id_columns(row: JsonObject) -> list[str]:
    """The fields of an object that hold lists of integers; empty lists only if no other does.

    >>> id_columns({"prompt_token_ids": [276, 275], "stop": [], "text": "hello world"})
    ['prompt_token_ids']
    """
    lists = [key for key, value in row.items() if _is_ids(value)]
    return [key for key in lists if len(row[key])] or lists


def _is_list(value: object) -> TypeGuard[list[Any] | np.ndarray]:
    return isinstance(value, (list, np.ndarray))


def _is_ids(value: object) -> TypeGuard[list[int] | np.ndarray]:
    """Whether a value is a list of integers, which may be empty."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "iu"
    return isinstance(value, list) and set(map(type, value)) <= {int}


def _ids(value: object, label: str) -> np.ndarray:
    """A list of integers as int32 [n], -1 in place of those that do not fit.

    ``label`` begins the message of an error.
    """
    if not _is_ids(value):
        raise RobustokError(f"{label}: expected a list of token ids, got {str(value)[:60]}")
    ids = np.asarray(value) if len(value) else np.empty(0, np.int64)  # of any type that holds all
    return np.where((ids >= 0) & (ids < 1 << 31), ids, -1).astype(np.int32)


def _is_conversation(value: object) -> bool:
    if not _is_list(value) or not all(isinstance(turn, dict) for turn in value):
        return False
    return any(_turn_columns(turn) for turn in value)


def _has_ids(row: object) -> bool:
    is_object = isinstance(row, dict)
    return not is_object or bool(_turn_columns(row)) or any(map(_is_conversation, row.values()))


def _turn_columns(turn: JsonObject) -> list[str]:
    return [key for key in id_columns(turn) if len(turn[key])]


def _turns(conversation: Iterable[object], label: str) -> list[_Sequence]:
    """The turns that have ids."""
    sequences: list[_Sequence] = []
    for number, turn in enumerate(conversation):
        if not isinstance(turn, dict):
            raise RobustokError(f"{label}, turn {number}: expected an object with a role and ids")
        names = _turn_columns(turn)
        if len(names) > 1:
            raise RobustokError(
                f"{label}, turn {number} has several lists of integers ({', '.join(names)}): keep "
                "the ids only"
            )
        sequences += [(_ids(turn[name], label), number, _role(turn)) for name in names]
    return sequences


def _role(turn: JsonObject) -> str:
    role = str(turn.get("role") or "no role")
    name = next((turn[key] for key in _TOOL_NAMES if turn.get(key)), None)
    return f"{role}:{name}" if name else role
