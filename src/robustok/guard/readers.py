"""Reads token ids from files: sequences, or conversations with ids for each turn.

A file is Parquet or JSON Lines. Which column holds ids or conversations is found by its type, in
JSON Lines by the values of the first row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from robustok.errors import RobustokError, nearest
from robustok.ragged import Ragged
from robustok.runtime.files import json_lines_and_shares

ROWS = 4096  # sequences in a batch
_CONVERSATIONS = 256  # read at a time from Parquet
_TOOL_NAMES = ("tool", "tool_name", "name")  # keys of a turn that may name a tool
_JSON_LINES = (".jsonl", ".ndjson")


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
        if file.is_file() and (_is_parquet(file) or _is_json_lines(file))
    )  # fmt: skip
    if not files:
        raise RobustokError(f"{path} has no rollouts: expected .parquet or .jsonl (also .gz, .xz)")
    return files


def read_sequences(path: Path, column: str | None = None) -> Iterator[tuple[Ragged, float]]:
    """The sequences of a file in batches, each with the share of the file read so far.

    >>> _ = Path("rollouts.jsonl").write_text('{"input_ids": [276, 275]}')
    >>> [(rows[0].tolist(), share) for rows, share in read_sequences(Path("rollouts.jsonl"))]
    [([276, 275], 1.0)]

    Args:
        path: a Parquet (.parquet) or JSON Lines file (.jsonl, also .gz and .xz) of objects with a
            column of ids, or of bare lists.
        column: name of the column of ids; by default the only one.

    An id outside int32 becomes -1. Raises RobustokError for anything that is not a sequence of ids.
    """
    if not path.is_file():
        raise RobustokError(f"{path}: no such file")
    if _is_parquet(path):
        yield from _parquet_sequences(path, column)
        return
    if not _is_json_lines(path):
        raise RobustokError(f"{path}: sequences are read from .parquet or .jsonl (also .gz, .xz)")
    rows: list[np.ndarray] = []
    for number, value, share in json_lines_and_shares(path):
        label = f"{path}, line {number}"
        if isinstance(value, dict):
            column = _only_column(path, column, value if column else id_columns(value))
            value = value.get(column)
        rows.append(_ids(value, label))
        if len(rows) == ROWS:
            yield Ragged.from_rows(rows), share
            rows = []
    if rows:
        yield Ragged.from_rows(rows), 1.0


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


def id_columns(row: dict[str, Any]) -> list[str]:
    """The fields of an object that hold lists of integers; empty lists only if no other does.

    >>> id_columns({"prompt_token_ids": [276, 275], "stop": [], "text": "hello world"})
    ['prompt_token_ids']
    """
    lists = {key: value for key, value in row.items() if isinstance(value, list)}
    full = [key for key, ids in lists.items() if ids and all(type(i) is int for i in ids)]
    return full or [key for key, ids in lists.items() if not ids]


# --- ids --------------------------------------------------------------------------------------


def _ids(value: Any, label: str) -> np.ndarray:
    """A list of integers as int32 [n]; ``label`` begins the message of an error."""
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        raise RobustokError(f"{label}: expected a list of token ids, got {str(value)[:60]}")
    try:
        return _in_32_bits(np.array(value, np.int64))
    except OverflowError:
        return _in_32_bits(np.array(value, object))


def _in_32_bits(ids: np.ndarray) -> np.ndarray:
    """The ids as int32; -1 in place of those that do not fit."""
    return np.where((ids >= 0) & (ids < 1 << 31), ids, -1).astype(np.int32)


def _only_column(path: Path, column: str | None, names: Iterable[str]) -> str:
    names = list(names)
    if column is not None:
        if column not in names:
            raise RobustokError(f"{path}: no column of ids '{column}': {nearest(column, names)}")
        return column
    if len(names) != 1:
        several = f"several columns of ids ({', '.join(names)})"
        raise RobustokError(
            f"{path} has {several if names else 'no column of ids'}: name one with --column"
        )
    return names[0]


def _is_json_lines(path: Path) -> bool:
    return any(suffix in _JSON_LINES for suffix in path.suffixes[-2:])


# --- conversations ----------------------------------------------------------------------------


def _conversation_column(path: Path, column: str | None) -> str | None:
    """The column of conversations; None where the file has bare sequences."""
    if not path.is_file():
        return None  # the reader of sequences has the message
    if _is_parquet(path):
        with _parquet(path) as file:
            names = _parquet_columns(file)[1]
    elif _is_json_lines(path):
        first = next(json_lines_and_shares(path), (0, None, 0.0))[1]
        row = first if isinstance(first, dict) else {}
        names = [key for key, value in row.items() if _is_conversation(value)]
    else:
        return None
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
    return bool(turns) and any(_turn_columns(turn) for turn in value)


def _turn_columns(turn: dict[str, Any]) -> list[str]:
    return [key for key in id_columns(turn) if turn[key]]


def _conversations(path: Path, name: str) -> Iterator[tuple[str, list[Any], float]]:
    """(where, turns, share of the file read) of each conversation."""
    if _is_parquet(path):
        with _parquet(path) as file:
            done, total = 0, file.metadata.num_rows
            for batch in file.iter_batches(_CONVERSATIONS, columns=[name]):
                for turns in batch.column(0).to_pylist():
                    done += 1
                    yield f"{path}, row {done - 1}", turns or [], done / total
        return
    for number, row, share in json_lines_and_shares(path):
        fields = row if isinstance(row, dict) else {}
        if not isinstance(fields.get(name), list):
            raise RobustokError(
                f"{path}, line {number}: no conversation in '{name}': {nearest(name, fields)}"
            )
        yield f"{path}, line {number}", fields[name], share


def _turn_ids(turn: Any, label: str) -> np.ndarray | None:
    """The ids of a turn, int32; None where it has none."""
    if not isinstance(turn, dict):
        raise RobustokError(f"{label}: expected an object with a role and ids")
    names = _turn_columns(turn)
    if len(names) > 1:
        raise RobustokError(
            f"{label} has several lists of integers ({', '.join(names)}): keep the ids only"
        )
    return _ids(turn[names[0]], label) if names else None


def _role(turn: dict[str, Any]) -> str:
    role = str(turn.get("role") or "no role")
    name = next((turn[key] for key in _TOOL_NAMES if turn.get(key)), None)
    return f"{role}:{name}" if name else role


# --- Parquet ----------------------------------------------------------------------------------


def _is_parquet(path: Path) -> bool:
    return path.suffix == ".parquet"


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as e:
        raise RobustokError(f"{path}: not a Parquet file ({str(e).splitlines()[0]})") from e
    with file:
        yield file


def _parquet_sequences(path: Path, column: str | None) -> Iterator[tuple[Ragged, float]]:
    with _parquet(path) as file:
        name = _only_column(path, column, _parquet_columns(file)[0])
        done = 0
        for batch in file.iter_batches(ROWS, columns=[name]):
            done += len(batch)
            rows = batch.column(0)
            if rows.null_count or rows.flatten().null_count:
                raise RobustokError(f"{path}: column '{name}' has nulls: drop those rows first")
            offsets = rows.offsets.to_numpy().astype(np.int64)
            values = rows.flatten().to_numpy(zero_copy_only=False)
            yield Ragged(_in_32_bits(values), offsets - offsets[0]), done / file.metadata.num_rows


def _parquet_columns(file: Any) -> tuple[list[str], list[str]]:
    """The columns of ids (lists of integers), and of conversations (lists of structs with ids)."""
    from pyarrow import types

    def is_list(kind: Any) -> bool:
        return types.is_list(kind) or types.is_large_list(kind)

    def holds_ids(kind: Any) -> bool:
        return is_list(kind) and types.is_integer(kind.value_type)

    def holds_turns(kind: Any) -> bool:
        if not is_list(kind) or not types.is_struct(kind.value_type):
            return False
        turn = kind.value_type
        return any(holds_ids(turn.field(i).type) for i in range(turn.num_fields))

    schema = file.schema_arrow
    return (
        [field.name for field in schema if holds_ids(field.type)],
        [field.name for field in schema if holds_turns(field.type)],
    )
