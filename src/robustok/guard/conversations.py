"""Reads rollouts from a file or a folder: id sequences, or conversations with ids for each turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from robustok.errors import RobustokError, nearest
from robustok.files import json_lines
from robustok.guard.sequences import ROWS, holds_ids, read_sequences
from robustok.ragged import Ragged

_NAMES = ("tool", "tool_name", "name")  # keys of a turn that may name a tool
_SUFFIXES = (".parquet", ".jsonl", ".ndjson")


class RolloutBatch(NamedTuple):
    """Some sequences of a file.

    ``turns`` (the number of the turn in its conversation) and ``roles`` have one entry for each
    row, and are None where the file has bare sequences. ``share`` of the file is read.
    """

    rows: Ragged
    turns: list[int] | None
    roles: list[str] | None
    share: float


def rollout_files(path: Path) -> list[Path]:
    """The file itself, or the files of rollouts in a folder and its subfolders, by name.

    >>> _ = Path("step-1.jsonl").write_text('{"input_ids": [276, 275]}')
    >>> [file.name for file in rollout_files(Path("step-1.jsonl"))]
    ['step-1.jsonl']

    Args:
        path: a file, or a folder with .parquet, .jsonl or .ndjson (the last two also .gz and .xz).

    Raises RobustokError for a folder without such a file.
    """
    if not path.is_dir():
        return [path]
    files = sorted(
        file for file in path.rglob("*")
        if file.is_file() and any(suffix in _SUFFIXES for suffix in file.suffixes[-2:])
    )  # fmt: skip
    if not files:
        raise RobustokError(f"{path} has no rollouts: expected .parquet or .jsonl (also .gz, .xz)")
    return files


def read_rollouts(path: Path, column: str | None = None) -> Iterator[RolloutBatch]:
    """The sequences of a file in batches; for conversations, the ids of every turn that has ids.

    >>> turn = '{"role": "tool", "name": "search", "ids": [276, 275]}'
    >>> _ = Path("rollouts.jsonl").write_text('{"turns": [%s]}' % turn)
    >>> [(b.rows[0].tolist(), b.turns, b.roles) for b in read_rollouts(Path("rollouts.jsonl"))]
    [([276, 275], [0], ['tool:search'])]

    Args:
        path: Parquet or JSON Lines. A conversation is a list of turns, objects with ``role``,
            integers in one list, and for a tool its name (``tool``, ``tool_name`` or ``name``).
            Every other file is read as :func:`read_sequences` does.
        column: the column of ids, or of conversations, where there are several.

    Turns without ids are counted and not read. Raises RobustokError as :func:`read_sequences` does.
    """
    name = _conversation_column(path, column)
    if name is None:
        for batch, share in read_sequences(path, column):
            yield RolloutBatch(batch, None, None, share)
        return
    rows: list[np.ndarray] = []
    turns: list[int] = []
    roles: list[str] = []
    for label, conversation, share in _conversations(path, name):
        for number, turn in enumerate(conversation):
            ids = _turn_ids(turn, f"{label}, turn {number}")
            if ids is not None:
                rows.append(ids)
                turns.append(number)
                roles.append(_role(turn))
        if len(rows) >= ROWS:
            yield RolloutBatch(Ragged.from_rows(rows), turns, roles, share)
            rows, turns, roles = [], [], []
    if rows:
        yield RolloutBatch(Ragged.from_rows(rows), turns, roles, 1.0)


def _conversation_column(path: Path, column: str | None) -> str | None:
    """The column of conversations; None where the file has bare sequences."""
    if path.suffix == ".parquet" and path.is_file():
        names = _parquet_conversations(path)
    elif path.is_file() and any(suffix in _SUFFIXES for suffix in path.suffixes[-2:]):
        first = next(json_lines(path), (0, None))[1]
        row = first if isinstance(first, dict) else {}
        names = [key for key, value in row.items() if _is_conversation(value)]
    else:
        return None  # the reader of sequences has the message
    if column is not None:
        return column if column in names else None
    if len(names) > 1:
        raise RobustokError(
            f"{path} has several columns of conversations ({', '.join(names)}): name one with "
            "--column"
        )
    return names[0] if names else None


def _is_conversation(value: Any) -> bool:
    turns = isinstance(value, list) and value and all(isinstance(turn, dict) for turn in value)
    return bool(turns) and any(_id_keys(turn) for turn in value)


def _id_keys(turn: dict[str, Any]) -> list[str]:
    return [
        key for key, value in turn.items()
        if isinstance(value, list) and value and all(type(i) is int for i in value)
    ]  # fmt: skip


def _parquet_conversations(path: Path) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (pa.ArrowInvalid, OSError):
        return []
    names = []
    for field in schema:
        kind = field.type
        lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        if lists and pa.types.is_struct(kind.value_type) and any(map(holds_ids, _types(kind))):
            names.append(field.name)
    return names


def _types(kind: Any) -> list[Any]:
    """The types of the fields of a list of structs."""
    return [kind.value_type.field(i).type for i in range(kind.value_type.num_fields)]


def _conversations(path: Path, name: str) -> Iterator[tuple[str, list[Any], float]]:
    """(where, turns, share of the file read) of each conversation."""
    if path.suffix != ".parquet":
        for number, row in json_lines(path):
            turns = row.get(name) if isinstance(row, dict) else None
            if not isinstance(turns, list):
                known = row if isinstance(row, dict) else {}
                raise RobustokError(
                    f"{path}, line {number}: no conversation in '{name}': {nearest(name, known)}"
                )
            yield f"{path}, line {number}", turns, 0.0
        return
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        done = 0
        for batch in file.iter_batches(256, columns=[name]):
            for turns in batch.column(0).to_pylist():
                done += 1
                yield f"{path}, row {done - 1}", turns or [], done / file.metadata.num_rows


def _turn_ids(turn: Any, label: str) -> np.ndarray | None:
    """The ids of a turn, int32; None where it has none. An id that does not fit becomes -1."""
    if not isinstance(turn, dict):
        raise RobustokError(f"{label}: expected an object with a role and ids")
    keys = _id_keys(turn)
    if len(keys) > 1:
        raise RobustokError(
            f"{label} has several lists of integers ({', '.join(keys)}): keep the ids only"
        )
    if not keys:
        return None
    return np.array([i if 0 <= i < 1 << 31 else -1 for i in turn[keys[0]]], np.int32)


def _role(turn: dict[str, Any]) -> str:
    role = str(turn.get("role") or "no role")
    name = next((turn[key] for key in _NAMES if turn.get(key)), None)
    return f"{role}:{name}" if name else role
