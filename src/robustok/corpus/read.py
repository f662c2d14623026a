"""Reads a chunk as a stream of small tables, and finds the fields of documents and kept values.

Memory is bounded: of JSON Lines and text by the longest line, of Parquet by the slices in which it
is decoded, for small row groups.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from robustok.corpus.sources import (
    DOCUMENT,
    IDS,
    MAX_ROW_BYTES,
    TEXT,
    Chunk,
    DamagedFile,
    DocumentBatch,
    InputFile,
    Reject,
    as_text,
    columns_of,
    cut_chunks,
    open_stream,
    parquet_file,
    row_groups,
    too_long,
    until_damage,
)
from robustok.corpus.transform import check_column, check_id_type, check_kept, is_list
from robustok.errors import RobustokError, nearest
from robustok.runtime.files import JsonObject

COLUMNS = ("text", "input_ids", "ids")  # the default: the first of these that the files have
_FIRST = 100  # lines of a file among which its fields are looked for
_SKIP = 1 << 20  # bytes read at once of a skipped line
_ROWS = 1 << 16  # rows read at once, at most
_EXPANSION = 200  # largest factor by which a row group may grow when it is decompressed
# Types whose values Arrow cannot take or measure, and what they are kept as.
_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
_BINARY = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), *_VIEWS)

Line = tuple[int, bytes]  # its position and its content
Fields = list[Any]  # of a document: its content, its id, and its kept values


def find_column(
    sources: Sequence[InputFile], name: str | None, max_row_bytes: int = MAX_ROW_BYTES
) -> pa.Field:
    """The field of the documents: the named one, or the first of text, input_ids and ids.

    Its type is `TEXT` or `IDS` (canonical ids), by the first row that has the field, or the schema
    of a Parquet file. Raises RobustokError where no file has it.
    """
    check_column(name)
    wanted = COLUMNS if name is None else (name,)
    seen: dict[str, None] = {}
    damage = ""
    for source in sources:
        if source.format in ("text", "document"):
            return DOCUMENT
        try:
            for fields in _first_fields(source, max_row_bytes):
                for column in wanted:
                    if column in fields and (kind := fields[column].document):
                        return pa.field(column, kind)
                seen |= dict.fromkeys(fields)
        except DamagedFile as error:
            damage = damage or f"{source.path}: {error}"
    if damage and not seen:
        raise RobustokError(damage)
    place = f"{sources[0].path}{' and the other files' if len(sources) > 1 else ''}"
    if not seen:
        raise RobustokError(
            f'{place}: none of the first lines is a JSON object, such as {{"text": "a document"}}'
        )
    requested = " or ".join(map(repr, wanted))
    raise RobustokError(
        f"no field {requested} with a text or a list of ids in {place}: its fields are "
        f"{', '.join(map(repr, seen))}; give its name as column"
    )


def find_kept(
    sources: Sequence[InputFile],
    names: Sequence[str] | str,
    document: pa.Field,
    max_row_bytes: int = MAX_ROW_BYTES,
) -> tuple[pa.Field, ...]:
    """The fields to keep in the output besides the drawn ids, with their types.

    ``names`` are their names, or ``"all"`` for all but the documents' own. Where all files are
    Parquet and agree, a field keeps its type, and else it is a string. Raises RobustokError for a
    field that no file has, or whose name an output column has.
    """
    if not names:
        return ()
    types: dict[str, set[pa.DataType]] = {}
    for source in sources:
        with suppress(DamagedFile):
            for fields in _first_fields(source, max_row_bytes):
                for name, field in fields.items():
                    types.setdefault(name, set()).add(field.type)
    if names == "all":
        wanted = [name for name in types if name not in (document.name, "id")]
    else:
        wanted = list(dict.fromkeys(names))
    for name in wanted:
        if name not in types:
            raise RobustokError(f"no field '{name}' to keep; {nearest(name, types)}")
    check_kept(wanted)
    has_json = any(source.format == "jsonl" for source in sources)
    return tuple(
        pa.field(name, pa.string() if has_json else _common(types[name] - {pa.null()}))
        for name in wanted
    )


def read_chunk(
    chunk: Chunk, schema: pa.Schema, size: int, max_row_bytes: int = MAX_ROW_BYTES
) -> Iterator[DocumentBatch]:
    """The documents of a chunk in batches of about ``size`` bytes of text (or of ids).

    ``schema`` is that of `batch_schema`. The result depends on the bytes of the chunk and the
    arguments only. A row of more than ``max_row_bytes`` bytes is a reject. A compressed file that
    is cut off and a Parquet file with damaged pages end there, with the damage as their last
    reject. Raises DamagedFile, also after some batches, for a file of which nothing can be trusted.
    """
    reader = _parquet_batches if chunk.source.format == "parquet" else _line_batches
    return reader(chunk, schema, size, max_row_bytes)


class _Field(NamedTuple):
    """The type of the documents that a field can hold, and the type that it is kept as."""

    document: pa.DataType | None
    type: pa.DataType


def _first_fields(source: InputFile, max_row_bytes: int) -> Iterator[dict[str, _Field]]:
    """The fields of each of the first rows of a file, or of the schema of a Parquet file."""
    if source.format == "parquet":
        yield {
            field.name: _Field(
                _arrow_type(field),
                field.type.value_type if pa.types.is_dictionary(field.type) else field.type,
            )
            for field in parquet_file(source).schema_arrow
        }
    elif source.format == "jsonl":
        for row in _first_rows(source, max_row_bytes):
            yield {name: _Field(_json_type(value), pa.string()) for name, value in row.items()}


def _first_rows(source: InputFile, max_row_bytes: int) -> Iterator[JsonObject]:
    """The JSON objects among the first lines of a file, one in memory at a time.

    Raises DamagedFile where the file is damaged before its first line ends.
    """
    (chunk,) = cut_chunks([source], source.size + 1)
    stream, raw = open_stream(source)
    with raw, stream:
        for number, entry in enumerate(islice(_entries(chunk, stream, max_row_bytes), _FIRST)):
            if isinstance(entry, Reject):
                if number == 0 and entry.position < 0:
                    raise DamagedFile(entry.reason)
            else:
                try:
                    row = json.loads(entry[1])
                except (ValueError, RecursionError):
                    continue
                if isinstance(row, dict):
                    yield row


def _common(types: set[pa.DataType]) -> pa.DataType:
    """The type of columns of these types; string where they differ or are none."""
    types = {_VIEWS.get(kind, kind) for kind in types}
    return types.pop() if len(types) == 1 else pa.string()


def _json_type(value: object) -> pa.DataType | None:
    if isinstance(value, str):
        return TEXT
    return IDS if isinstance(value, list) and set(map(type, value)) <= {int} else None


class _NoDocument(Exception):
    """A row holds no document; the message says why."""


def _line_batches(
    chunk: Chunk, schema: pa.Schema, size: int, limit: int
) -> Iterator[DocumentBatch]:
    """:func:`read_chunk` for lines; ``limit`` is the greatest number of bytes of one."""
    parse = _parser(chunk.source.format, schema)
    rows: list[Fields] = []
    positions: list[int] = []
    rejects: list[Reject] = []
    held = 0

    def batch() -> DocumentBatch:
        read = min(raw.tell() - chunk.start, chunk.size)
        return DocumentBatch(_table(schema, rows), np.array(positions, np.int64), rejects, read)

    stream, raw = open_stream(chunk.source)
    with raw, stream:
        for entry in _entries(chunk, stream, limit):
            if isinstance(entry, Reject):
                rejects.append(entry)
                continue
            position, line = entry
            held += len(line)
            try:
                rows.append(parse(line))
            except _NoDocument as error:
                rejects.append(Reject(position, str(error), as_text(line)))
            else:
                positions.append(position)
            if held >= size:
                yield batch()
                rows, positions, rejects, held = [], [], [], 0
        yield batch()


def _entries(chunk: Chunk, stream: IO[bytes], limit: int) -> Iterator[Line | Reject]:
    is_whole = chunk.source.format == "document"
    entries = _whole(stream, limit) if is_whole else _lines(chunk, stream, limit)
    return until_damage(entries, chunk.source.compression)


def _whole(stream: IO[bytes], limit: int) -> Iterator[Line | Reject]:
    content = stream.read(limit + 1)
    if len(content) > limit:
        length = len(content)
        while block := stream.read(_SKIP):
            length += len(block)
        yield too_long(0, length, limit)
    elif content:
        yield 0, content


def _lines(chunk: Chunk, stream: IO[bytes], limit: int) -> Iterator[Line | Reject]:
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


def _table(schema: pa.Schema, rows: list[Fields]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _parser(format: str, schema: pa.Schema) -> Callable[[bytes], Fields]:
    """A function from a line to the fields of its document."""
    column, _, *kept = schema.names
    if format != "jsonl":
        nothing = [None] * (1 + len(kept))
        return lambda line: [line, *nothing]
    convert = _text_bytes if schema.types[0] == TEXT else _id_array

    def parse(line: bytes) -> Fields:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _NoDocument(f"not JSON: {error}") from None
        if not isinstance(row, dict):
            raise _NoDocument("not a JSON object")
        if row.get(column) is None:
            is_null = column in row
            raise _NoDocument(f"field '{column}' is null" if is_null else f"no field '{column}'")
        return [
            convert(row[column], column),
            _document_id(row.get("id")),
            *(_kept_value(row.get(field), field) for field in kept),
        ]

    return parse


def _document_id(value: object) -> str | None:
    """The id of a document, spelled as Arrow spells one of Parquet: 1.0 is "1", and True "true"."""
    if value is None:
        return None
    if isinstance(value, (list, dict)):
        raise _NoDocument("field 'id' is neither a text nor a number")
    if isinstance(value, (bool, float)):
        value = pa.scalar(value).cast(pa.string()).as_py()
    name = str(value)
    _encode(name, "its id")
    return name


def _kept_value(value: object, field: str) -> str | None:
    """A string as it is, and another value as JSON."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    _encode(text, f"field '{field}'")
    return text


def _text_bytes(value: object, field: str) -> bytes:
    if not isinstance(value, str):
        raise _NoDocument(f"field '{field}' is not a string")
    return _encode(value, "the text")


def _encode(text: str, what: str) -> bytes:
    try:
        return text.encode("utf8")
    except UnicodeEncodeError as error:
        at = error.start
        raise _NoDocument(
            f"{what} holds a lone surrogate (U+{ord(text[at]):04X} at position {at})"
        ) from None


def _id_array(value: object, field: str) -> np.ndarray:
    if _json_type(value) != IDS:
        raise _NoDocument(f"field '{field}' is not a list of token ids")
    ids = np.asarray(value)  # of any type that holds the largest
    if value and not 0 <= ids.min() <= ids.max() < 2**31:
        raise _NoDocument(f"field '{field}' has an id outside 0 to 2**31 - 1")
    return ids.astype(np.int32)


def _parquet_batches(
    chunk: Chunk, schema: pa.Schema, size: int, limit: int
) -> Iterator[DocumentBatch]:
    """:func:`read_chunk` for a range of rows; ``limit`` is the greatest number of bytes of one.

    Columns of text stay dictionary-encoded until a slice of about ``size`` bytes is decoded: a
    long value that many rows repeat is in memory once.
    """
    source, start = chunk.source, chunk.start
    rows = sum(group.num_rows for group in row_groups(source))
    stored = parquet_file(source).schema_arrow
    stop = rows if chunk.stop is None else chunk.stop
    names = _wanted(source, stored, schema)
    texts = [field.name for field in stored if field.name in names and field.type in _BINARY]
    file = parquet_file(source, texts)
    groups, positions, rejects = _sound_groups(file.metadata, (start, stop), names, limit)
    # Run-length encoding can hide the number of values.
    decoded = sum(
        max(column.total_uncompressed_size, 4 * column.num_values)
        for i in groups
        for column in columns_of(file.metadata.row_group(i))
    )
    average = max(decoded // max(len(positions), 1), 1)
    batches = file.iter_batches(max(1, min(size // average, _ROWS)), groups, names)
    measured = until_damage((batch, _sizes(batch)) for batch in batches)
    done, wanted = 0, int(np.searchsorted(positions, stop))
    while done < wanted and (entry := next(measured, None)) is not None:
        if isinstance(entry, Reject):
            rejects.append(entry)
            break
        batch, sizes = entry
        where = positions[done : done + len(batch)]
        done += len(batch)
        first, last = np.searchsorted(where, (start, stop)).tolist()
        if first == last:  # only rows before the chunk
            continue
        read = chunk.size * int(where[last - 1] + 1 - start) // (stop - start)
        rows_here = batch.slice(first, last - first), sizes[first:last], where[first:last]
        for part, numbers, long in _slices(*rows_here, schema.names[0], size, limit):
            yield DocumentBatch(_decoded(part, source, schema), numbers, long, read)
    yield DocumentBatch(schema.empty_table(), np.empty(0, np.int64), rejects, chunk.size)


def _sound_groups(
    metadata: Any, wanted: tuple[int, int], names: Sequence[str], limit: int
) -> tuple[list[int], np.ndarray, list[Reject]]:
    """The row groups that hold rows of the wanted range, and the numbers of all their rows, int64.

    Those that expand far more than text does are left out, with a reject in the chunk of their
    first row: a page is decompressed as a whole, so its size cannot be bounded while it is read.
    """
    sound: list[int] = []
    rows = [np.empty(0, np.int64)]
    rejects: list[Reject] = []
    first = stop = 0
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        first, stop = stop, stop + group.num_rows
        if stop <= wanted[0] or first >= wanted[1]:
            continue
        columns = [c for c in columns_of(group) if c.path_in_schema.split(".")[0] in names]
        packed = sum(c.total_compressed_size for c in columns)
        size = sum(c.total_uncompressed_size for c in columns)
        if size > max(4 * limit, _EXPANSION * packed):
            reason = (
                f"row group {i} has {packed:,} bytes that expand to {size:,}, and is not read;"
                " max_row_bytes allows larger ones"
            )
            rejects += [Reject(first, reason)] if first >= wanted[0] else []
        else:
            sound.append(i)
            rows.append(np.arange(first, stop))
    return sound, np.concatenate(rows), rejects


def _wanted(source: InputFile, stored: pa.Schema, schema: pa.Schema) -> list[str]:
    """The columns to read. Raises RobustokError where they differ from those of the other files."""
    wanted = [name for name in schema.names if name in stored.names]
    for name in wanted:
        if stored.names.count(name) > 1:
            raise RobustokError(f"{source.path}: two columns are named '{name}'; rename one")
    document = schema.field(0)
    if document.name not in wanted or _arrow_type(stored.field(document.name)) != document.type:
        kind = "text" if document.type == TEXT else "ids"
        raise RobustokError(
            f"{source.path}: no field '{document.name}' that holds {kind}, as the other files have"
        )
    if "id" in wanted:
        check_id_type(stored.field("id").type, f"{source.path}: ")
    return wanted


def _slices(
    batch: pa.RecordBatch,
    sizes: np.ndarray,
    positions: np.ndarray,
    name: str,
    size: int,
    limit: int,
) -> Iterator[tuple[pa.RecordBatch, np.ndarray, list[Reject]]]:
    """The rows that have a document of at most ``limit`` bytes, cut where they sum to ``size``."""
    valid = batch.column(name).is_valid().to_numpy(zero_copy_only=False)
    short = sizes <= limit
    rejects = [Reject(int(p), f"field '{name}' is null") for p in positions[~valid]]
    long = np.flatnonzero(valid & ~short)
    rejects += [too_long(int(positions[i]), int(sizes[i]), limit) for i in long]
    rows = np.flatnonzero(valid & short)
    full = np.cumsum(sizes[rows]) // size
    for part in np.split(rows, np.flatnonzero(np.diff(full)) + 1):
        yield batch.take(pa.array(part)), positions[part], rejects
        rejects = []


def _sizes(batch: pa.RecordBatch) -> np.ndarray:
    """The bytes of each row, int64. Raises ArrowIndexError for an index outside a dictionary."""
    lengths = [_lengths(values).to_numpy(zero_copy_only=False) for values in batch.columns]
    return np.nan_to_num(lengths).sum(axis=0).astype(np.int64)  # nan: the length of a null


def _lengths(values: Any) -> Any:
    """Bytes of each value of an array, an array."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return pc.call_function("take", [_lengths(values.dictionary), values.indices])
    if kind in _BINARY:
        return pc.call_function("binary_length", [values])
    if is_list(kind):
        return pc.call_function("multiply", [pc.call_function("list_value_length", [values]), 4])
    return pa.array(np.full(len(values), 8))


def _decoded(batch: pa.RecordBatch, source: InputFile, schema: pa.Schema) -> pa.Table:
    """A slice in the schema of a batch: ids keep their type, missing columns are null."""
    arrays = []
    for number, field in enumerate(schema):
        if field.name not in batch.schema.names:
            arrays.append(pa.nulls(len(batch), field.type))
            continue
        values = batch.column(field.name)
        keeps_type = number == 0 and field.type == IDS
        try:
            if pa.types.is_dictionary(values.type):
                values = values.cast(values.type.value_type)
            arrays.append(values if keeps_type else values.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            reason = " ".join(str(error).split())
            raise RobustokError(
                f"{source.path}: the field '{field.name}' is not {field.type}: {reason}"
            ) from None
    return pa.Table.from_arrays(arrays, names=schema.names)


def _arrow_type(field: pa.Field) -> pa.DataType | None:
    """The type of the documents that a column can hold."""
    kind = field.type
    if kind in _BINARY:
        return TEXT
    return IDS if is_list(kind) and pa.types.is_integer(kind.value_type) else None
