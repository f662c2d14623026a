"""Files: atomic writes, JSON, JSON Lines, decompression, locks, full disks, finished groups."""

from __future__ import annotations

import csv
import errno
import gzip
import hashlib
import io
import json
import logging
import lzma
import os
import sys
import uuid
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from robustok.errors import RobustokError
from robustok.runtime.display import Progress, part_of_progress

_log = logging.getLogger(__name__)
COMPRESSIONS = (".gz", ".xz", ".zst")
# Formats of a corpus file, by its suffix. They are here and not in corpus/, which needs pyarrow.
FORMATS = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".txt": "text",
}
JsonObject = dict[str, Any]
"""An object of JSON that is made: a row of results, a record, a request."""
JsonFields = Mapping[str, Any]
"""The fields of one that is read."""


# Writing


@contextmanager
def part_of(path: Path) -> Iterator[Path]:
    """A temporary file that replaces ``path`` when the block ends without an error.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with part_of(path) as part:
    ...     _ = part.write_text("whole")
    >>> path.read_text()
    'whole'

    The file is synced to disk before it gets its name, so a reader sees the old content or the new
    one. A killed writer leaves at most a hidden ``.part`` file. The temporary name is random: two
    writers do not share it. A link stays, and the file that it names is replaced. Raises
    RobustokError for a device or a pipe.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise RobustokError(f"'{path}' is a device or a pipe: give the name of a file")
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        yield part
        _sync(part)
        part.replace(path)
        _sync(path.parent)
    finally:
        part.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file atomically. Text is written as UTF-8 without translating line ends.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.txt"
    >>> write_whole(path, "whole")
    >>> path.read_text()
    'whole'
    """
    with _errors_name(path), part_of(path) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


def json_text(value: object, indent: int | None = None) -> str:
    """A value as JSON, with its characters as they are.

    >>> json_text({"ü": 0.5})
    '{"ü": 0.5}'

    Raises RobustokError for a number that JSON has not: NaN or infinity.
    """
    try:
        return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise RobustokError(
            f"a result is not a finite number, which JSON has not: {error}"
        ) from None


def write_json(path: Path, value: object) -> None:
    """Write a value as JSON, atomically."""
    write_whole(path, json_text(value, indent=2) + "\n")


def write_record(path: Path, record: JsonObject) -> None:
    """Write an object as JSON, atomically, with a digest of it as its last field."""
    write_json(path, record | {"digest": json_digest(record)})


def write_rows(path: Path, rows: Iterable[object]) -> None:
    """Write values as JSON Lines, atomically."""
    opened = part_of(path)
    with _errors_name(path), opened as part, part.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json_text(row) + "\n")


@contextmanager
def _errors_name(path: Path) -> Iterator[None]:
    """Add the file's name to the error of a write, which Python raises without one."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def write_csv(path: Path, rows: Sequence[JsonFields], fields: Sequence[str] | None = None) -> None:
    """Write rows as CSV, atomically: the given fields, or else those of the first row.

    A text that a spreadsheet would compute as a formula begins with an apostrophe.
    """
    text = io.StringIO()
    names = fields if fields is not None else list(rows[0]) if rows else []
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    write_whole(path, text.getvalue())


def _cell(value: object) -> Any:
    if not isinstance(value, str):
        return value
    value = value.replace("\r", " ")  # `csv` does not quote it, and readers end a row there
    return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t")) else value


def clear_parts(folder: Path) -> None:
    """Remove the temporary files of killed writers; only for the holder of the folder's lock."""
    for part in folder.glob(".*.part"):
        part.unlink(missing_ok=True)


# Of a full disk, by errno, and in errors of the writers of safetensors, Arrow and torch.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL_TEXTS = (
    *(os.strerror(number) for number in _FULL),
    *(f"(os error {number})" for number in _FULL),
    "PytorchStreamWriter",
    "iostream error",
    "unexpected pos",
)


def is_disk_full(error: BaseException) -> bool:
    """Whether an error, from Python or from a library's own writer, means that the disk is full."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    return any(text in str(error) for text in _FULL_TEXTS)


@contextmanager
def disk_full_in_one_line(folder: Path) -> Iterator[None]:
    """Turn the error of a full disk into a RobustokError that says how to continue."""
    try:
        yield
    except Exception as error:
        if not is_disk_full(error):
            raise
        raise RobustokError(
            f"{folder} cannot be written ({_reason(error)}): free some space and give the same "
            "command again; it continues after the last finished part"
        ) from error


# Reading


def read_json(path: Path) -> Any:
    """The value of a JSON file.

    Raises RobustokError where the file cannot be read or is not JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise RobustokError(f"{path} cannot be read ({_reason(error)})") from None
    except (ValueError, RecursionError) as error:
        raise RobustokError(
            f"{path} is not JSON ({_reason(error)}): remove it and run again"
        ) from None


def read_object(path: Path) -> dict[str, Any]:
    """The object of a JSON file. Raises RobustokError for anything else, as :func:`read_json`."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise RobustokError(f"{path} is damaged (not a JSON object): remove it")
    return value


def read_record(path: Path) -> JsonObject | None:
    """The object of a file of :func:`write_record`, or None where it is missing or damaged.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.json"
    >>> write_record(path, {"seed": 0})
    >>> read_record(path)
    {'seed': 0}
    """
    record = read_json_or_none(path)
    if not isinstance(record, dict):
        return None
    digest = record.pop("digest", None)
    return record if digest == json_digest(record) else None


def read_json_or_none(path: Path) -> Any:
    """The value of a JSON file, or None where the file is missing or damaged."""
    try:
        return read_json(path)
    except RobustokError:
        return None


def kind_of(path: Path) -> tuple[str, str] | None:
    """Format and compression of a corpus file by its name, or None.

    >>> kind_of(Path("a.jsonl.zst")), kind_of(Path("a.parquet")), kind_of(Path("a.csv"))
    (('jsonl', '.zst'), ('parquet', ''), None)
    """
    compression = path.suffix if path.suffix in COMPRESSIONS else ""
    kind = FORMATS.get((path.with_suffix("") if compression else path).suffix)
    if kind is None or (kind == "parquet" and compression):
        return None
    return kind, compression


def decompressed(raw: IO[bytes], suffix: str) -> IO[bytes]:
    """Decompress a stream, by the suffix of its file name.

    A suffix outside :data:`COMPRESSIONS` gives the stream itself. A file that ends too early
    raises an error when it is read, one of :data:`DAMAGE`.
    """
    if suffix == ".gz":
        return gzip.open(raw)  # type: ignore[return-value]
    if suffix == ".xz":
        return lzma.open(raw)
    if suffix == ".zst":
        import pyarrow as pa

        # Unlike the reader of the package zstandard, Arrow's reports a file that ends too early.
        reader = pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd")
        return io.BufferedReader(reader, 1 << 20)  # type: ignore[arg-type]
    return raw


DAMAGE = (EOFError, zlib.error, lzma.LZMAError, OSError)  # of a damaged file


def read_text(path: Path) -> str:
    """The text of a file, which may be compressed; line ends are kept.

    Raises RobustokError where it is missing, damaged or not UTF-8.
    """
    try:
        with path.open("rb") as raw:
            return decompressed(raw, path.suffix).read().decode()
    except (ValueError, *DAMAGE) as error:
        raise RobustokError(f"{path} cannot be read as UTF-8 text ({_reason(error)})") from None


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """The line numbers and values of a file of JSON Lines, which may be compressed.

    Empty lines are skipped. Lines end at ``\\n`` only, since JSON may hold other line separators.
    Raises RobustokError, which names the line, for a missing or damaged file.
    """
    for number, value, _ in json_lines_and_shares(path):
        yield number, value


def json_lines_and_shares(path: Path) -> Iterator[tuple[int, Any, float]]:
    """As :func:`json_lines`, each value with the share of the file that is read."""
    number = 0
    try:
        with path.open("rb") as raw:
            size = max(path.stat().st_size, 1)
            for number, line in enumerate(decompressed(raw, path.suffix), 1):
                if line.strip():
                    yield number, json.loads(line.decode()), min(raw.tell() / size, 1.0)
    except (ValueError, RecursionError) as error:
        raise RobustokError(
            f"{path}:{number} is not JSON ({_reason(error)}): give a file of one JSON object a line"
        ) from None
    except DAMAGE as error:
        raise RobustokError(
            f"{path} cannot be read after line {number} ({_reason(error)})"
        ) from None


def read_rows(path: Path) -> list[Any]:
    """The values of a file of JSON Lines."""
    return [value for _, value in json_lines(path)]


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests_of(folder: Path, *patterns: str, skip: Container[str] = ()) -> dict[str, str]:
    """The SHA-256 of a folder's files by their path in it; hidden files are left out.

    ``patterns`` are globs; without any, all files are taken, in subfolders too. ``skip`` are names.
    """
    paths = {path for pattern in patterns or ("**/*",) for path in folder.glob(pattern)}
    names = {path.relative_to(folder): path for path in paths if path.is_file()}
    return {
        name.as_posix(): sha256_of(path)
        for name, path in sorted(names.items())
        if path.name not in skip and not any(part.startswith(".") for part in name.parts)
    }


def find_damage(folder: Path, digests: object) -> str | None:
    """The first file that is missing or has not the given SHA-256, or None."""
    if not isinstance(digests, dict):
        return "no checksums"
    for name, digest in digests.items():
        try:
            if sha256_of(folder / name) != digest:
                return f"{name} has changed"
        except OSError:
            return f"{name} is missing"
    return None


def read_finished(path: Path, what: str) -> JsonObject | None:
    """The record of finished work whose files are as it left them, or None.

    Its ``files`` are the SHA-256 of each by its path in the record's folder. A damaged record, or
    one of damaged files, is reported in one line of the log and removed, so that the work, ``what``
    in this line, is done again.
    """
    if not path.exists():
        return None
    record = read_record(path)
    if record is None:
        damage = f"{path.name} has changed"
    else:
        damage = find_damage(path.parent, record.get("files"))
    if damage is None:
        return record
    _log.warning("%s in %s is damaged (%s) and is done again", what, path.parent, damage)
    path.unlink()
    return None


def json_digest(value: object) -> str:
    """A short hash of a JSON value, the same after it was written and read."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# Locks


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for one run.

    The system releases the lock when the process ends. The hidden lock file in the folder is kept.
    Raises RobustokError where another run holds it, or where it cannot be written.
    """
    from filelock import FileLock, Timeout

    if folder.exists() and not folder.is_dir():
        raise RobustokError(f"{folder} is a file; give a folder")
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(folder / ".lock", blocking=False))
        except Timeout:
            raise RobustokError(
                f"another run is at work in {folder}; wait for it, or give another folder"
            ) from None
        except OSError as error:
            if is_disk_full(error):
                raise
            reason = f"{folder} cannot be written ({error.strerror}); give another place"
            raise RobustokError(reason) from None
        yield


def _reason(error: BaseException) -> str:
    """The first line of an error's message, without the context that some add."""
    for name in ("msg", "strerror", "reason"):
        if isinstance(text := getattr(error, name, None), str):
            return text
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _sync(path: Path) -> None:
    """Write a file or the entries of a folder to disk; Windows opens no folder."""
    is_windows = sys.platform == "win32"
    if is_windows and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if is_windows else os.O_RDONLY)  # it syncs no reader's handle
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Groups of questions, after each of which an interrupted run continues


def in_groups(
    folder: Path | None,
    config: JsonObject,
    questions: Sequence[Any],
    run: Callable[[Sequence[Any], Progress], JsonObject],
    progress: Progress,
    *,
    size: int,
) -> list[JsonObject]:
    """What ``run`` gives, as JSON, for each group of ``size`` questions; ``folder`` keeps them.

    A run that was stopped repeats one group only. Groups do not depend on where it stopped: how a
    score rounds depends on the whole batch. A damaged file is done again. Without a folder, nothing
    is kept.

    Raises RobustokError where another run holds the folder, or where it has results under another
    ``config``, and for a full disk.
    """
    results = []
    with ExitStack() as stack:
        if folder is not None:
            stack.enter_context(locked(folder))
            stack.enter_context(disk_full_in_one_line(folder))
        for begin in range(0, len(questions), size):
            group = questions[begin : begin + size]
            path = folder and folder / f"{begin:06}.json"
            result = path and _finished(path, config)
            if result is None:
                result = run(group, part_of_progress(progress, begin, len(questions)))
                if path is not None:
                    write_record(path, {"config": config, "result": result})
            results.append(result)
            progress(begin + len(group), len(questions))
    return results


def _finished(path: Path, config: JsonObject) -> JsonObject | None:
    """The result of a group in a file of this configuration; None for a new or a damaged file."""
    record = read_record(path)
    if record is None:
        if path.exists():
            _log.warning("%s is damaged and done again", path)
        return None
    wanted = json.loads(json.dumps(config))
    changed = sorted(name for name in wanted if record["config"].get(name) != wanted[name])
    if changed:
        raise RobustokError(
            f"'{path.parent}' holds results with other {', '.join(changed)}: delete it, or give "
            "another folder"
        )
    return record["result"]
