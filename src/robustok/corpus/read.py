"""A chunk as a stream of small tables of documents, and what cannot be read beside them."""

from __future__ import annotations

import json
import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from robustok.corpus.sources import Chunk, Source, open_stream, parquet_file
from robustok.errors import RobustokError

COLUMNS = ("text", "input_ids", "ids")  # taken if no other is named, the first that is there
_DAMAGE = (EOFError, zlib.error, lzma.LZMAError, pa.ArrowInvalid)
_IDS = pa.list_(pa.int32())


@dataclass(frozen=True)
class Column:
    """The field that holds the documents, and whether these are ``text`` or canonical ``ids``."""

    name: str
    kind: str


@dataclass(frozen=True)
class Reject:
    """A row that was set aside: where it was, why, and what it held.

    ``position`` is the byte at which its line starts (of the decompressed file), or its row number
    in a Parquet file.
    """

    position: int
    reason: str
    row: Any = None


@dataclass(frozen=True)
class Batch:
    """Documents that are worked on together: one row each, of the field and of ``id``.

    ``read`` is how many bytes of the file have been read since the chunk's start.
    """

    table: pa.Table
    positions: np.ndarray
    rejects: Sequence[Reject]
    read: int


def find_column(sources: Sequence[Source], name: str | None) -> Column:
    """The documents' field, by its name or, without one, the first of text, input_ids and ids.

    Its kind is told by the first row that has it, and by a Parquet file's schema. Raises
    RobustokError where no file has it.
    """
    wanted = COLUMNS if name is None else (name,)
    seen: dict[str, None] = {}
    for source in sources:
        if source.format == "text":
            return Column("text", "text")
        for row in _first_rows(source):
            for column in wanted:
                if (kind := _kind(row.get(column))) is not None:
                    return Column(column, kind)
            seen |= dict.fromkeys(row)
    called = " or ".join(map(repr, wanted))
    has = f"there are {', '.join(map(repr, seen))}" if seen else "there is no row at all"
    raise RobustokError(
        f"no field {called} with a text or a list of ids in {sources[0].path}"
        f"{' and the other files' if len(sources) > 1 else ''}: {has}; name it with --column"
    )


def read_chunk(chunk: Chunk, column: Column, size: int) -> Iterator[Batch]:
    """The documents of a chunk in batches of about ``size`` bytes of text (or of ids).

    What comes out depends on the chunk's bytes and on ``size`` only. A file whose compression or
    pages are damaged ends there, with the damage as its last reject.
    """
    reader = _parquet_batches if chunk.source.format == "parquet" else _line_batches
    return reader(chunk, column, size)


def _line_batches(chunk: Chunk, column: Column, size: int) -> Iterator[Batch]:
    parse = _text_of_line if chunk.source.format == "text" else _json_parser(column)
    names, values, positions, rejects, held = [], [], [], [], 0
    stream, raw = open_stream(chunk.source, chunk.start)
    with raw, stream:
        lines = _lines(chunk, stream)
        while True:
            entry = _next(lines)
            if isinstance(entry, Reject):
                rejects.append(entry)
                entry = None
            if entry is not None:
                position, line = entry
                try:
                    found = parse(line)
                except _NotThis as error:
                    rejects.append(Reject(position, str(error), _shown(line)))
                    continue
                names.append(found[0])
                values.append(found[1])
                positions.append(position)
                held += len(line)
            if entry is None or held >= size:
                read = min(raw.tell() - chunk.start, chunk.size)
                table = _table(column, values, names)
                yield Batch(table, np.array(positions, np.int64), rejects, read)
                names, values, positions, rejects, held = [], [], [], [], 0
            if entry is None:
                return


def _lines(chunk: Chunk, stream: Any) -> Iterator[tuple[int, bytes]]:
    """Position and content of each line that begins in the chunk; empty lines are no documents."""
    position = chunk.start
    if chunk.start:
        stream.seek(chunk.start - 1)
        position += len(stream.readline()) - 1
    while chunk.stop is None or position < chunk.stop:
        line = stream.readline()
        if not line:
            return
        if stripped := line.rstrip(b"\r\n"):
            yield position, stripped
        position += len(line)


def _next(lines: Iterator[Any]) -> Any:
    """The next line, None at the end, or a Reject for damage from which nothing can be read on."""
    try:
        return next(lines, None)
    except _DAMAGE as error:
        return _damage(error)
    except OSError as error:
        if error.errno is not None:  # the disk's trouble, not the file's: it may pass
            raise
        return _damage(error)
    except Exception as error:
        if type(error).__name__ != "ZstdError":
            raise
        return _damage(error)


def _damage(error: Exception) -> Reject:
    said = " ".join(str(error).split()) or type(error).__name__
    return Reject(-1, f"the file is damaged, and nothing after this can be read: {said}")


class _NotThis(Exception):
    """A row that holds no document, and why."""


def _text_of_line(line: bytes) -> tuple[None, bytes]:
    return None, line


def _json_parser(column: Column) -> Callable[[bytes], tuple[str | None, Any]]:
    convert = _text_bytes if column.kind == "text" else _id_array

    def parse(line: bytes) -> tuple[str | None, Any]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _NotThis(f"not JSON: {error}") from None
        if not isinstance(row, dict):
            raise _NotThis("not a JSON object")
        if row.get(column.name) is None:
            raise _NotThis(f"no field '{column.name}'")
        name = row.get("id")
        return None if name is None else _name(name), convert(row[column.name], column.name)

    return parse


def _name(name: Any) -> str:
    try:
        return str(name).encode("utf8").decode()
    except UnicodeEncodeError:
        raise _NotThis("its id holds a lone surrogate, which is not Unicode text") from None


def _text_bytes(value: Any, field: str) -> bytes:
    if not isinstance(value, str):
        raise _NotThis(f"field '{field}' is not a string")
    try:
        return value.encode("utf8")
    except UnicodeEncodeError as error:
        at = error.start
        raise _NotThis(
            f"the text holds a lone surrogate (U+{ord(value[at]):04X} at position {at})"
        ) from None


def _id_array(value: Any, field: str) -> np.ndarray:
    try:
        ids = np.asarray(value)
    except ValueError:
        ids = np.empty((0, 0))
    if isinstance(value, list) and not value:
        return np.empty(0, np.int32)
    if not isinstance(value, list) or ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise _NotThis(f"field '{field}' is not a list of token ids")
    if ids.min() < 0 or ids.max() > np.iinfo(np.int32).max:
        raise _NotThis(f"field '{field}' has an id that no vocabulary has")
    return ids.astype(np.int32)


def _shown(line: bytes) -> str:
    return line.decode("utf8", errors="backslashreplace")


def _table(column: Column, values: list[Any], names: list[str | None]) -> pa.Table:
    kind = pa.large_binary() if column.kind == "text" else _IDS
    return pa.table({column.name: pa.array(values, kind), "id": pa.array(names, pa.string())})


def _parquet_batches(chunk: Chunk, column: Column, size: int) -> Iterator[Batch]:
    file = parquet_file(chunk.source)
    schema = file.schema_arrow
    if column.name not in schema.names or _arrow_kind(schema.field(column.name)) != column.kind:
        raise RobustokError(
            f"{chunk.source.path}: no field '{column.name}' that holds {column.kind}, as the other "
            "files have"
        )
    groups = list(range(chunk.start, chunk.stop or 0))
    metadata = [file.metadata.row_group(i) for i in groups]
    position = sum(file.metadata.row_group(i).num_rows for i in range(chunk.start))
    count = max(sum(g.num_rows for g in metadata), 1)
    average = max(sum(g.total_byte_size for g in metadata) // count, 1)
    wanted = [column.name] + (["id"] if "id" in schema.names else [])
    batches = file.iter_batches(max(1, min(size // average, 1 << 16)), groups, wanted)
    done = 0
    while True:
        batch = _next(batches)
        if batch is None or isinstance(batch, Reject):
            rejects = [] if batch is None else [batch]
            yield Batch(_table(column, [], []), np.empty(0, np.int64), rejects, chunk.size)
            return
        table = pa.Table.from_batches([batch])
        positions = np.arange(position + done, position + done + len(table))
        done += len(table)
        read = chunk.size * done // count
        yield from _in_pieces(_named(table), positions, column, size, read)


def _in_pieces(
    table: pa.Table, positions: np.ndarray, column: Column, size: int, read: int
) -> Iterator[Batch]:
    """The rows that have a document, cut where they have grown to ``size``."""
    there = table.column(column.name).is_valid().to_numpy()
    rejects = [Reject(int(p), f"field '{column.name}' is null") for p in positions[~there]]
    table, positions = table.filter(pa.array(there)), positions[there]
    documents = table.column(column.name)
    measure, unit = ("binary_length", 1) if column.kind == "text" else ("list_value_length", 4)
    measured = unit * pc.call_function(measure, [documents]).to_numpy().astype(np.int64)
    full = np.cumsum(measured) // size
    cuts = (np.flatnonzero(np.diff(full)) + 1).tolist()
    for first, last in zip([0, *cuts], [*cuts, len(table)], strict=True):
        yield Batch(table.slice(first, last - first), positions[first:last], rejects, read)
        rejects = []


def _named(table: pa.Table) -> pa.Table:
    """The table with ``id`` as a string, or as nothing where the file has none."""
    if "id" not in table.column_names:
        return table.append_column("id", pa.nulls(len(table), pa.string()))
    at = table.column_names.index("id")
    return table.set_column(at, "id", table.column("id").cast(pa.string()))


def _first_rows(source: Source) -> list[dict[str, Any]]:
    """A row or two that tell what fields a file has."""
    if source.format == "parquet":
        schema = parquet_file(source).schema_arrow
        sample = {"text": "", "ids": [0], None: None}
        return [{field.name: sample[_arrow_kind(field)] for field in schema}]
    stream, raw = open_stream(source)
    rows = []
    with raw, stream:
        for _, line in zip(range(100), iter(lambda: _next(stream), None), strict=False):
            try:
                row = json.loads(line) if isinstance(line, bytes) else None
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                rows.append(row)
    return rows


def _arrow_kind(field: pa.Field) -> str | None:
    kind = field.type
    if any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string,
                                   pa.types.is_binary, pa.types.is_large_binary)):  # fmt: skip
        return "text"
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if (listed or pa.types.is_fixed_size_list(kind)) and pa.types.is_integer(kind.value_type):
        return "ids"
    return None


def _kind(value: Any) -> str | None:
    if isinstance(value, str):
        return "text"
    return "ids" if isinstance(value, list) and all(type(i) is int for i in value) else None
