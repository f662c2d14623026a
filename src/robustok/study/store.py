"""Files that are written whole or not at all, so that a run can be killed at any moment."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from robustok.errors import RobustokError
from robustok.files import is_disk_full
from robustok.files import locked as locked


def write_whole(path: Path, text: str | bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.txt"
    >>> write_whole(path, "whole")
    >>> path.read_text()
    'whole'
    """
    data = text.encode() if isinstance(text, str) else text
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise RobustokError(f"{path} is not JSON: {error.msg}; remove it and run again") from None


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write JSON Lines, one row a line, whole."""
    write_whole(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read JSON Lines.

    Raises RobustokError that names the file and the line where one is not JSON.
    """
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise RobustokError(f"{path} line {number} is not JSON: {error.msg}") from None
    return rows


@contextmanager
def disk_full_in_one_line(folder: Path) -> Iterator[None]:
    """Turn a full disk, however it shows itself, into the one line a user can act on."""
    try:
        yield
    except Exception as error:
        if not is_disk_full(error):
            raise
        raise RobustokError(
            f"the disk that holds {folder} is full; free some space and give the same command"
            " again: it goes on from the last finished cell"
        ) from error
