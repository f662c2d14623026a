"""Documents: input files cut into tasks, a task read as tables, and a table drawn.

A task is the input of one shard: a range of lines of a JSON Lines file, a range of row groups of a
Parquet file, which `pyarrow.dataset` reads and casts, or a whole compressed file. A row that holds
no document is a reject; a task whose file is damaged raises. `Retokenize` maps an Arrow table of
documents to a table of drawn tokenizations.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from robustok.checks import IGNORED, check_epoch, check_integer, check_list
from robustok.errors import RobustokError, nearest
from robustok.ragged import Ragged
from robustok.runtime.environment import computed_once
from robustok.runtime.inputs import DAMAGE, InputFile, damage_of, json_of, lines_of, open_input
from robustok.samplers import Sampler, sampler
from robustok.samplers.strength import measure
from robustok.tokenizer.vocabulary import Vocabulary, check_vocabulary

COLUMNS = ("text", "input_ids", "ids")  # the default: the first of these that the files have
TEXT, IDS = pa.large_binary(), pa.list_(pa.int32())  # of documents
POSITION = pa.field("\0position", pa.int64())  # last column of the tables that are read
_FIRST = 100  # lines of a file among which its fields are looked for
_SHARDS = 256  # number of tasks
_SMALLEST, _LARGEST = 2 << 20, 64 << 20  # limits on their input bytes
_OTHER = pa.bool_()  # stands for what is no document in JSON
_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}  # and what they are kept as
_SCAN = ds.ParquetFragmentScanOptions(page_checksum_verification=True, pre_buffer=False)
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("key", pa.int64()),
        ("draw", pa.int32()),
        ("input_ids", pa.list_(pa.int32())),
        ("canonical_tokens", pa.int32()),
        ("splits", pa.int32()),
        ("distance", pa.int32()),
    ]
)
_MOST = 2**31 - 1  # ids of a list column and bytes of a text column: their offsets are int32


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
    wanted = shard_bytes or min(max(sum(f.size for f in files) // _SHARDS, _SMALLEST), _LARGEST)
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


def check_keep(keep: Any) -> Any:
    """The names of the fields to keep as a list, or ``"all"``."""
    is_all = isinstance(keep, str) and keep == "all"
    return keep if is_all else check_list("keep_columns", keep, '["url"], or "all"', (str,))


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
                if not isinstance(row, dict):
                    raise ValueError(f"a {type(row).__name__}: write an object a line")
            except ValueError as error:
                problem = problem or f"its lines are no JSON objects ({error})"
                continue
            for name, value in row.items():
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
        positions = pa.array(range(position, position := position + len(batch)), POSITION.type)
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


@dataclass(frozen=True)
class Retokenize:
    """A callable that draws ``draws`` tokenizations of every document of an Arrow table.

    >>> import pyarrow as pa
    >>> retokenize = Retokenize(vocab, "uniform-k(alpha=0.5)", seed=0)
    >>> retokenize(pa.table({"text": ["hello world"]})).column_names
    ['id', 'key', 'draw', 'input_ids', 'canonical_tokens', 'splits', 'distance']

    Args:
        vocab: the vocabulary.
        scheme: spec of the scheme.
        seed: any integer.
        epoch: an int64; each value gives other draws.
        draws: tokenizations of each document, at least 1.
        column: name of the column that holds texts (string or binary) or canonical ids (lists of
            integers).
        keep: names of columns that are repeated for every draw, after the others; none may have
            the name of an output column.

    The output has a row for each draw, those of a document one after another, with the schema
    :data:`SCHEMA`. An ``id`` column is copied. ``map_batches`` of Ray Data and
    ``map(..., batched=True)`` of `datasets` accept it as it is; batches may also be mappings of
    columns.

    A document's draws depend on its key (:func:`document_keys`), the seed, the epoch and the draw's
    number, and on nothing else.

    Raises RobustokError for a document that cannot be tokenized, a column of labels (the id itself
    or -100 at each place, whatever its name), a kept column with a value for each id, an ``id``
    that is neither a text nor a number, and a batch whose draws have more than 2**31 - 1 ids or
    bytes of a kept column.
    """

    vocab: Vocabulary
    scheme: str
    seed: int
    epoch: int = 0
    draws: int = 1
    column: str = "text"
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_vocabulary(self.vocab)
        check_integer("seed", self.seed)
        check_epoch(self.epoch)
        check_integer("draws", self.draws, 1)
        if self.column == "id":
            raise RobustokError(
                "the documents cannot be in the field 'id', which names them: rename the field"
            )
        keep = tuple(dict.fromkeys(check_list("keep", self.keep, "[column]")))
        if names := [name for name in keep if name in SCHEMA.names]:
            raise RobustokError(
                f"the field '{names[0]}' has the name of an output column and cannot be kept: "
                "rename it, or name the others to keep"
            )
        object.__setattr__(self, "keep", keep)

    def __call__(self, batch: pa.Table | Mapping[str, object]) -> pa.Table:
        table: Any = batch if isinstance(batch, pa.Table) else pa.table(dict(batch))
        has_id = "id" in table.column_names
        for name in (self.column, *self.keep, *(("id",) if has_id else ())):
            if (times := table.column_names.count(name)) != 1:
                columns = ", ".join(table.column_names)
                number = "no column" if not times else "several columns"
                raise RobustokError(f"the table has {number} '{name}': it has {columns}")
        names = document_ids(table.column("id")) if has_id else pa.nulls(len(table), pa.string())
        kept = [_kept(table.column(name)) for name in self.keep]
        for name, column in (("id", names), *zip(self.keep, kept, strict=True)):
            if not pa.types.is_dictionary(column.type):
                self._check_size(column.nbytes * self.draws, f"bytes of the column '{name}'")
        rows = self._canonical(table.column(self.column))
        self._check_beside(table, rows)
        keys = document_keys(names.to_pylist(), rows)
        samples = self._sampler.sample_batch(
            rows, seed=self.seed, draws=self.draws, keys=keys, epoch=self.epoch, threads=1
        )
        self._check_size(len(samples.values), "ids")
        strength = measure(self.vocab, rows, samples)
        again = pa.array(np.repeat(np.arange(len(rows)), self.draws))
        columns = {
            "id": names.take(again),
            "key": pa.array(keys).take(again),
            "draw": np.tile(np.arange(self.draws), len(rows)),
            "input_ids": pa.ListArray.from_arrays(
                samples.offsets.astype(np.int32), pa.array(samples.values)
            ),
            "canonical_tokens": strength.canonical,
            "splits": strength.splits,
            "distance": strength.distance,
        }
        out = pa.table(columns, schema=SCHEMA)
        for name, column in zip(self.keep, kept, strict=True):
            out = out.append_column(name, column.take(again))
        return out

    def _check_beside(self, table: pa.Table, rows: Ragged) -> None:
        """Raise RobustokError for labels, and for a kept column with a value for each id."""
        lengths = pa.array(rows.lengths)
        for name, column in zip(table.column_names, table.columns, strict=True):
            if name == self.column or not is_list(column.type) or not len(rows.values):
                continue
            of_rows = pc.call_function("list_value_length", [column])
            if not of_rows.combine_chunks().cast(pa.int64()).equals(lengths):
                continue
            values = np.asarray(column.combine_chunks().flatten())
            is_number = values.dtype.kind in "iu"
            if is_number and ((values == rows.values) | (values == IGNORED)).all():
                raise RobustokError(
                    f"the column '{name}' holds labels (the id itself, or {IGNORED}), and a draw "
                    "of the whole row would leave them wrong: draw rows that have labels with "
                    "Perturb or robustify, or remove the column"
                )
            if name in self.keep:
                raise RobustokError(
                    f"the column '{name}' has a value for each id and cannot be kept: a draw has "
                    "other ids"
                )

    def _check_size(self, size: int, what: str) -> None:
        if size > _MOST:
            raise RobustokError(
                f"{self.draws} draws have {size:,} {what}, more than the {_MOST:,} that a column "
                "holds: take fewer draws, or shorter documents"
            )

    def _canonical(self, column: pa.ChunkedArray) -> Ragged:
        if column.null_count:
            raise RobustokError(f"column '{self.column}' has null rows: fill or drop them first")
        if not is_list(column.type):
            return self.vocab.encode_batch(column.to_pylist())
        try:
            lists = column.cast(pa.large_list(pa.field("i", pa.int32(), False)))
        except pa.ArrowInvalid as error:
            raise RobustokError(f"column '{self.column}' holds no token ids: {error}") from error
        if pc.call_function("list_flatten", [lists]).null_count:
            raise RobustokError(f"column '{self.column}' has a null inside a list")
        rows = Ragged.from_arrow(lists)
        # Arrow's memory is read-only, for which numba would compile the kernels again.
        return Ragged(rows.values.copy(), rows.offsets.copy())

    @computed_once
    def _sampler(self) -> Sampler:
        return sampler(self.scheme, self.vocab)

    def __getstate__(self) -> dict[str, Any]:
        """The fields, without derived values."""
        return {name: vars(self)[name] for name in self.__dataclass_fields__}


def document_keys(names: Sequence[str | None], rows: Ragged) -> np.ndarray:
    """The key of each document, int64: a hash of its id, if it has one, and its canonical ids.

    >>> document_keys(["a", None], Ragged.from_rows([[5, 6], [5, 6]]))
    array([ 6933950176632136053, -4556091524326757107])

    It is the first eight bytes of BLAKE2b over the id in UTF-8, a zero byte, and the ids as
    little-endian int32, the same for a text and its ids.
    """
    content = rows.values.astype("<i4", copy=False).tobytes()
    edges = (4 * rows.offsets).tolist()
    digests = [
        hashlib.blake2b((name or "").encode() + b"\0" + content[a:b], digest_size=8).digest()
        for name, a, b in zip(names, edges, edges[1:], strict=False)
    ]
    return np.frombuffer(b"".join(digests), "<i8").astype(np.int64)


def document_ids(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The ids of documents as strings; raises RobustokError for other types than texts and numbers.

    >>> document_ids(pa.chunked_array([[1.0, 2.5]])).to_pylist()
    ['1', '2.5']
    """
    # Arrow's reader of JSON, which Ray Data uses, makes a time of a text such as "2024-01-01".
    if pa.types.is_nested(column.type) or pa.types.is_temporal(column.type):
        raise RobustokError(
            f"the field 'id' is a {column.type}; a document's id is a text or a number: drop or "
            "rename the field, or make it a text"
        )
    try:
        return column.cast(pa.string()).combine_chunks()
    except pa.ArrowException as error:
        raise RobustokError(f"the field 'id' is not text: {error}") from None


def is_list(kind: pa.DataType) -> bool:
    """Whether a column is of lists, of any layout."""
    return pa.types.is_nested(kind) and hasattr(kind, "value_type")


def _kept(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A kept column; the binary documents of a corpus are kept as text."""
    if not pa.types.is_large_binary(column.type):
        return column
    try:
        return column.cast(pa.large_string()).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise RobustokError(f"a text to keep is not UTF-8: {error}") from None
