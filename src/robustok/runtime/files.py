"""Files that the package writes and reads back: atomic writes, JSON, CSV, full disks, locks."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from robustok.errors import RobustokError

JsonObject = dict[str, Any]
"""An object of JSON that is made: a row of results, a record, a request."""

JsonFields = Mapping[str, Any]
"""The fields of one that is read."""


@contextmanager
def part_of(path: Path) -> Iterator[Path]:
    """A temporary file that replaces ``path`` when the block ends without an error.

    The file is synced to disk before it gets its name, so a reader sees the old content or the new
    one. A killed writer leaves at most a hidden ``.part`` file, of a random name. A link stays, and
    the file that it names is replaced. Raises RobustokError for a device or a pipe.
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
    """Write a file atomically. Text is written as UTF-8 without translating line ends."""
    with _errors_name(path), part_of(path) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


def json_text(value: object, **layout: Any) -> str:
    """A value as JSON, with its characters as they are; raises RobustokError for NaN, infinity.

    ``layout`` are options of `json.dumps`.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, **layout)
    except ValueError as error:
        raise RobustokError(
            f"a result is not a finite number, which JSON has not: {error}"
        ) from None


def write_json(path: Path, value: object) -> None:
    """Write a value as JSON, atomically."""
    write_whole(path, json_text(value, indent=2) + "\n")


def write_rows(path: Path, rows: Iterable[object]) -> None:
    """Write values as JSON Lines without spaces, atomically."""
    opened = part_of(path)
    with _errors_name(path), opened as part, part.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json_text(row, separators=(",", ":")) + "\n")


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
            f"{folder} cannot be written ({reason_of(error)}): free some space and give the same "
            "command again; it continues after the last finished part"
        ) from error


def read_json(path: Path) -> Any:
    """The value of a JSON file; raises RobustokError where it cannot be read or is not JSON."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise RobustokError(f"{path} cannot be read ({reason_of(error)})") from None
    except (ValueError, RecursionError) as error:
        raise RobustokError(
            f"{path} is not JSON ({reason_of(error)}): remove it and run again"
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


def reason_of(error: BaseException) -> str:
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


def studies() -> dict[str, str]:
    """The YAML of every study that comes with robustok, by name.

    >>> list(studies())[:3]
    ['bound', 'bpe-dropout-cute', 'bpe-dropout-langgame']
    """
    folder = files("robustok") / "studies"
    if not folder.is_dir():
        # A wheel has them in the package, a checkout beside what was measured with them.
        folder = Path(__file__).parents[3] / "experiments/studies"
    entries = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".yaml")}
    return {
        name.removesuffix(".yaml"): entries[name].read_text(encoding="utf-8")
        for name in sorted(entries)
    }
