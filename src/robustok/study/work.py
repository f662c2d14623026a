"""One cell's work, from its folder to its record."""

from __future__ import annotations

import os
import platform
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from robustok.files import read_json, write_json
from robustok.study.cells import KINDS, Progress
from robustok.study.plan import Cell
from robustok.versions import versions

RECORD = "cell.json"  # of a cell's files the last to be written
SAVED_EVERY = 30  # seconds between two notes of how long an unfinished cell has run


def place_of(cell: Cell, folder: Path) -> Path:
    """Where a cell's files lie in a run's folder."""
    return folder / "cells" / cell.key


def is_finished(cell: Cell, folder: Path) -> bool:
    return (place_of(cell, folder) / RECORD).exists()


def record_of(cell: Cell, folder: Path) -> dict[str, Any]:
    """What is kept of a finished cell."""
    return read_json(place_of(cell, folder) / RECORD)


def do_cell(cell: Cell, folder: Path, progress: Progress) -> None:
    """Do one cell, or go on with it, and write its record last."""
    place = place_of(cell, folder)
    place.mkdir(parents=True, exist_ok=True)
    inputs = {role: place_of(other, folder) for role, other in cell.inputs.items()}
    spent = _Stopwatch(place / "seconds.json")

    def noted(done: int, total: int) -> None:
        spent.note()
        progress(done, total)

    log = place / "log.txt"
    _note(log, f"{cell.label} begins, process {os.getpid()} on {platform.node()}")
    try:
        result = KINDS[cell.kind](cell, place, inputs, noted)
    except BaseException:
        _note(log, traceback.format_exc())
        raise
    record = {
        "kind": cell.kind,
        "fields": dict(cell.fields),
        "inputs": {role: other.key for role, other in cell.inputs.items()},
        "seconds": round(spent.total(), 2),
        "versions": versions(),
        "result": result,
    }
    write_json(place / RECORD, record)
    _note(log, f"done after {record['seconds']} s")
    spent.forget()


def _note(log: Path, text: str) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{now} {text}\n")


class _Stopwatch:
    """Seconds spent on a cell, those of runs that were cut short included."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before: float = read_json(path) if path.exists() else 0.0
        self._start = self._noted = time.monotonic()

    def total(self) -> float:
        return self._before + time.monotonic() - self._start

    def note(self) -> None:
        if time.monotonic() - self._noted > SAVED_EVERY:
            self._noted = time.monotonic()
            write_json(self._path, self.total())

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)
