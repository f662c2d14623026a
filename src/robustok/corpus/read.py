"""Cuts input files into tasks, and reads a task as tables of documents.

A task is the input of one shard: a range of lines of a JSON Lines file, a range of row groups of a
Parquet file, which `pyarrow.dataset` reads and casts, or a whole compressed file. A row that holds
no document is a reject; a task whose file is damaged raises.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice, pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds

from robustok.corpus.transform import is_list
from robustok.errors import RobustokError, nearest
from robustok.runtime.inputs import DAMAGE, InputFile, damage_of, json_of, lines_of, open_input

COLUMNS = ("text", "input_ids", "ids")  # the default: the first of these that the files have
TEXT, IDS = pa.large_binary(), pa.list_(pa.int32())  # of documents
POSITION = pa.field("\0position", pa.int64())  # last column of the tables that are read
_FIRST = 100  # lines of a file among which its fields are looked for
_SHARDS, _LEAST, _MOST = 256, 2 << 20, 64 << 20  # number of tasks, and limits on their input bytes
_OTHER = pa.bool_()  # stands for what is no document in JSON
_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}  # and what they are kept as
_SCAN = ds.ParquetFragmentScanOptions(page_checksum_verification=True, pre_buffer=False)


class DamagedFile(RobustokError):
    """A file of which no row can be trusted: it is cut off, or a checksum is wrong."""


class Task(NamedTuple):
    """The input of one shard: from ``start`` up to ``stop`` (None: the end) of a file.

    Both are bytes of JSON Lines, or numbers of row groups of Parquet.
    """

    number: int
    file: InputFile
    start: int
    stop: int | None


class Reject(NamedTuple):
    """A row that was set aside: its position, the reason and its content.

    ``position`` is the byte at which its line begins (of the decompressed file), its row number in
    a Parquet file, or -1 for a whole task.
    """

    position: int
    reason: str
    row: Any = None


Tables = Iterator[tuple[pa.Table, Sequence[Reject]]]


def cut_tasks(files: Sequence[InputFile], shard_bytes: int | None = None) -> list[Task]:
    """Cut every file into tasks of about ``shard_bytes``.

    The default is a 256th of all files, within 2 and 64 MiB. A damaged Parquet file is one task.
    """
    wanted = shard_bytes or min(max(sum(f.size for f in files) // _SHARDS, _LEAST), _MOST)
    ranges = ((file, limits) for file in files for limits in _ranges(file, wanted))
    return [Task(number, file, *limits) for number, (file, limits) in enumerate(ranges)]


def _ranges(file: InputFile, wanted: int) -> list[tuple[int, int | None]]:
    if file.format == "parquet":
        with suppress(DamagedFile):
            edges, held = [0], 0
            groups = _fragment(file).row_groups
            for number, group in enumerate(groups, 1):
                held += group.total_byte_size
                if held >= wanted or number == len(groups):  # small groups are put together
                    edges.append(number)
                    held = 0
            return [*pairwise(edges)]
    if file.compression or file.format == "parquet":
        return [(0, None)]
    count = max(1, -(-file.size // wanted))
    return [*pairwise(file.size * i // count for i in range(count + 1))]


def _fragment(file: InputFile) -> Any:
    """A Parquet file of which the metadata is read. Raises DamagedFile."""
    with _damage_in_one_line(file):
        form = ds.ParquetFileFormat(default_fragment_scan_options=_SCAN)
        (fragment,) = ds.dataset(str(file.path), format=form).get_fragments()
        fragment.ensure_complete_metadata()
        return fragment


@contextmanager
def _damage_in_one_line(file: InputFile) -> Iterator[None]:
    """Raise DamagedFile for the errors of a damaged file, and RobustokError for a changed one."""
    try:
        yield
    except pa.ArrowNotImplementedError as error:  # of types
        raise RobustokError(f"{file.path}: {damage_of(error)}") from None
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

    They are the fields of the first file that has documents: in ``column``, or the first of text,
    input_ids and ids. The documents' type is `TEXT` or `IDS` (canonical ids). ``keep`` has names,
    or is ``"all"`` for all but the documents' own; they are strings where a file is JSON Lines.
    Raises RobustokError where no file has documents, or that file no field to keep.
    """
    file, types, document = _first_documents(files, COLUMNS if column is None else (column,))
    names = [name for name in types if name not in (document.name, "id")] if keep == "all" else keep
    for name in names:
        if name not in types:
            raise RobustokError(f"no field '{name}' to keep in {file.path}; {nearest(name, types)}")
    as_strings = any(file.format == "jsonl" for file in files)
    kept = (
        (name, pa.string() if as_strings else _VIEWS.get(types[name], types[name]))
        for name in dict.fromkeys(names)
        if name != document.name
    )
    return pa.schema([document, ("id", pa.string()), *kept])


def _first_documents(
    files: Sequence[InputFile], wanted: Sequence[str]
) -> tuple[InputFile, dict[str, pa.DataType], pa.Field]:
    """The first file that has documents, the types of its fields, and the field of the documents.

    Raises RobustokError where none has, with what is wrong with the first one.
    """
    problem = ""
    for file in files:
        try:
            types = _first_types(file)
        except DamagedFile as error:
            problem = problem or f"{file.path}: {error}"
            continue
        for name in wanted:
            if name in types and (kind := _document_type(types[name])):
                return file, types, pa.field(name, kind)
        fields = f"its fields are {', '.join(map(repr, types))}" if types else "it has no field"
        problem = problem or (
            f"{file.path}: no field {' or '.join(map(repr, wanted))} with a text or a list of ids: "
            f"{fields}; give the one of the documents as column"
        )
    raise RobustokError(problem)


def _first_types(file: InputFile) -> dict[str, pa.DataType]:
    """The types of the fields of a Parquet file, or of the first lines of JSON."""
    if file.format == "parquet":
        schema = _fragment(file).physical_schema
        return dict(zip(schema.names, schema.types, strict=True))
    types: dict[str, pa.DataType] = {}
    problem = ""
    with _damage_in_one_line(file), open_input(file.path) as stream:
        for _, line in islice(lines_of(stream), _FIRST):
            try:
                row = json_of(line)
            except ValueError as error:
                problem = problem or f"its lines are no JSON objects ({error})"
                continue
            for name, value in row.items() if isinstance(row, dict) else ():
                if types.get(name, pa.null()) == pa.null():
                    types[name] = _json_type(value)
    if problem and not types:
        raise DamagedFile(problem)
    return types


def _json_type(value: object) -> pa.DataType:
    if value is None:
        return pa.null()
    if isinstance(value, str):
        return TEXT
    return IDS if isinstance(value, list) and {*map(type, value)} <= {int} else _OTHER


def _document_type(kind: pa.DataType) -> pa.DataType | None:
    """The type of the documents that a column can hold; one that is null so far holds texts."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if kind in (TEXT, pa.null(), pa.string(), pa.large_string(), pa.binary(), *_VIEWS):
        return TEXT
    is_ids = is_list(kind) and pa.types.is_integer(kind.value_type)
    return IDS if is_ids or kind == IDS else None


def read_task(task: Task, schema: pa.Schema, size: int) -> Tables:
    """The documents of a task in tables of about ``size`` bytes, and the rejects between them.

    ``schema`` is of `find_fields`; the tables also have the column `POSITION`, of the positions
    that :class:`Reject` describes. Raises DamagedFile, also after some tables, where the file is
    damaged, and RobustokError where it has changed since it was listed.
    """
    read = _parquet_tables if task.file.format == "parquet" else _json_tables
    task.file.check_unchanged()
    with _damage_in_one_line(task.file):
        yield from read(task, schema, size)
    task.file.check_unchanged()


def _parquet_tables(task: Task, schema: pa.Schema, size: int) -> Tables:
    fragment, name = _fragment(task.file), schema.names[0]
    position = sum(group.num_rows for group in fragment.row_groups[: task.start])
    groups = fragment.row_groups[task.start : task.stop]
    rows = max(sum(group.num_rows for group in groups), 1)
    average = max(sum(group.total_byte_size for group in groups) // rows, 1)
    scan = fragment.subset(row_group_ids=[group.id for group in groups]).to_batches(
        schema=schema, batch_size=min(max(size // average, 1), 1 << 16), use_threads=False
    )
    for batch in scan:
        positions = pa.array(range(position, position := position + len(batch)))
        table = pa.Table.from_batches([batch]).append_column(POSITION, positions)
        nulls = positions.filter(batch.column(name).is_null()).to_pylist()
        rejects = [Reject(null, f"field '{name}' is null") for null in nulls]
        yield table.filter(batch.column(name).is_valid()), rejects


def _json_tables(task: Task, schema: pa.Schema, size: int) -> Tables:
    rows: list[dict[str, Any]] = []
    rejects: list[Reject] = []
    held, columns = 0, schema.append(POSITION)
    stop = float("inf") if task.stop is None else task.stop
    with open_input(task.file.path) as stream:
        for position, line in lines_of(stream, task.start, stop):
            if line is not None and not line.strip():
                continue
            held += len(line or b"")
            try:
                rows.append({**_fields_of(json_of(line), schema), POSITION.name: position})
            except ValueError as error:
                rejects.append(Reject(position, str(error), as_text(line)))
            if held >= size:
                yield pa.Table.from_pylist(rows, columns), rejects
                rows, rejects, held = [], [], 0
        yield pa.Table.from_pylist(rows, columns), rejects


def _fields_of(row: Any, schema: pa.Schema) -> dict[str, Any]:
    """The values of a line. Raises ValueError, with the reason, where it holds no document."""
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    name, kind = schema.names[0], schema.types[0]
    value = row.get(name)
    if value is None:
        raise ValueError(f"field '{name}' is null" if name in row else f"no field '{name}'")
    if _json_type(value) != kind:
        raise ValueError(f"field '{name}' is not a {'string' if kind == TEXT else 'list of ids'}")
    if kind == IDS and value and not 0 <= min(value) <= max(value) < 2**31:
        raise ValueError(f"field '{name}' has an id outside 0 to 2**31 - 1")
    fields = {other: _string_of(row.get(other)) for other in schema.names[2:]}
    fields["id"] = _document_id(row.get("id"))
    for other, text in (*fields.items(), (name, value if kind == TEXT else None)):
        try:
            (text or "").encode()
        except UnicodeEncodeError as error:
            surrogate = f"U+{ord(error.object[error.start]):04X} at position {error.start}"
            raise ValueError(f"field '{other}' holds a lone surrogate ({surrogate})") from None
    return {**fields, name: value}


def _string_of(value: object) -> str | None:
    """A string as it is, and another value as JSON."""
    return (
        value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    )


def _document_id(value: object) -> str | None:
    """The id of a document, spelled as Arrow spells one of Parquet: 1.0 is "1", and True "true"."""
    if isinstance(value, (list, dict)):
        raise ValueError("field 'id' is neither a text nor a number")
    if isinstance(value, (bool, float)):
        return pa.scalar(value).cast(pa.string()).as_py()
    return None if value is None else str(value)


def as_text(row: object) -> Any:
    """A row for a reject: bytes as text, whatever they hold."""
    return row.decode("utf8", errors="backslashreplace") if isinstance(row, bytes) else row
