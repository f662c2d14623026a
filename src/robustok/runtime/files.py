"""Files: atomic writes, JSON, JSON Lines, decompression, locks, full disks, rows to resume from."""

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
from typing import IO, Any, Self

from robustok.errors import RobustokError
from robustok.runtime.display import Progress, part_of_progress

COMPRESSIONS = (".gz", ".xz", ".zst")
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


def append_whole(path: Path, data: bytes) -> None:
    """Append bytes to a file and sync it; where that fails, the file keeps its old length.

    Raises OSError, for example on a full disk.
    """
    with path.open("ab", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        try:
            view = memoryview(data)
            while view:  # write() may take a part only
                view = view[file.write(view) :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(size)
            raise


def clear_parts(folder: Path) -> None:
    """Remove the temporary files of killed writers; only for the holder of the folder's lock."""
    for part in folder.glob(".*.part"):
        part.unlink(missing_ok=True)


def is_disk_full(error: BaseException) -> bool:
    """Whether an error, from Python or from a library's own writer, means that the disk is full."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    message = str(error).lower()
    return "no space left on device" in message or "(os error 28)" in message


@contextmanager
def disk_full_in_one_line(folder: Path) -> Iterator[None]:
    """Turn the error of a full disk into a RobustokError that says how to continue."""
    try:
        yield
    except Exception as error:
        if not is_disk_full(error):
            raise
        raise RobustokError(
            f"the disk that holds {folder} is full; free some space and give the same command"
            " again: it continues after the last finished part"
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


def read_json_or_none(path: Path) -> Any:
    """The value of a JSON file, or None where the file is missing or damaged."""
    try:
        return read_json(path)
    except RobustokError:
        return None


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
        raise RobustokError(f"{path}:{number} is not JSON ({_reason(error)})") from None
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


def json_digest(value: object) -> str:
    """A short hash of a JSON value, the same after it was written and read."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# Locks


@contextmanager
def locked(target: Path, kind: str = "folder") -> Iterator[None]:
    """Hold a folder, or a file (``kind="file"``), for one run.

    The system releases the lock when the process ends. The hidden lock file, in the folder or next
    to the file, is kept. Raises RobustokError where another run holds it, or where it cannot be
    written.
    """
    from filelock import FileLock, Timeout

    if kind == "folder":
        lock_file = target / ".lock"
        if target.exists() and not target.is_dir():
            raise RobustokError(f"{target} is a file; give a folder")
    else:
        lock_file = target.with_name(f".{target.name}.lock")
    with ExitStack() as stack:
        try:
            lock_file.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(lock_file, blocking=False))
        except Timeout:
            raise RobustokError(
                f"another run is at work in {target}; wait for it, or give another {kind}"
            ) from None
        except OSError as error:
            if is_disk_full(error):
                raise
            reason = f"{target} cannot be written ({error.strerror}); give another place"
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


# Finished rows, from which an interrupted run continues

CHECK = "check"  # the field that holds a row's checksum
GROUP = 32  # questions or prompts that are searched or certified together

_log = logging.getLogger(__name__)


class RowFile:
    """Finished rows under one configuration, by their key, in a file that one run may add to.

    >>> with RowFile("rows.jsonl", {"seed": 0}) as file:
    ...     file.add_row({"key": "a", "accuracy": 0.5})
    >>> with RowFile("rows.jsonl", {"seed": 0}) as file:
    ...     file.rows["a"]
    {'key': 'a', 'accuracy': 0.5}

    The first line is the configuration; a file of another one is refused. Every line ends with a
    checksum of itself. A damaged row, also a last one that a crash cut short, is removed, so that
    it is done again. A new row reaches the file whole or not at all. Without a path, the rows are
    in memory only.

    Raises RobustokError where another run holds the file.
    """

    def __init__(self, path: str | Path | None, config: JsonObject) -> None:
        self.path = None if path is None else Path(path)
        self.rows: dict[str, JsonObject] = {}
        self._config = config
        self._lock = ExitStack()

    def __enter__(self) -> Self:
        if self.path is not None:
            with ExitStack() as stack:
                stack.enter_context(locked(self.path, "file"))
                self._read(self.path)
                self._lock = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.close()

    def add_row(self, row: JsonObject) -> None:
        """Write one finished row; it has a "key"."""
        if self.path is not None:
            _append(self.path, row)
        self.rows[row["key"]] = row

    def in_groups(
        self,
        questions: Sequence[Any],
        run: Callable[[Sequence[Any], Progress], JsonObject],
        progress: Progress,
    ) -> list[JsonObject]:
        """What ``run`` gives, as JSON, for each group of questions; a row is a group.

        A run that was stopped repeats one group only. Groups do not depend on where it stopped: how
        a score rounds depends on the whole batch.
        """
        results = []
        for begin in range(0, len(questions), GROUP):
            key, group = str(begin), questions[begin : begin + GROUP]
            if key not in self.rows:
                self.add_row(
                    {"key": key, **run(group, part_of_progress(progress, begin, len(questions)))}
                )
            results.append(self.rows[key])
            progress(min(begin + GROUP, len(questions)), len(questions))
        return results

    def _read(self, path: Path) -> None:
        """Read the rows of earlier runs and remove damaged ones from the file."""
        content = path.read_bytes() if path.exists() else b""
        lines = content.split(b"\n")
        if not content or (len(lines) == 1 and content.startswith(b'{"config"')):
            path.write_bytes(b"")
            _append(path, {"config": self._config})
            return
        self._check_config(lines[0])
        parsed = [(line, _parse(line)) for line in lines[1:-1]]
        whole = [(line, row) for line, row in parsed if row is not None and "key" in row]
        self.rows = {row["key"]: row for _, row in whole}
        damaged = len(parsed) - len(whole)
        if damaged:
            _log.warning("%s: %d damaged rows are removed and done again", path, damaged)
        if lines[-1] or damaged:
            kept = [lines[0], *(line for line, _ in whole)]
            write_whole(path, b"".join(line + b"\n" for line in kept))

    def _check_config(self, line: bytes) -> None:
        """Refuse a file of another configuration."""
        first = _parse(line)
        if first is None or "config" not in first:
            raise RobustokError(f"'{self.path}' is no resume file: give another name")
        known, wanted = first["config"], json.loads(json.dumps(self._config))
        if known != wanted:
            known = known if isinstance(known, dict) else {}
            changed = sorted(k for k in wanted if known.get(k) != wanted[k])
            raise RobustokError(
                f"'{self.path}' holds results with other "
                f"{', '.join(changed) or 'settings'}: delete it, or name another file"
            )


def _append(path: Path, row: JsonObject) -> None:
    line = json_text(row | {CHECK: json_digest(row)}) + "\n"
    with disk_full_in_one_line(path):
        append_whole(path, line.encode())


def _parse(line: bytes) -> JsonObject | None:
    """A row without its checksum, or None where the row is damaged."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    check = row.pop(CHECK, None)
    return row if check == json_digest(row) else None
