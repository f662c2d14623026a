"""Results of the readers: batches of documents, and rejects for unreadable rows."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

MAX_ROW_BYTES = 16 << 20  # of a line or row, decompressed; a longer one is a reject
_DAMAGE = (EOFError, zlib.error, lzma.LZMAError, pa.ArrowException)


@dataclass(frozen=True)
class Column:
    """The field of the documents; ``kind`` is ``text`` or ``ids`` (canonical ids)."""

    name: str
    kind: str


@dataclass(frozen=True)
class Reject:
    """A row that was set aside: its position, the reason and its content.

    ``position`` is the byte at which its line starts (of the decompressed file), or its row number
    in a Parquet file.
    """

    position: int
    reason: str
    row: Any = None


@dataclass(frozen=True)
class Batch:
    """Documents that are processed together: a table of the document, ``id`` and kept fields.

    ``read`` is the number of bytes of the file read since the start of the chunk.
    """

    table: pa.Table
    positions: np.ndarray
    rejects: Sequence[Reject]
    read: int


def next_or_reject(rows: Iterator[Any]) -> Any:
    """The next item, None at the end, or a Reject for damage after which nothing can be read."""
    try:
        return next(rows, None)
    except MemoryError:
        raise
    except _DAMAGE as error:
        return _damage(error)
    except OSError as error:
        if error.errno is not None:  # an error of the disk, not of the file: it may be temporary
            raise
        return _damage(error)
    except Exception as error:
        if type(error).__name__ != "ZstdError":
            raise
        return _damage(error)


def too_long(position: int, size: int, limit: int) -> Reject:
    """The reject for a row longer than ``limit`` bytes; its content is not kept."""
    return Reject(
        position,
        f"the row has {size:,} bytes, more than {limit:,}; --max-row-bytes allows longer ones",
    )


def empty_table(column: Column, kept: Sequence[pa.Field]) -> pa.Table:
    """The table of a batch without rows."""
    return batch_schema(column, kept).empty_table()


def batch_schema(column: Column, kept: Sequence[pa.Field]) -> pa.Schema:
    """The schema of the table of a batch. Text is binary, because it may not be valid UTF-8."""
    kind = pa.large_binary() if column.kind == "text" else pa.list_(pa.int32())
    fields = [pa.field(column.name, kind), pa.field("id", pa.string())]
    return pa.schema([*fields, *(f for f in kept if f.name != column.name)])


def _damage(error: Exception) -> Reject:
    reason = " ".join(str(error).split()) or type(error).__name__
    return Reject(-1, f"the file is damaged, and nothing after this can be read: {reason}")
