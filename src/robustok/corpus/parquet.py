"""Documents of Parquet files, decoded in slices so that memory is bounded for small row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from robustok.corpus.sources import (
    Chunk,
    Column,
    DocumentBatch,
    InputFile,
    Reject,
    batch_schema,
    next_or_reject,
    parquet_file,
    too_long,
)
from robustok.corpus.transform import is_list
from robustok.errors import RobustokError

_ROWS = 1 << 16  # rows read at once, at most
_EXPANSION = 200  # largest factor by which a row group may grow when it is decompressed


def parquet_batches(
    chunk: Chunk, column: Column, size: int, kept: Sequence[pa.Field], limit: int
) -> Iterator[DocumentBatch]:
    """The documents of a range of rows in batches of about ``size`` bytes.

    Columns of text stay dictionary-encoded until a slice of about ``size`` bytes is decoded: a
    long value that many rows repeat is in memory once. A row of more than ``limit`` bytes is a
    reject.
    """
    source = chunk.source
    names = _wanted(source, column, kept)
    schema = parquet_file(source).schema_arrow
    texts = [field.name for field in schema if field.name in names and _is_binary(field.type)]
    file = parquet_file(source, texts)
    start, stop = chunk.start, chunk.stop or 0
    groups, rows_of_groups, rejects = _sound_groups(file.metadata, chunk, names, limit)
    decoded = sum(_decoded_size(file.metadata.row_group(i)) for i in groups)
    positions = np.concatenate([np.empty(0, np.int64), *rows_of_groups])
    average = max(decoded // max(len(positions), 1), 1)
    batches = file.iter_batches(max(1, min(size // average, _ROWS)), groups, names)
    done = 0
    # A batch that only holds rows before the chunk is decoded and skipped.
    while done < len(positions) and positions[done] < stop:
        batch = next_or_reject(batches)
        if batch is None or isinstance(batch, Reject):
            rejects += [] if batch is None else [batch]
            break
        where = positions[done : done + len(batch)]
        done += len(batch)
        first, last = np.searchsorted(where, (start, stop)).tolist()
        if first == last:
            continue
        table = pa.Table.from_batches([batch.slice(first, last - first)])
        read = chunk.size * int(where[last - 1] + 1 - start) // (stop - start)
        for part, rows, long in _slices(table, where[first:last], column.name, size, limit):
            yield DocumentBatch(_decoded(part, source, column, kept), rows, long, read)
    nothing = np.empty(0, np.int64)
    yield DocumentBatch(batch_schema(column, kept).empty_table(), nothing, rejects, chunk.size)


def _sound_groups(
    metadata: Any, chunk: Chunk, names: Sequence[str], limit: int
) -> tuple[list[int], list[np.ndarray], list[Reject]]:
    """The row groups that hold rows of a chunk, and the rows of each, int64.

    Those that expand far more than text does are left out, with a reject in the chunk of their
    first row: a page is decompressed as a whole, so its size cannot be bounded while it is read.
    """
    sound: list[int] = []
    rows: list[np.ndarray] = []
    rejects: list[Reject] = []
    first = stop = 0
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        first, stop = stop, stop + group.num_rows
        if stop <= chunk.start or first >= (chunk.stop or 0):
            continue
        columns = [group.column(c) for c in range(group.num_columns)]
        columns = [c for c in columns if c.path_in_schema.split(".")[0] in names]
        packed = sum(c.total_compressed_size for c in columns)
        size = sum(c.total_uncompressed_size for c in columns)
        if size > max(4 * limit, _EXPANSION * packed):
            reason = (
                f"row group {i} has {packed:,} bytes that expand to {size:,}, and is not read;"
                " --max-row-bytes allows larger ones"
            )
            rejects += [Reject(first, reason)] if first >= chunk.start else []
        else:
            sound.append(i)
            rows.append(np.arange(first, stop))
    return sound, rows, rejects


def _wanted(source: InputFile, column: Column, kept: Sequence[pa.Field]) -> list[str]:
    """The columns to read. Raises RobustokError where they differ from those of the other files."""
    schema = parquet_file(source).schema_arrow
    names = [column.name, "id", *(field.name for field in kept)]
    wanted = [name for name in dict.fromkeys(names) if name in schema.names]
    for name in wanted:
        if schema.names.count(name) > 1:
            raise RobustokError(f"{source.path}: two columns are named '{name}'; rename one")
    if column.name not in wanted or arrow_kind(schema.field(column.name)) != column.kind:
        raise RobustokError(
            f"{source.path}: no field '{column.name}' that holds {column.kind}, as the other "
            "files have"
        )
    if "id" in wanted and pa.types.is_nested(schema.field("id").type):
        raise RobustokError(
            f"{source.path}: the field 'id' is a {schema.field('id').type}; a document's id is a"
            " text or a number: drop or rename the field"
        )
    return wanted


def _decoded_size(group: Any) -> int:
    """Decoded bytes of a row group; run-length encoding can hide the number of values."""
    columns = [group.column(i) for i in range(group.num_columns)]
    return sum(max(c.total_uncompressed_size, 4 * c.num_values) for c in columns)


def _slices(
    table: pa.Table, positions: np.ndarray, name: str, size: int, limit: int
) -> Iterator[tuple[pa.Table, np.ndarray, list[Reject]]]:
    """The rows that have a document of at most ``limit`` bytes, cut where they sum to ``size``."""
    sizes = sum(_sizes(column) for column in table.columns)
    assert isinstance(sizes, np.ndarray)
    valid = table.column(name).is_valid().to_numpy()
    short = sizes <= limit
    rejects = [Reject(int(p), f"field '{name}' is null") for p in positions[~valid]]
    long = np.flatnonzero(valid & ~short)
    rejects += [too_long(int(positions[i]), int(sizes[i]), limit) for i in long]
    rows = np.flatnonzero(valid & short)
    full = np.cumsum(sizes[rows]) // size
    for part in np.split(rows, np.flatnonzero(np.diff(full)) + 1):
        yield table.take(pa.array(part)), positions[part], rejects
        rejects = []


def _sizes(column: pa.ChunkedArray) -> np.ndarray:
    """Bytes of each value of a column, int64."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        parts = [
            pc.call_function("take", [_lengths(c.dictionary), c.indices]) for c in column.chunks
        ]
        lengths = pa.chunked_array(parts, parts[0].type if parts else pa.int32())
    elif _is_binary(kind) or is_list(kind):
        lengths = _lengths(column)
    else:
        return np.full(len(column), 8, np.int64)
    # A null becomes nan.
    return np.nan_to_num(lengths.to_numpy()).astype(np.int64)


def _lengths(values: Any) -> Any:
    if _is_binary(values.type):
        return pc.call_function("binary_length", [values])
    return pc.call_function("multiply", [pc.call_function("list_value_length", [values]), 4])


def _decoded(
    table: pa.Table, source: InputFile, column: Column, kept: Sequence[pa.Field]
) -> pa.Table:
    """A slice in the schema of a batch: ids keep their type, missing columns are null."""
    schema = batch_schema(column, kept)
    arrays = []
    for field in schema:
        if field.name not in table.column_names:
            arrays.append(pa.nulls(len(table), field.type))
            continue
        values = table.column(field.name)
        if field.name == column.name and column.kind == "ids":
            arrays.append(values)
            continue
        try:
            if pa.types.is_dictionary(values.type):
                values = values.cast(values.type.value_type)
            arrays.append(values.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            reason = " ".join(str(error).split())
            raise RobustokError(
                f"{source.path}: the field '{field.name}' is not {field.type}: {reason}"
            ) from None
    return pa.Table.from_arrays(arrays, names=schema.names)


def arrow_kind(field: pa.Field) -> str | None:
    """What a column can hold: ``text``, ``ids`` or None."""
    kind = field.type
    if _is_binary(kind):
        return "text"
    return "ids" if is_list(kind) and pa.types.is_integer(kind.value_type) else None


def _is_binary(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string,
             pa.types.is_binary, pa.types.is_large_binary)  # fmt: skip
    return any(test(kind) for test in tests)
