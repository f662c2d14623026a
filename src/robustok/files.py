"""Files that appear whole or not at all, folders held by one run, and how a full disk shows."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from robustok.errors import RobustokError


@contextmanager
def part_of(path: Path) -> Iterator[Path]:
    """A file to fill in place of ``path``, which it becomes when the block ends well.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with part_of(path) as part:
    ...     _ = part.write_text("whole")
    >>> path.read_text()
    'whole'

    It is on disk, not only in memory, before it takes the name; a reader sees the old file or the
    new, and a kill leaves at most a hidden ``.part`` file. Two writers do not meet.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        yield part
        _sync(part)
        part.replace(path)
        _sync(path.parent)
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, whole or not at all."""
    with part_of(path) as part:
        part.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf8")


def read_json(path: Path) -> Any:
    """The value of a JSON file, or None where it is missing or broken."""
    try:
        return json.loads(path.read_text(encoding="utf8"))
    except (FileNotFoundError, ValueError):
        return None


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def clear_parts(folder: Path) -> None:
    """Remove what killed writers left; for the holder of the folder's lock."""
    for part in folder.glob(".*.part"):
        part.unlink(missing_ok=True)


def is_disk_full(error: BaseException) -> bool:
    """Whether an error, from Python or from a library's own writer, means that the disk is full."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    said = str(error).lower()
    return "no space left on device" in said or "(os error 28)" in said


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for one run. The lock goes with the process, even when that is killed.

    Raises RobustokError where another process holds it, or where it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("w")
    except (FileExistsError, NotADirectoryError):
        raise RobustokError(f"{folder} is a file; give a folder") from None
    except OSError as error:
        if is_disk_full(error):
            raise
        raise RobustokError(
            f"{folder} cannot be written ({error.strerror}); give another folder"
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RobustokError(
                f"another run is at work in {folder}; wait for it, or give another folder"
            ) from None
        yield


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
