"""Cells side by side, each in a process that works with a fixed number of threads."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

from robustok.errors import RobustokError
from robustok.study.plan import Cell
from robustok.study.work import do_cell


class Told(Protocol):
    """The part of a watch that workers speak to."""

    def start(self, cell: Cell) -> None: ...
    def progress(self, cell: Cell, done: int, total: int) -> None: ...


class _Worker:
    """A process that does one cell after another, and the line to it."""

    def __init__(self, folder: Path, threads: int) -> None:
        # A fresh process: one forked from here would share our lock and torch's threads.
        context = multiprocessing.get_context("spawn")
        self.line, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, folder, threads), daemon=True)
        self.process.start()
        theirs.close()
        self.cell: Cell | None = None

    def begin(self, cell: Cell) -> None:
        self.cell = cell
        self.line.send(cell)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.line.close()


def work_side_by_side(
    todo: Sequence[Cell],
    folder: Path,
    jobs: int,
    threads: int,
    watch: Told,
    finished: Callable[[Cell], None],
) -> None:
    """Do cells in the order of the plan, `jobs` at a time, each once its inputs are there.

    An error in one ends all; what the others had begun goes on from its last checkpoint next time.
    """
    waiting = list(todo)
    workers = [_Worker(folder, threads) for _ in range(min(jobs, len(waiting)))]
    try:
        while waiting or any(worker.cell for worker in workers):
            _hand_out(waiting, workers, watch)
            for line in wait([worker.line for worker in workers if worker.cell]):
                worker = next(worker for worker in workers if worker.line is line)
                _hear(worker, watch, finished)
    finally:
        for worker in workers:
            worker.end()


def _hand_out(waiting: list[Cell], workers: Sequence[_Worker], watch: Told) -> None:
    unfinished = {cell.key for cell in waiting} | {w.cell.key for w in workers if w.cell}
    for worker in workers:
        ready = (c for c in waiting if all(i.key not in unfinished for i in c.inputs.values()))
        cell = None if worker.cell else next(ready, None)
        if cell:
            waiting.remove(cell)
            watch.start(cell)
            worker.begin(cell)


def _hear(worker: _Worker, watch: Told, finished: Callable[[Cell], None]) -> None:
    cell = worker.cell
    assert cell is not None
    try:
        said: Any = worker.line.recv()
    except (EOFError, ConnectionError):
        raise RobustokError(
            f"the process that did '{cell.label}' was ended from outside, perhaps for its memory;"
            " the same command goes on from there"
        ) from None
    match said:
        case BaseException():
            raise said
        case (done, total):
            watch.progress(cell, done, total)
        case None:
            worker.cell = None
            finished(cell)


def _work(line: Connection, folder: Path, threads: int) -> None:
    """A worker's life: it ends when the line does, so a run that is killed leaves none behind."""
    limit_threads(threads)
    try:
        while True:
            cell = line.recv()
            try:
                do_cell(cell, folder, lambda done, total: line.send((done, total)))
                line.send(None)
            except (ConnectionError, EOFError):
                raise
            except Exception as error:
                line.send(error)
    except (ConnectionError, EOFError, KeyboardInterrupt):
        os._exit(1)


def limit_threads(threads: int) -> None:
    """To be called before anything imports torch: how many threads sum decides the rounding."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[name] = str(threads)
