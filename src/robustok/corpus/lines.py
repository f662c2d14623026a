"""Documents of JSON Lines and text files, read with a bound on the memory of a line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa

from robustok.corpus.rows import (
    Batch,
    Column,
    Reject,
    batch_schema,
    next_or_reject,
    too_long,
)
from robustok.corpus.sources import Chunk, open_stream

_SKIP = 1 << 20  # bytes read at once of a skipped line
_INT64 = np.iinfo(np.int64)

Entry = tuple[int, bytes]  # position and content of a line
Fields = list[Any]  # of a document: its content, its id, and its kept values


class _NoDocument(Exception):
    """A row holds no document; the message says why."""


def line_batches(
    chunk: Chunk, column: Column, size: int, kept: Sequence[pa.Field], limit: int
) -> Iterator[Batch]:
    """The documents of a chunk of lines in batches of about ``size`` bytes.

    A row of more than ``limit`` bytes is a reject, and so is damage, as the last one.
    """
    text = chunk.source.format != "jsonl"
    parse = _text_parser(kept) if text else _json_parser(column, kept)
    schema = batch_schema(column, kept)
    rows: list[Fields] = []
    positions: list[int] = []
    rejects: list[Reject] = []
    held = 0
    stream, raw = open_stream(chunk.source, chunk.start)
    with raw, stream:
        entries = _entries(chunk, stream, limit)
        while True:
            entry = next_or_reject(entries)
            if isinstance(entry, Reject):
                rejects.append(entry)
                if entry.position >= 0:
                    continue
            elif entry is not None:
                position, line = entry
                try:
                    rows.append(parse(line))
                except _NoDocument as error:
                    rejects.append(Reject(position, str(error), shown(line)))
                    continue
                positions.append(position)
                held += len(line)
            done = not isinstance(entry, tuple)
            if done or held >= size:
                read = min(raw.tell() - chunk.start, chunk.size)
                yield Batch(_table(schema, rows), np.array(positions, np.int64), rejects, read)
                rows, positions, rejects, held = [], [], [], 0
            if done:
                return


def _entries(chunk: Chunk, stream: IO[bytes], limit: int) -> Iterator[Entry | Reject]:
    if chunk.source.format == "document":
        yield from _whole(stream, limit)
    else:
        yield from _lines(chunk, stream, limit)


def _whole(stream: IO[bytes], limit: int) -> Iterator[Entry | Reject]:
    content = stream.read(limit + 1)
    if len(content) > limit:
        length = len(content)
        while block := stream.read(_SKIP):
            length += len(block)
        yield too_long(0, length, limit)
    elif content:
        yield 0, content


def _lines(chunk: Chunk, stream: IO[bytes], limit: int) -> Iterator[Entry | Reject]:
    """Each line that begins in the chunk, without empty lines."""
    position = chunk.start
    stop = float("inf") if chunk.stop is None else chunk.stop
    if chunk.start:
        stream.seek(chunk.start - 1)
        position += _skip_line(stream, chunk.size + 1) - 1
    while position < stop:
        line = stream.readline(limit + 2)  # the line end included
        if not line:
            return
        length = len(line)
        stripped = line.rstrip(b"\r\n")
        if not line.endswith(b"\n") and length == limit + 2:
            length += _skip_line(stream)
            yield too_long(position, length, limit)
        elif len(stripped) > limit:
            yield too_long(position, len(stripped), limit)
        elif stripped:
            yield position, stripped
        position += length


def _skip_line(stream: IO[bytes], most: float = float("inf")) -> int:
    """Skip the rest of a line, or at least ``most`` bytes of it, and return the skipped length."""
    length = 0
    while length < most and (part := stream.readline(_SKIP)):
        length += len(part)
        if part.endswith(b"\n"):
            break
    return length


def json_rows(chunk: Chunk, limit: int, most: int) -> Iterator[dict[str, Any]]:
    """The JSON objects among the first ``most`` lines of a file, one in memory at a time."""
    stream, raw = open_stream(chunk.source)
    with raw, stream:
        entries = _entries(chunk, stream, limit)
        for _ in range(most):
            entry = next_or_reject(entries)
            if entry is None or (isinstance(entry, Reject) and entry.position < 0):
                return
            if isinstance(entry, tuple):
                try:
                    row = json.loads(entry[1])
                except (ValueError, RecursionError):
                    continue
                if isinstance(row, dict):
                    yield row


def _table(schema: pa.Schema, rows: list[Fields]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _text_parser(kept: Sequence[pa.Field]) -> Callable[[bytes], Fields]:
    empty = [None] * (1 + sum(field.name != "text" for field in kept))
    return lambda line: [line, *empty]


def _json_parser(column: Column, kept: Sequence[pa.Field]) -> Callable[[bytes], Fields]:
    convert = _text_bytes if column.kind == "text" else _id_array
    others = [field for field in kept if field.name != column.name]

    def parse(line: bytes) -> Fields:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _NoDocument(f"not JSON: {error}") from None
        if not isinstance(row, dict):
            raise _NoDocument("not a JSON object")
        if row.get(column.name) is None:
            raise _NoDocument(f"no field '{column.name}'")
        name = row.get("id")
        return [
            convert(row[column.name], column.name),
            None if name is None else _unicode(str(name), "its id holds"),
            *(_kept_value(row.get(field.name), field) for field in others),
        ]

    return parse


def _kept_value(value: Any, field: pa.Field) -> Any:
    """A value converted to the type of its column; a string column holds other values as JSON."""
    kind = field.type
    if value is None:
        return None
    if kind == pa.string():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return _unicode(text, f"field '{field.name}' holds")
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == pa.bool_() and isinstance(value, bool):
        return value
    if kind == pa.float64() and number:
        return float(value) if abs(value) < 1e308 else float("inf") * (1 if value > 0 else -1)
    if kind == pa.int64() and number and isinstance(value, int) and in_int64(value):
        return value
    raise _NoDocument(f"field '{field.name}' is not of type {kind}, as in the first rows")


def in_int64(value: int) -> bool:
    return bool(_INT64.min <= value <= _INT64.max)


def _unicode(text: str, where: str) -> str:
    try:
        text.encode("utf8")
    except UnicodeEncodeError:
        raise _NoDocument(f"{where} a lone surrogate, which is not Unicode text") from None
    return text


def _text_bytes(value: Any, field: str) -> bytes:
    if not isinstance(value, str):
        raise _NoDocument(f"field '{field}' is not a string")
    try:
        return value.encode("utf8")
    except UnicodeEncodeError as error:
        at = error.start
        raise _NoDocument(
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
        raise _NoDocument(f"field '{field}' is not a list of token ids")
    if ids.min() < 0 or ids.max() > np.iinfo(np.int32).max:
        raise _NoDocument(f"field '{field}' has an id outside 0 to 2**31 - 1")
    return ids.astype(np.int32)


def shown(line: bytes) -> str:
    """A row as text, for a reject."""
    return line.decode("utf8", errors="backslashreplace")
