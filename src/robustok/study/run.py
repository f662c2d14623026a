"""Run a study's cells, keep each result, and go on where an earlier run stopped.

A folder holds `study.json` (the resolved study), `cells/KEY/` (one folder a cell, finished once
its `cell.json` is there) and `results.jsonl` (a row for every measurement so far).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from robustok.errors import RobustokError
from robustok.study.config import Study
from robustok.study.plan import Cell, plan
from robustok.study.results import result_rows
from robustok.study.store import (
    disk_full_in_one_line,
    locked,
    read_json,
    write_json,
    write_rows,
)
from robustok.study.work import do_cell, is_finished, record_of
from robustok.study.workers import work_side_by_side


class Watch(Protocol):
    """Who is told how far a run is; the command line draws its bars from this."""

    def plan(self, cells: tuple[Cell, ...], finished: set[str]) -> None: ...
    def start(self, cell: Cell) -> None: ...
    def progress(self, cell: Cell, done: int, total: int) -> None: ...
    def finish(self, cell: Cell, record: Mapping[str, Any]) -> None: ...


class Silent:
    """Tells nobody."""

    def plan(self, cells: tuple[Cell, ...], finished: set[str]) -> None: ...
    def start(self, cell: Cell) -> None: ...
    def progress(self, cell: Cell, done: int, total: int) -> None: ...
    def finish(self, cell: Cell, record: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True)
class Run:
    """A finished run: where it lies, and its rows."""

    folder: Path
    rows: list[dict[str, Any]]


def run_study(
    study: Study, folder: Path, *, jobs: int | None = None, watch: Watch | None = None
) -> Run:
    """Do what is not yet done of a study, and write its results.

    The same call after an interruption, however hard, goes on from the last finished cell and
    ends with the same accuracies. A study that says how many `threads` a cell works with has its
    cells done in processes of their own, `jobs` side by side (as many as the cores allow, if not
    given); then the number of cores changes no result.

    Raises RobustokError where the folder was made by another study, is in use, or the disk is full.
    """
    watch = watch or Silent()
    cells = plan(study)
    with disk_full_in_one_line(folder), locked(folder):
        _claim(study, folder)
        records = {cell.key: record_of(cell, folder) for cell in cells if is_finished(cell, folder)}
        watch.plan(cells, set(records))

        def finished(cell: Cell) -> None:
            records[cell.key] = record_of(cell, folder)
            watch.finish(cell, records[cell.key])
            write_rows(folder / "results.jsonl", result_rows(study, cells, records))

        todo = [cell for cell in cells if cell.key not in records]
        if study.threads:
            count = jobs or max(1, _cores() // study.threads)
            work_side_by_side(todo, folder, count, study.threads, watch, finished)
        else:
            _work_in_order(todo, folder, watch, finished)
        rows = result_rows(study, cells, records)
        write_rows(folder / "results.jsonl", rows)
        return Run(folder, rows)


def _work_in_order(
    todo: Sequence[Cell], folder: Path, watch: Watch, finished: Callable[[Cell], None]
) -> None:
    for cell in todo:
        watch.start(cell)
        do_cell(cell, folder, lambda done, total, cell=cell: watch.progress(cell, done, total))
        finished(cell)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
