"""Files of a corpus and the chunks that workers read, and what reading a chunk gives.

A chunk is the part of one file that one worker reads: a range of bytes (JSON Lines and text, whose
lines belong to the chunk they begin in), a range of rows (Parquet), or a whole compressed
file, which cannot be read from the middle. It is read as batches of documents, and as rejects for
rows that cannot be read.
"""

from __future__ import annotations

import glob
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from robustok.errors import RobustokError, check_choice
from robustok.runtime.inputs import COMPRESSIONS, DAMAGE, FORMATS, decompressed, kind_of

SAMPLE_BY = ("line", "document")  # the documents of a text file
_KINDS = f"{', '.join(FORMATS)}, or one of these with {', '.join(COMPRESSIONS)}"
_SHARDS, _LEAST, _MOST = 256, 2 << 20, 64 << 20  # number of shards, and limits on their input bytes
TEXT, IDS = pa.large_binary(), pa.list_(pa.int32())  # of documents; text may not be valid UTF-8
DOCUMENT = pa.field("text", TEXT)  # of a text file
T = TypeVar("T")
_PARTS = 16  # most shards of one row group
MAX_ROW_BYTES = 16 << 20  # of a line or row, decompressed; a longer one is a reject


class DamagedFile(RobustokError):
    """A file of which no row can be trusted: Parquet with damaged metadata, a wrong checksum."""


@dataclass(frozen=True)
class InputFile:
    """A file of the corpus; ``name`` is its path relative to the given folder."""

    path: Path
    name: str
    format: str
    compression: str
    size: int
    modified: int


@dataclass(frozen=True)
class Chunk:
    """The input of one shard: ``source`` from ``start`` up to ``stop`` (None: its end).

    Both are bytes, or rows of Parquet; ``size`` is the bytes of the file they take up.
    """

    number: int
    source: InputFile
    start: int
    stop: int | None
    size: int

    @property
    def name(self) -> str:
        return f"part-{self.number:06d}"


def find_sources(
    inputs: str | Path | Sequence[str | Path], sample_by: str = "line"
) -> list[InputFile]:
    """The files of paths, folders and glob patterns, sorted by name.

    A folder is searched recursively for files of known kinds; names that begin with a dot or an
    underscore are skipped. A document of a text file is a line (``sample_by="line"``) or the whole
    file (``"document"``). Raises RobustokError for missing files, unknown kinds, anything but a
    regular file, and links in a folder that lead out of it.
    """
    check_choice("sample_by", sample_by, SAMPLE_BY)
    given = [inputs] if isinstance(inputs, (str, Path)) else list(inputs)
    sources: dict[Path, InputFile] = {}
    for entry in given:
        for path, name in _named_paths(Path(entry)):
            sources.setdefault(path.resolve(), _source(path, name, sample_by))
    if not sources:
        raise RobustokError(
            f"no files in {', '.join(map(str, given))}: a corpus file ends in {_KINDS}"
        )
    return sorted(sources.values(), key=lambda source: (source.name, str(source.path)))


def cut_chunks(sources: Iterable[InputFile], shard_bytes: int | None = None) -> list[Chunk]:
    """Cut every file into chunks of about ``shard_bytes``.

    The default is a 256th of the corpus, within 2 and 64 MiB: it depends on the corpus only, not on
    the workers. A Parquet file with damaged metadata is one chunk, whose reading gives a reject.
    """
    files = list(sources)
    wanted = shard_bytes or min(max(sum(f.size for f in files) // _SHARDS, _LEAST), _MOST)
    ranges = ((file, limits) for file in files for limits in _ranges(file, wanted))
    return [Chunk(number, file, *limits) for number, (file, limits) in enumerate(ranges)]


def open_stream(source: InputFile) -> tuple[IO[bytes], IO[bytes]]:
    """The decompressed stream of a file, and the raw file, whose position shows the progress."""
    raw = source.path.open("rb")
    return decompressed(raw, source.compression), raw


def _named_paths(path: Path) -> Iterator[tuple[Path, str]]:
    """The corpus files of a path, a folder or a pattern, each with its name."""
    if path.is_dir():
        for file in _files_below(path):
            yield file, str(file.relative_to(path))
    elif path.exists():
        if kind_of(path) is None:
            raise RobustokError(f"{path}: a corpus file ends in {_KINDS}")
        yield path, path.name
    else:
        matches = [Path(p) for p in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207
        if not matches:
            raise RobustokError(f"{path}: no such file or folder, and no file matches it")
        for match in matches:
            for file in _files_below(match) if match.is_dir() else [match]:
                if kind_of(file):
                    yield file, str(file)  # the whole path, since file names may repeat


def _files_below(folder: Path) -> list[Path]:
    """The corpus files of a folder. Refuses links that lead out of it."""
    root = folder.resolve()
    files = []
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        if hidden or path.is_dir() or not kind_of(path):
            continue
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            raise RobustokError(
                f"{path} is a link to {path.resolve()}, outside {folder}: remove it, or name the"
                " file itself"
            )
        files.append(path)
    return files


def _source(path: Path, name: str, sample_by: str) -> InputFile:
    kind = kind_of(path)
    assert kind is not None
    if not path.is_file():
        raise RobustokError(f"{path} is not a regular file: copy its content to one")
    status, (format, compression) = path.stat(), kind
    if format == "text" and sample_by == "document":
        format = "document"
    return InputFile(path.absolute(), name, format, compression, status.st_size, status.st_mtime_ns)


def _ranges(file: InputFile, wanted: int) -> list[tuple[int, int | None, int]]:
    if file.format == "parquet":
        return _row_ranges(file, wanted)
    if file.compression or file.format == "document":
        return [(0, None, file.size)]
    count = max(1, -(-file.size // wanted))
    edges = [file.size * i // count for i in range(count + 1)]
    return [(a, b, b - a) for a, b in itertools.pairwise(edges)]


def _row_ranges(file: InputFile, wanted: int) -> list[tuple[int, int | None, int]]:
    """Ranges of rows: small row groups together, and a group of twice ``wanted`` or more in parts.

    The rows of a group before a part are decoded to be skipped, which bounds the number of parts.
    """
    try:
        groups = row_groups(file)
    except DamagedFile:
        return [(0, None, file.size)]
    ranges: list[tuple[int, int | None, int]] = []
    first = start = stop = raw = size = 0
    for group in groups:
        packed = sum(column.total_compressed_size for column in columns_of(group))
        parts = max(1, min(group.total_byte_size // wanted, _PARTS, group.num_rows))
        for part in range(1, parts + 1):
            stop = first + group.num_rows * part // parts
            raw, size = raw + group.total_byte_size // parts, size + packed // parts
            if raw >= wanted:
                ranges.append((start, stop, size))
                start, raw, size = stop, 0, 0
        first = stop
    return ranges if stop == start else [*ranges, (start, stop, size)]


def row_groups(file: InputFile) -> list[Any]:
    """The metadata of all row groups, each column read once; raises DamagedFile."""
    with _damage_in_one_line():
        metadata = parquet_file(file).metadata
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        sizes = [column.total_compressed_size for group in groups for column in columns_of(group)]
        if not all(0 <= size <= file.size for size in sizes):
            raise pa.ArrowInvalid("its metadata has a column of an impossible size")
        return groups


def columns_of(group: Any) -> list[Any]:
    """The metadata of the columns of a row group."""
    return [group.column(i) for i in range(group.num_columns)]


def parquet_file(file: InputFile, dictionaries: Sequence[str] = ()) -> Any:
    """The open Parquet file, read page by page to bound the memory of a large row group.

    ``dictionaries`` are the columns that stay dictionary-encoded. Raises DamagedFile where its
    metadata is damaged.
    """
    with _damage_in_one_line():
        return pq.ParquetFile(
            file.path,
            read_dictionary=list(dictionaries),
            buffer_size=1 << 20,
            pre_buffer=False,
            page_checksum_verification=True,
        )


@contextmanager
def _damage_in_one_line() -> Iterator[None]:
    """Raise DamagedFile for a damaged Parquet file."""
    try:
        yield
    except (pa.ArrowException, OSError, OverflowError) as error:
        if _is_of_machine(error):
            raise
        reason = " ".join(str(error).split())
        raise DamagedFile(f"not a Parquet file, or a damaged one ({reason})") from error


def _is_of_machine(error: Exception) -> bool:
    """Whether the memory or the disk failed and not the file: that may be temporary."""
    return isinstance(error, MemoryError) or getattr(error, "errno", None) is not None


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
class DocumentBatch:
    """Documents that are processed together: a table of the document, ``id`` and kept fields.

    ``read`` is the number of bytes of the file read since the start of the chunk.
    """

    table: pa.Table
    positions: np.ndarray
    rejects: Sequence[Reject]
    read: int


def until_damage(rows: Iterator[T], compression: str = "") -> Iterator[T | Reject]:
    """The rows, and a Reject for damage after which nothing can be read, at position -1.

    A compressed file that ends too early is right up to its end. Raises DamagedFile where it is
    damaged otherwise: its checksum stands at the end, and what it holds before can be wrong.
    """
    try:
        yield from rows
    except (pa.ArrowException, *DAMAGE) as error:
        if _is_of_machine(error):
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        if compression and not (isinstance(error, EOFError) or "Truncated" in reason):
            raise DamagedFile(
                f"the file is damaged, and nothing of it is read: {reason}"
            ) from error
        yield Reject(-1, f"the file is damaged, and nothing after this can be read: {reason}")


def too_long(position: int, size: int, limit: int) -> Reject:
    """The reject for a row longer than ``limit`` bytes; its content is not kept."""
    return Reject(
        position,
        f"the row has {size:,} bytes, more than {limit:,}; max_row_bytes allows longer ones",
    )


def as_text(row: object) -> Any:
    """A row for a reject: bytes as text, whatever they hold."""
    return row.decode("utf8", errors="backslashreplace") if isinstance(row, bytes) else row


def batch_schema(document: pa.Field = DOCUMENT, kept: Iterable[pa.Field] = ()) -> pa.Schema:
    """The schema of the table of a batch: the document, its id, and the kept fields.

    >>> batch_schema().names
    ['text', 'id']
    """
    others = (field for field in kept if field.name != document.name)
    return pa.schema([document, pa.field("id", pa.string()), *others])
