"""Runs cells and writes their records; checks the record of a finished cell."""

from __future__ import annotations

import os
import platform
import time
import traceback
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol

from robustok.errors import RobustokError
from robustok.runtime.environment import available_cores
from robustok.runtime.files import JsonFields, JsonObject, read_json_or_none, write_json
from robustok.runtime.packages import versions
from robustok.runtime.processes import InProcess, Pool, Processes, Worker, dispatch
from robustok.runtime.records import digests_of, read_finished, write_record
from robustok.study.cell import Cell
from robustok.study.models import close_model

RECORD = "cell.json"  # written last
LOG = "log.txt"
SAVED_EVERY = 30  # seconds between two writes of the time spent on an unfinished cell


class Watch(Protocol):
    """Callbacks for the progress of a run, which do nothing; the command line draws its bars here.

    >>> from robustok.study import find_study, plan
    >>> class Labels(Watch):
    ...     def finish(self, cell, record):
    ...         print("done:", cell.label)
    >>> Labels().finish(plan(find_study("quick"))[0], {})
    done: data

    The arguments:

    - `cells`: in `plan`, called once at the start: all cells of the study.
    - `finished`: in `plan`: the records of the cells that an earlier run finished, by key.
    - `cell`: in `start`, `progress` and `finish`: the cell concerned.
    - `done`: in `progress`: work done, in the cell's own unit.
    - `total`: in `progress`: all work of the cell.
    - `record`: in `finish`: the record of the cell, with its summary.
    """

    def plan(self, cells: tuple[Cell, ...], finished: Mapping[str, object]) -> None:
        pass

    def start(self, cell: Cell) -> None:
        pass

    def progress(self, cell: Cell, done: int, total: int) -> None:
        pass

    def finish(self, cell: Cell, record: JsonFields) -> None:
        pass


class NoWatch(Watch):
    """What watches a run by default."""


def run_cells(
    todo: Sequence[Cell],
    folder: Path,
    watch: Watch,
    finished: Container[str],
    threads: int | None = None,
    jobs: int | None = None,
) -> Iterator[Cell]:
    """Run the unfinished cells, each after its inputs; yield each when it is finished.

    The caller adds the keys of finished cells to ``finished``. With ``threads`` each cell has a
    process of its own, of which ``jobs`` run at once. An error in one cell ends all.
    """

    def progress(cell: Cell, value: tuple[int, int]) -> None:
        watch.progress(cell, *value)

    def is_ready(cell: Cell) -> bool:
        return all(other.key in finished for other in cell.inputs.values())

    with ExitStack() as stack:
        pool: Pool
        if threads:
            count = min(cells_at_once(threads, jobs), len(todo))
            make = partial(Worker, _runner, folder, threads)
            pool = stack.enter_context(Processes(make, count, progress, _raise_death))
        else:
            stack.callback(close_model)
            pool = InProcess(_runner(folder), progress)
        for cell, _ in dispatch(todo, pool, is_ready=is_ready, on_start=watch.start):
            yield cell


def cells_at_once(threads: int | None, jobs: int | None) -> int:
    """The number of cells that :func:`run_cells` runs at once on this machine."""
    return (jobs or max(1, available_cores() // threads)) if threads else 1


def _raise_death(worker: Worker) -> None:
    task = f"that ran '{worker.task.label}'" if worker.task else "that was idle"
    raise RobustokError(
        f"the process {task} was {worker.exit_reason()}, perhaps because memory ran out: the same"
        " command continues after the last finished cell"
    )


def record_of(cell: Cell, folder: Path) -> JsonObject | None:
    """The record of a finished cell, or None if it is unfinished or, as is logged, was damaged."""
    return read_finished(cell.path(folder) / RECORD, f"cell '{cell.label}'")


def _runner(folder: Path) -> Callable[..., None]:
    return partial(_run_cell, folder)


def _run_cell(folder: Path, cell: Cell, progress: Callable[[tuple[int, int]], None]) -> None:
    """Run one cell, from its last checkpoint if it has one, and write its record."""
    cell_folder = cell.path(folder)
    cell_folder.mkdir(parents=True, exist_ok=True)
    seconds_file = cell_folder / "seconds.json"  # by interrupted runs
    earlier = read_json_or_none(seconds_file)
    start = time.monotonic() - (earlier if isinstance(earlier, (int, float)) else 0.0)
    saved_at = time.monotonic()

    def on_progress(done: int, total: int) -> None:
        nonlocal saved_at
        if time.monotonic() - saved_at > SAVED_EVERY:
            saved_at = time.monotonic()
            write_json(seconds_file, saved_at - start)
        progress((done, total))

    log = cell_folder / LOG
    _log_line(log, f"{cell.label}: started, process {os.getpid()} on {platform.node()}")
    try:
        result = cell.run(folder, on_progress)
    except BaseException:
        _log_line(log, traceback.format_exc())
        raise
    record = {
        "kind": cell.kind,
        "fields": cell.fields,
        "inputs": {role: other.key for role, other in cell.inputs.items()},
        "seconds": round(time.monotonic() - start, 2),
        "versions": versions(),
        "result": result,
    }
    seconds_file.unlink(missing_ok=True)
    record["files"] = digests_of(cell_folder, skip=(RECORD, LOG))
    write_record(cell_folder / RECORD, record)
    _log_line(log, f"finished after {record['seconds']} s")


def _log_line(log: Path, text: str) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{now} {text}\n")
