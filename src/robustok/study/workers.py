"""Runs cells in parallel, each in a worker process with a fixed number of threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from robustok.errors import RobustokError
from robustok.processes import DIED, PROGRESS, Run, Worker, receive
from robustok.study.cells import Cell
from robustok.study.work import do_cell


class CellWatch(Protocol):
    """The part of a `Watch` that reports single cells."""

    def start(self, cell: Cell) -> None: ...
    def progress(self, cell: Cell, done: int, total: int) -> None: ...


def work_side_by_side(
    todo: Sequence[Cell],
    folder: Path,
    jobs: int,
    threads: int,
    watch: CellWatch,
    finished: Callable[[Cell], None],
) -> None:
    """Run cells in the order of the plan, `jobs` at a time, each after its inputs.

    An error in one ends all. The next run continues the others from their checkpoints.
    """
    waiting = list(todo)
    workers = [Worker(_prepare, folder, threads) for _ in range(min(jobs, len(waiting)))]
    try:
        while waiting or any(worker.task for worker in workers):
            _hand_out(waiting, workers, watch)
            for worker, kind, value in receive(workers):
                cell = worker.task
                if kind == DIED:
                    raise _death(worker)
                if kind == PROGRESS:
                    watch.progress(cell, *value)
                else:
                    worker.task = None
                    finished(cell)
    finally:
        for worker in workers:
            worker.kill()


def _hand_out(waiting: list[Cell], workers: Sequence[Worker], watch: CellWatch) -> None:
    unfinished = {cell.key for cell in waiting} | {w.task.key for w in workers if w.task}
    for worker in workers:
        ready = (c for c in waiting if all(i.key not in unfinished for i in c.inputs.values()))
        cell = None if worker.task else next(ready, None)
        if cell:
            waiting.remove(cell)
            watch.start(cell)
            worker.begin(cell)


def _death(worker: Worker) -> RobustokError:
    task = f"that ran '{worker.task.label}'" if worker.task else "that was idle"
    return RobustokError(
        f"the process {task} was {worker.exit_reason()}, perhaps because memory ran out: the same"
        " command continues after the last finished cell"
    )


def _prepare(folder: Path) -> Run:
    def run(cell: Cell, progress: Callable[[tuple[int, int]], None]) -> None:
        do_cell(cell, folder, lambda done, total: progress((done, total)))

    return run
