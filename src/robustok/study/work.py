"""One cell's work, from its folder to its record."""

from __future__ import annotations

import logging
import os
import platform
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from robustok.display import Progress
from robustok.files import digests_of, find_damage, json_digest, read_json_or_none, write_json
from robustok.study.cells import Cell
from robustok.versions import versions

RECORD = "cell.json"  # of a cell's files the last to be written
LOG = "log.txt"
FIELDS = {"kind", "fields", "inputs", "seconds", "versions", "result"}  # of a record
SAVED_EVERY = 30  # seconds between two notes of how long an unfinished cell has run


_log = logging.getLogger(__name__)


def is_finished(cell: Cell, folder: Path) -> bool:
    return (cell.path(folder) / RECORD).exists()


def record_of(cell: Cell, folder: Path) -> dict[str, Any] | None:
    """The record of a finished cell whose files are as it left them, or None.

    The checksums of a damaged cell do not match: it is reported in one line of the log, and its
    record is removed, so that the cell is done again.
    """
    path = cell.path(folder) / RECORD
    if not path.exists():
        return None
    record = read_json_or_none(path)
    damage = _damage(record, path.parent)
    if damage is None:
        return record
    _log.warning("the cell '%s' in %s is damaged (%s): it is done again",
                 cell.label, path.parent, damage)  # fmt: skip
    path.unlink()
    return None


def _damage(record: Any, place: Path) -> str | None:
    """What is wrong with a cell's record or the files it lists, in a few words."""
    if not isinstance(record, dict):
        return RECORD
    if set(record) == FIELDS:  # of a release without checksums
        return None
    content = {name: value for name, value in record.items() if name != "digest"}
    if set(content) != FIELDS | {"files"} or record.get("digest") != json_digest(content):
        return f"{RECORD} has changed"
    return find_damage(place, record["files"])


def do_cell(cell: Cell, folder: Path, progress: Progress) -> None:
    """Do one cell, or go on with it, and write its record last."""
    place = cell.path(folder)
    place.mkdir(parents=True, exist_ok=True)
    spent = _Stopwatch(place / "seconds.json")

    def noted(done: int, total: int) -> None:
        spent.note()
        progress(done, total)

    log = place / LOG
    _note(log, f"{cell.label} begins, process {os.getpid()} on {platform.node()}")
    try:
        result = cell.run(folder, noted)
    except BaseException:
        _note(log, traceback.format_exc())
        raise
    record = {
        "kind": cell.kind,
        "fields": cell.fields,
        "inputs": {role: other.key for role, other in cell.inputs.items()},
        "seconds": round(spent.total(), 2),
        "versions": versions(),
        "result": result,
    }
    spent.forget()
    record["files"] = digests_of(place, skip=(RECORD, LOG))
    write_json(place / RECORD, record | {"digest": json_digest(record)})
    _note(log, f"done after {record['seconds']} s")


def _note(log: Path, text: str) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{now} {text}\n")


class _Stopwatch:
    """Seconds spent on a cell, those of runs that were cut short included."""

    def __init__(self, path: Path) -> None:
        self._path = path
        before = read_json_or_none(path)
        self._before = float(before) if isinstance(before, (int, float)) else 0.0
        self._start = self._noted = time.monotonic()

    def total(self) -> float:
        return self._before + time.monotonic() - self._start

    def note(self) -> None:
        if time.monotonic() - self._noted > SAVED_EVERY:
            self._noted = time.monotonic()
            write_json(self._path, self.total())

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)
