"""Reads id sequences from files: a column of Parquet, or JSON Lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from robustok.errors import RobustokError, nearest
from robustok.files import json_lines_and_shares
from robustok.ragged import Ragged

ROWS = 4096  # sequences in a batch


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
    if path.suffix == ".parquet":
        yield from _parquet(path, column)
    elif ".jsonl" in path.name or ".ndjson" in path.name:
        yield from _json_lines(path, column)
    else:
        raise RobustokError(f"{path}: sequences are read from .parquet or .jsonl (also .gz, .xz)")


def _parquet(path: Path, column: str | None) -> Iterator[tuple[Ragged, float]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as e:
        raise RobustokError(f"{path}: not a Parquet file ({str(e).splitlines()[0]})") from e
    with file:
        schema = file.schema_arrow
        name = _chosen(path, column, [f.name for f in schema if holds_ids(f.type)])
        done = 0
        for batch in file.iter_batches(ROWS, columns=[name]):
            done += len(batch)
            rows = batch.column(0)
            if rows.null_count or rows.flatten().null_count:
                raise RobustokError(f"{path}: column '{name}' has nulls: drop those rows first")
            offsets = rows.offsets.to_numpy().astype(np.int64)
            values = rows.flatten().to_numpy(zero_copy_only=False)
            yield Ragged(_in_32_bits(values), offsets - offsets[0]), done / file.metadata.num_rows


def holds_ids(kind: Any) -> bool:
    """Whether an Arrow type is a list of integers."""
    import pyarrow as pa

    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return lists and pa.types.is_integer(kind.value_type)


def _json_lines(path: Path, column: str | None) -> Iterator[tuple[Ragged, float]]:
    rows: list[np.ndarray] = []
    for number, value, share in json_lines_and_shares(path):
        if isinstance(value, dict):
            column = _chosen(path, column, value if column else _lists(value))
            value = value.get(column)
        try:
            rows.append(_ids(value))
        except (ValueError, TypeError) as error:
            raise RobustokError(f"{path}, line {number}: {str(error).splitlines()[0]}") from error
        if len(rows) == ROWS:
            yield Ragged.from_rows(rows), share
            rows = []
    if rows:
        yield Ragged.from_rows(rows), 1.0


def _lists(row: dict[str, Any]) -> list[str]:
    return [
        name for name, value in row.items()
        if isinstance(value, list) and all(isinstance(i, int) for i in value)
    ]  # fmt: skip


def _ids(value: Any) -> np.ndarray:
    ids = np.asarray(value)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iuO"):
        raise TypeError(f"expected a list of token ids, got {str(value)[:60]}")
    if ids.dtype.kind == "O" and not all(isinstance(i, int) for i in ids.tolist()):
        raise TypeError(f"expected a list of token ids, got {str(value)[:60]}")
    return _in_32_bits(ids) if ids.size else np.empty(0, np.int32)


def _in_32_bits(values: np.ndarray) -> np.ndarray:
    return np.where((values >= 0) & (values < 1 << 31), values, -1).astype(np.int32)


def _chosen(path: Path, column: str | None, names: Any) -> str:
    if column is not None:
        if column not in names:
            raise RobustokError(f"{path}: no column of ids '{column}': {nearest(column, names)}")
        return column
    candidates = list(names)
    if len(candidates) != 1:
        several = f"several columns of ids ({', '.join(candidates)})"
        raise RobustokError(
            f"{path} has {several if candidates else 'no column of ids'}: name one with --column"
        )
    return candidates[0]
