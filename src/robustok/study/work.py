"""Runs one cell and writes its record; checks the record of a finished cell."""

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

RECORD = "cell.json"  # written last
LOG = "log.txt"
FIELDS = {"kind", "fields", "inputs", "seconds", "versions", "result"}  # of a record
SAVED_EVERY = 30  # seconds between two writes of the time spent on an unfinished cell


_log = logging.getLogger(__name__)


def is_finished(cell: Cell, folder: Path) -> bool:
    return (cell.path(folder) / RECORD).exists()


def record_of(cell: Cell, folder: Path) -> dict[str, Any] | None:
    """The record of a finished cell, or None if it is unfinished or its files changed.

    A cell whose checksums do not match is logged in one line, and its record is removed, so that
    the cell runs again.
    """
    path = cell.path(folder) / RECORD
    if not path.exists():
        return None
    record = read_json_or_none(path)
    damage = _damage(record, path.parent)
    if damage is None:
        return record
    _log.warning("cell '%s' in %s is damaged (%s) and runs again",
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
    """Run one cell, from its last checkpoint if it has one, and write its record."""
    place = cell.path(folder)
    place.mkdir(parents=True, exist_ok=True)
    spent = _Stopwatch(place / "seconds.json")

    def noted(done: int, total: int) -> None:
        spent.save()
        progress(done, total)

    log = place / LOG
    _note(log, f"{cell.label}: started, process {os.getpid()} on {platform.node()}")
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
    spent.remove()
    record["files"] = digests_of(place, skip=(RECORD, LOG))
    write_json(place / RECORD, record | {"digest": json_digest(record)})
    _note(log, f"finished after {record['seconds']} s")


def _note(log: Path, text: str) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{now} {text}\n")


class _Stopwatch:
    """Seconds spent on a cell, in interrupted runs too."""

    def __init__(self, path: Path) -> None:
        self._path = path
        before = read_json_or_none(path)
        self._before = float(before) if isinstance(before, (int, float)) else 0.0
        self._start = self._noted = time.monotonic()

    def total(self) -> float:
        return self._before + time.monotonic() - self._start

    def save(self) -> None:
        if time.monotonic() - self._noted > SAVED_EVERY:
            self._noted = time.monotonic()
            write_json(self._path, self.total())

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
