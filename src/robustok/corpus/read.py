"""Reads a chunk as a stream of small tables, and infers the fields of documents and kept values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from robustok.corpus.lines import in_int64, json_rows, line_batches
from robustok.corpus.parquet import arrow_kind, parquet_batches
from robustok.corpus.rows import MAX_ROW_BYTES as MAX_ROW_BYTES
from robustok.corpus.rows import Batch, Column
from robustok.corpus.rows import Reject as Reject
from robustok.corpus.sources import Chunk, Source, cut_chunks, parquet_file
from robustok.corpus.transform import SCHEMA
from robustok.errors import RobustokError, nearest

COLUMNS = ("text", "input_ids", "ids")  # the default: the first of these that the files have
_FIRST = 100  # lines of a file from which its fields are inferred


def find_column(
    sources: Sequence[Source], name: str | None, max_row_bytes: int = MAX_ROW_BYTES
) -> Column:
    """The field of the documents: the named one, or the first of text, input_ids and ids.

    Its kind is that of the first row that has the field, or of the schema of a Parquet file. Raises
    RobustokError where no file has it.
    """
    wanted = COLUMNS if name is None else (name,)
    seen: dict[str, None] = {}
    for source in sources:
        if source.format in ("text", "document"):
            return Column("text", "text")
        for row in _first_rows(source, max_row_bytes):
            for column in wanted:
                if (kind := _kind(row.get(column))) is not None:
                    return Column(column, kind)
            seen |= dict.fromkeys(row)
    requested = " or ".join(map(repr, wanted))
    fields = f"its fields are {', '.join(map(repr, seen))}" if seen else "no row could be read"
    raise RobustokError(
        f"no field {requested} with a text or a list of ids in {sources[0].path}"
        f"{' and the other files' if len(sources) > 1 else ''}: {fields}; name it with --column"
    )


def find_kept(
    sources: Sequence[Source],
    names: Sequence[str] | str,
    column: Column,
    max_row_bytes: int = MAX_ROW_BYTES,
) -> tuple[pa.Field, ...]:
    """The fields to keep in the output besides the drawn ids, with their types.

    ``names`` are their names, or ``"all"`` for all but the documents' own. A Parquet field keeps
    its type. A field of JSON rows is bool, int64, double or string by its first values, and a
    string holds other values as JSON. Raises RobustokError for a field that no file has, or whose
    name an output column has.
    """
    if not names:
        return ()
    types: dict[str, pa.DataType] = {}
    for source in sources:
        for name, kind in _field_types(source, max_row_bytes).items():
            types[name] = kind if types.get(name, kind) == kind else _common(types[name], kind)
    if names == "all":
        wanted = [name for name in types if name not in (column.name, "id")]
    else:
        wanted = list(dict.fromkeys(names))
    for name in wanted:
        if name not in types:
            raise RobustokError(f"no field '{name}' to keep; {nearest(name, types)}")
        if name in SCHEMA.names:
            raise RobustokError(
                f"the field '{name}' has the name of an output column and cannot be kept: rename"
                " it, or name the others with --keep-columns"
            )
    return tuple(pa.field(name, types[name]) for name in wanted)


def read_chunk(
    chunk: Chunk,
    column: Column,
    size: int,
    kept: Sequence[pa.Field] = (),
    max_row_bytes: int = MAX_ROW_BYTES,
) -> Iterator[Batch]:
    """The documents of a chunk in batches of about ``size`` bytes of text (or of ids).

    The result depends on the bytes of the chunk and the arguments only. A row of more than
    ``max_row_bytes`` bytes is a reject. A file whose compression or pages are damaged ends there,
    with the damage as its last reject.
    """
    reader = parquet_batches if chunk.source.format == "parquet" else line_batches
    return reader(chunk, column, size, kept, max_row_bytes)


def _first_rows(source: Source, max_row_bytes: int) -> Iterator[dict[str, Any]]:
    """The first rows of a file, from which its fields are inferred."""
    if source.format == "parquet":
        schema = parquet_file(source).schema_arrow
        sample = {"text": "", "ids": [0], None: None}
        yield {field.name: sample[arrow_kind(field)] for field in schema}
    else:
        yield from json_rows(cut_chunks([source], source.size + 1)[0], max_row_bytes, _FIRST)


def _field_types(source: Source, max_row_bytes: int) -> dict[str, pa.DataType]:
    if source.format == "parquet":
        return {field.name: _plain(field.type) for field in parquet_file(source).schema_arrow}
    if source.format != "jsonl":
        return {}
    types: dict[str, pa.DataType] = {}
    for row in _first_rows(source, max_row_bytes):
        for name, value in row.items():
            kind = _json_type(value)
            if kind is not None:
                types[name] = _common(types.get(name, kind), kind)
            else:
                types.setdefault(name, pa.string())
    return types


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _json_type(value: Any) -> pa.DataType | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int) and in_int64(value):
        return pa.int64()
    return pa.float64() if isinstance(value, float) else pa.string()


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type that holds values of both."""
    if one == other:
        return one
    numbers = {pa.int64(), pa.float64()}
    return pa.float64() if {one, other} == numbers else pa.string()


def _kind(value: Any) -> str | None:
    if isinstance(value, str):
        return "text"
    return "ids" if isinstance(value, list) and all(type(i) is int for i in value) else None
