"""Cuts input files into tasks, and reads a task as batches of documents.

A task is the input of one shard: a range of lines of a JSON Lines file, a range of row groups of a
Parquet file, or a whole compressed file, which cannot be read from the middle. Tasks depend on the
files only. A row that holds no document is a reject; a task whose file is damaged raises.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from robustok.corpus.transform import check_column, check_id_type, check_kept, is_list
from robustok.errors import RobustokError, nearest
from robustok.runtime.files import JsonObject
from robustok.runtime.inputs import DAMAGE, InputFile, damage_of, json_of, lines_of, open_input

COLUMNS = ("text", "input_ids", "ids")  # the default: the first of these that the files have
TEXT, IDS = pa.large_binary(), pa.list_(pa.int32())  # of documents
DOCUMENT = pa.field("text", TEXT)
_FIRST = 100  # rows of a file among which its fields are looked for
_SHARDS, _LEAST, _MOST = 256, 2 << 20, 64 << 20  # number of tasks, and limits on their input bytes
_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}  # and what they are kept as
_TEXTS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), *_VIEWS)


class DamagedFile(RobustokError):
    """A file of which no row can be trusted: it is cut off, or a checksum is wrong."""


@dataclass(frozen=True)
class Task:
    """The input of one shard: from ``start`` up to ``stop`` (None: the end) of a file.

    Both are bytes of JSON Lines, or numbers of row groups of Parquet. ``size`` is the bytes of the
    file that they take up.
    """

    number: int
    file: InputFile
    start: int
    stop: int | None
    size: int

    @property
    def name(self) -> str:
        return f"part-{self.number:06d}"

    @property
    def input(self) -> JsonObject:
        """What the task reads."""
        return {"file": self.file.name, "start": self.start, "stop": self.stop}


@dataclass(frozen=True)
class Reject:
    """A row that was set aside: its position, the reason and its content.

    ``position`` is the byte at which its line begins (of the decompressed file), its row number in
    a Parquet file, or -1 for a whole task.
    """

    position: int
    reason: str
    row: Any = None


class Batch(NamedTuple):
    """Documents that are processed together: a table of the document, ``id`` and kept fields.

    ``positions`` are those of :class:`Reject`, int64 [rows]. ``read`` is the number of bytes of the
    file that the task has read.
    """

    table: pa.Table
    positions: np.ndarray
    rejects: list[Reject]
    read: int


def cut_tasks(files: Iterable[InputFile], shard_bytes: int | None = None) -> list[Task]:
    """Cut every file into tasks of about ``shard_bytes``.

    The default is a 256th of all files, within 2 and 64 MiB. A damaged Parquet file is one task.
    """
    files = list(files)
    wanted = shard_bytes or min(max(sum(f.size for f in files) // _SHARDS, _LEAST), _MOST)
    ranges = ((file, limits) for file in files for limits in _ranges(file, wanted))
    return [Task(number, file, *limits) for number, (file, limits) in enumerate(ranges)]


def _ranges(file: InputFile, wanted: int) -> list[tuple[int, int | None, int]]:
    if file.format == "parquet":
        with suppress(DamagedFile):
            return _group_ranges(file, wanted)
    if file.compression or file.format == "parquet":
        return [(0, None, file.size)]
    count = max(1, -(-file.size // wanted))
    return [(a, b, b - a) for a, b in pairwise(file.size * i // count for i in range(count + 1))]


def _group_ranges(file: InputFile, wanted: int) -> list[tuple[int, int | None, int]]:
    """Ranges of row groups; small groups are put together. Raises DamagedFile."""
    with _damage_in_one_line(file), pq.ParquetFile(file.path) as parquet:
        metadata = parquet.metadata
        sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
    ranges: list[tuple[int, int | None, int]] = []
    start = size = 0
    for i, group in enumerate(sizes):
        size += group
        if size >= wanted or i == len(sizes) - 1:
            ranges.append((start, i + 1, file.size * (i + 1 - start) // len(sizes)))
            start, size = i + 1, 0
    return ranges


@contextmanager
def _damage_in_one_line(file: InputFile) -> Iterator[None]:
    """Raise DamagedFile for the errors of a damaged file, and RobustokError for a changed one."""
    try:
        yield
    except (pa.ArrowException, OverflowError, *DAMAGE) as error:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:
            raise  # of the machine
        file.check_unchanged()
        kind = "as Parquet" if file.format == "parquet" else "to its end"
        raise DamagedFile(
            f"the file cannot be read {kind}, and no row of this part is kept: {damage_of(error)}"
        ) from error


def find_fields(
    files: Sequence[InputFile], column: str | None, keep: Sequence[str] | str
) -> pa.Schema:
    """The fields to read: the documents, their ``id``, and those to keep, with their types.

    The documents are in ``column``, or the first of text, input_ids and ids. Their type is `TEXT`
    or `IDS` (canonical ids), by the first row that has them. ``keep`` has names, or is ``"all"``
    for all but the documents' own. Where all files are Parquet and agree, a field keeps its type,
    and else it is a string. Raises RobustokError where no file has a field, and for a field to keep
    that has the name of an output column.
    """
    check_column(column)
    wanted = COLUMNS if column is None else (column,)
    document, types, damage = _fields_seen(files, wanted, only_documents=not keep)
    if document is None:
        raise RobustokError(_no_document(files, wanted, types, damage))
    names = [n for n in types if n not in (document.name, "id")] if keep == "all" else keep
    for name in names:
        if name not in types:
            raise RobustokError(f"no field '{name}' to keep; {nearest(name, types)}")
    check_kept(names)
    return pa.schema([document, pa.field("id", pa.string()), *_kept(files, names, document, types)])


def _fields_seen(
    files: Sequence[InputFile], wanted: Sequence[str], *, only_documents: bool
) -> tuple[pa.Field | None, dict[str, set[pa.DataType]], str]:
    """The field of the documents, the types of all fields, and the damage of the first file."""
    document: pa.Field | None = None
    types: dict[str, set[pa.DataType]] = {}
    damage = ""
    for file in files:
        try:
            for fields in _first_fields(file, wanted):
                document = document or _document_of(fields, wanted)
                for name, field in fields.items():
                    types.setdefault(name, set()).add(field.kept)
        except DamagedFile as error:
            damage = damage or f"{file.path}: {error}"
        if document is not None and only_documents:
            break
    return document, types, damage


def _document_of(fields: dict[str, _Field], wanted: Sequence[str]) -> pa.Field | None:
    kinds = ((name, fields[name].document) for name in wanted if name in fields)
    return next((pa.field(name, kind) for name, kind in kinds if kind), None)


def _kept(
    files: Sequence[InputFile],
    names: Sequence[str],
    document: pa.Field,
    types: dict[str, set[pa.DataType]],
) -> list[pa.Field]:
    """The fields to keep, but for the documents."""
    is_json = any(file.format == "jsonl" for file in files)
    others = (name for name in dict.fromkeys(names) if name != document.name)
    return [pa.field(n, pa.string() if is_json else _common(types[n])) for n in others]


def _no_document(
    files: Sequence[InputFile], wanted: Sequence[str], types: Iterable[str], damage: str
) -> str:
    place = f"{files[0].path}{' and the other files' if len(files) > 1 else ''}"
    if not types:
        example = '{"text": "a document"}'
        return damage or f"{place}: none of the first lines is a JSON object, such as {example}"
    return (
        f"no field {' or '.join(map(repr, wanted))} with a text or a list of ids in {place}: its "
        f"fields are {', '.join(map(repr, types))}; give the one of the documents as column"
    )


class _Field(NamedTuple):
    """The type of the documents that a field can hold, and the type that it is kept as."""

    document: pa.DataType | None
    kept: pa.DataType


def _first_fields(file: InputFile, wanted: Sequence[str]) -> Iterator[dict[str, _Field]]:
    """The fields of each of the first rows of a file, or of the schema of a Parquet file."""
    if file.format == "parquet":
        with _damage_in_one_line(file):
            schema = pq.read_schema(file.path)
        yield {field.name: _Field(_arrow_type(field.type), _plain(field.type)) for field in schema}
        return
    for row in _first_rows(file, wanted):
        yield {name: _Field(_json_type(value), pa.string()) for name, value in row.items()}


def _first_rows(file: InputFile, wanted: Sequence[str]) -> Iterator[JsonObject]:
    """The objects among the first lines; rows whose documents are null are not counted."""
    left = _FIRST
    with _damage_in_one_line(file), open_input(file.path) as (stream, _):
        for _, line in lines_of(stream):
            row = None
            with suppress(ValueError):
                row = json_of(line)
            if isinstance(row, dict):
                yield row
                left -= all(row.get(name, "") is not None for name in wanted)
            else:
                left -= 1
            if not left:
                return


def _arrow_type(kind: pa.DataType) -> pa.DataType | None:
    """The type of the documents that a column can hold."""
    kind = _plain(kind)
    if kind in _TEXTS:
        return TEXT
    return IDS if is_list(kind) and pa.types.is_integer(kind.value_type) else None


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type of the same values that is no dictionary and no view."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(kind.value_type)
    return _VIEWS.get(kind, kind)


def _common(types: set[pa.DataType]) -> pa.DataType:
    """The type of columns of these types; string where they differ or are none."""
    known = types - {pa.null()}
    return known.pop() if len(known) == 1 else pa.string()


def _json_type(value: object) -> pa.DataType | None:
    if isinstance(value, str):
        return TEXT
    return IDS if isinstance(value, list) and set(map(type, value)) <= {int} else None


def read_task(task: Task, schema: pa.Schema, size: int) -> Iterator[Batch]:
    """The documents of a task in batches of about ``size`` bytes; ``schema`` is of `find_fields`.

    Raises DamagedFile, also after some batches, where the file is damaged, and RobustokError where
    it has changed since it was listed.
    """
    read = _parquet_batches if task.file.format == "parquet" else _line_batches
    task.file.check_unchanged()
    with _damage_in_one_line(task.file):
        yield from read(task, schema, size)
    task.file.check_unchanged()


def _line_batches(task: Task, schema: pa.Schema, size: int) -> Iterator[Batch]:
    rows: list[list[Any]] = []
    positions: list[int] = []
    rejects: list[Reject] = []
    held = 0

    def batch() -> Batch:
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
        arrays = [pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=schema)
        read = min(raw.tell() - task.start, task.size)
        return Batch(table, np.array(positions, np.int64), rejects, read)

    stop = float("inf") if task.stop is None else task.stop
    with open_input(task.file.path) as (stream, raw):
        for position, line in lines_of(stream, task.start, stop):
            if line is not None and not line.strip():
                continue
            held += len(line or b"")
            try:
                rows.append(_fields_of(json_of(line), schema))
                positions.append(position)
            except ValueError as error:
                rejects.append(Reject(position, str(error), as_text(line)))
            if held >= size:
                yield batch()
                rows, positions, rejects, held = [], [], [], 0
        yield batch()


def _fields_of(row: Any, schema: pa.Schema) -> list[Any]:
    """The values of a row. Raises ValueError, with the reason, where it holds no document."""
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    document, _, *kept = schema
    value = row.get(document.name)
    if value is None:
        is_null = document.name in row
        raise ValueError(f"field '{document.name}' is null" if is_null else
                         f"no field '{document.name}'")  # fmt: skip
    convert = _text_bytes if document.type == TEXT else _id_array
    others = [_kept_value(row.get(field.name), field.name) for field in kept]
    return [convert(value, document.name), _document_id(row.get("id")), *others]


def _document_id(value: object) -> str | None:
    """The id of a document, spelled as Arrow spells one of Parquet: 1.0 is "1", and True "true"."""
    if value is None:
        return None
    if isinstance(value, (list, dict)):
        raise ValueError("field 'id' is neither a text nor a number")
    if isinstance(value, (bool, float)):
        value = pa.scalar(value).cast(pa.string()).as_py()
    _text_bytes(str(value), "id")
    return str(value)


def _kept_value(value: object, field: str) -> str | None:
    """A string as it is, and another value as JSON."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    _text_bytes(text, field)
    return text


def _text_bytes(value: object, field: str) -> bytes:
    if not isinstance(value, str):
        raise ValueError(f"field '{field}' is not a string")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        surrogate = f"U+{ord(value[error.start]):04X} at position {error.start}"
        raise ValueError(f"field '{field}' holds a lone surrogate ({surrogate})") from None


def _id_array(value: object, field: str) -> np.ndarray:
    if _json_type(value) != IDS:
        raise ValueError(f"field '{field}' is not a list of token ids")
    ids = np.asarray(value)  # of any type that holds the largest
    if value and not 0 <= ids.min() <= ids.max() < 2**31:
        raise ValueError(f"field '{field}' has an id outside 0 to 2**31 - 1")
    return ids.astype(np.int32)


def _parquet_batches(task: Task, schema: pa.Schema, size: int) -> Iterator[Batch]:
    file = task.file
    with pq.ParquetFile(file.path, pre_buffer=False, page_checksum_verification=True) as parquet:
        names = _stored_names(file, parquet.schema_arrow, schema)
        metadata = parquet.metadata
        every = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        groups = every[task.start : task.stop]
        first = position = sum(group.num_rows for group in every[: task.start])
        rows = sum(group.num_rows for group in groups)
        average = sum(group.total_byte_size for group in groups) // max(rows, 1)
        for batch in parquet.iter_batches(
            min(max(size // max(average, 1), 1), 1 << 16),
            range(task.start, task.start + len(groups)),
            names,
            use_threads=False,
        ):
            table = _in_schema(batch, file, schema)
            valid = table.column(0).is_valid().to_numpy()
            positions = np.arange(position, position + len(batch))
            position += len(batch)
            null = f"field '{schema.names[0]}' is null"
            rejects = [Reject(int(row), null) for row in positions[~valid]]
            read = task.size * (position - first) // rows
            yield Batch(table.filter(pa.array(valid)), positions[valid], rejects, read)


def _stored_names(file: InputFile, stored: pa.Schema, schema: pa.Schema) -> list[str]:
    """The columns to read. Raises RobustokError where they differ from those of the other files."""
    names = [name for name in schema.names if name in stored.names]
    for name in names:
        if stored.names.count(name) > 1:
            raise RobustokError(f"{file.path}: two columns are named '{name}'; rename one")
    document = schema.field(0)
    if document.name not in names or _arrow_type(stored.field(document.name).type) != document.type:
        kind = "text" if document.type == TEXT else "ids"
        raise RobustokError(
            f"{file.path}: no field '{document.name}' that holds {kind}, as the other files have"
        )
    if "id" in names:
        check_id_type(stored.field("id").type, f"{file.path}: ")
    return names


def _in_schema(batch: pa.RecordBatch, file: InputFile, schema: pa.Schema) -> pa.Table:
    """A batch in a schema: documents that are ids keep their type, missing columns are null."""
    arrays = []
    for number, field in enumerate(schema):
        if field.name not in batch.schema.names:
            arrays.append(pa.nulls(len(batch), field.type))
            continue
        values = batch.column(field.name)
        kind = _plain(values.type) if number == 0 and field.type == IDS else field.type
        try:
            if pa.types.is_dictionary(values.type):
                values = values.cast(values.type.value_type)
            arrays.append(values.cast(kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            reason = " ".join(str(error).split())
            raise RobustokError(
                f"{file.path}: the field '{field.name}' is not {field.type}: {reason}"
            ) from None
    return pa.Table.from_arrays(arrays, names=schema.names)


def as_text(row: object) -> Any:
    """A row for a reject: bytes as text, whatever they hold."""
    return row.decode("utf8", errors="backslashreplace") if isinstance(row, bytes) else row
