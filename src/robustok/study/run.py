"""Run a study's cells in order, keep each result, and go on where an earlier run stopped.

A folder holds `study.json` (the resolved study), `cells/KEY/` (one folder a cell, finished once
its `cell.json` is there) and `results.jsonl` (a row for every measurement so far).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from robustok.errors import RobustokError
from robustok.study.cells import KINDS
from robustok.study.config import Study
from robustok.study.plan import Cell, plan
from robustok.study.store import (
    disk_full_in_one_line,
    locked,
    read_json,
    write_json,
    write_rows,
)
from robustok.versions import versions

SAVED_EVERY = 30  # seconds between two notes of how long an unfinished cell has run


class Watch(Protocol):
    """Who is told how far a run is; the command line draws its bars from this."""

    def plan(self, cells: tuple[Cell, ...], finished: set[str]) -> None: ...
    def start(self, cell: Cell) -> None: ...
    def progress(self, done: int, total: int) -> None: ...
    def finish(self, cell: Cell, record: Mapping[str, Any]) -> None: ...


class Silent:
    """Tells nobody."""

    def plan(self, cells: tuple[Cell, ...], finished: set[str]) -> None: ...
    def start(self, cell: Cell) -> None: ...
    def progress(self, done: int, total: int) -> None: ...
    def finish(self, cell: Cell, record: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True)
class Run:
    """A finished run: where it lies, and its rows."""

    folder: Path
    rows: list[dict[str, Any]]


def run_study(study: Study, folder: Path, *, watch: Watch | None = None) -> Run:
    """Do what is not yet done of a study, and write its results.

    The same call after an interruption, however hard, goes on from the last finished cell and
    ends with the same accuracies.

    Raises RobustokError where the folder was made by another study, is in use, or the disk is full.
    """
    watch = watch or Silent()
    cells = plan(study)
    with disk_full_in_one_line(folder), locked(folder):
        _claim(study, folder)
        finished = {cell.key for cell in cells if (_place(folder, cell) / "cell.json").exists()}
        watch.plan(cells, finished)
        records: dict[str, dict[str, Any]] = {}
        for cell in cells:
            if cell.key not in finished:
                watch.start(cell)
                _do(cell, folder, watch)
            records[cell.key] = read_json(_place(folder, cell) / "cell.json")
            if cell.key not in finished:
                watch.finish(cell, records[cell.key])
                write_rows(folder / "results.jsonl", _rows(study, cells, records))
        rows = _rows(study, cells, records)
        write_rows(folder / "results.jsonl", rows)
        return Run(folder, rows)


def _place(folder: Path, cell: Cell) -> Path:
    return folder / "cells" / cell.key


def _do(cell: Cell, folder: Path, watch: Watch) -> None:
    place = _place(folder, cell)
    place.mkdir(parents=True, exist_ok=True)
    inputs = {role: _place(folder, other) for role, other in cell.inputs.items()}
    spent = _Stopwatch(place / "seconds.json")

    def progress(done: int, total: int) -> None:
        spent.note()
        watch.progress(done, total)

    result = KINDS[cell.kind](cell, place, inputs, progress)
    record = {
        "kind": cell.kind,
        "fields": dict(cell.fields),
        "inputs": {role: other.key for role, other in cell.inputs.items()},
        "seconds": round(spent.total(), 2),
        "versions": versions(),
        "result": result,
    }
    write_json(place / "cell.json", record)
    spent.forget()


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


def _claim(study: Study, folder: Path) -> None:
    """Write the resolved study into a new folder, or see that the folder is this study's."""
    path = folder / "study.json"
    wanted = study.model_dump(mode="json")
    if not path.exists():
        strangers = [p.name for p in folder.iterdir() if p.name not in (".lock", "study.json.part")]
        if strangers:
            raise RobustokError(
                f"{folder} holds other files ({strangers[0]}); give --out a new or empty folder"
            )
        write_json(path, wanted)
        return
    difference = _difference(read_json(path), wanted)
    if difference:
        raise RobustokError(
            f"{folder} was made with another configuration ({difference});"
            " give --out another folder, or remove that one"
        )


def _difference(there: Any, here: Any, name: str = "") -> str:
    """The first field in which two configurations differ, or nothing."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in [*here, *(k for k in there if k not in here)]:
            said = _difference(there.get(key), here.get(key), f"{name}.{key}" if name else key)
            if said:
                return said
        return ""
    return "" if there == here else f"{name} is {there!r} there and {here!r} here"


def _rows(
    study: Study, cells: tuple[Cell, ...], records: Mapping[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """One row for each finished measurement, in the order of the plan."""
    return [
        _row(study, cell, records)
        for cell in cells
        if cell.key in records and cell.kind in ("evaluate", "attack")
    ]


def _row(study: Study, cell: Cell, records: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    model = cell.inputs["model"]
    record = records[cell.key]
    result = record["result"]
    return {
        "study": study.name,
        "train": model.fields["scheme"],
        "query": result["query"],
        "accuracy": result["accuracy"],
        "low": result["low"],
        "high": result["high"],
        "n": result["n"],
        "draws": result["draws"],
        "chance": result["chance"],
        "seed": cell.fields["seed"],
        "seconds": record["seconds"],
        "model": {
            **study.model.model_dump(),
            "architecture": "llama",
            "parameters": records[model.key]["result"]["parameters"],
            "training_seconds": records[model.key]["seconds"],
        },
        **({"start_accuracy": result["start_accuracy"]} if cell.kind == "attack" else {}),
        "cell": cell.key,
        "configuration": _configuration(cell),
        "versions": record["versions"],
    }


def _configuration(cell: Cell) -> dict[str, Any]:
    """Every field that decided a result: the cell's own and, by their role, its inputs'."""
    inputs = {role: _configuration(other) for role, other in cell.inputs.items()}
    return {**cell.fields, **({"inputs": inputs} if inputs else {})}
