"""Runs cells on a Ray cluster whose machines share the folder of the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from robustok.processes import thread_limits
from robustok.ray_cluster import connect
from robustok.study.cells import Cell
from robustok.study.work import do_cell, is_finished
from robustok.study.workers import CellWatch

RETRIES = 3  # of a cell whose machine was lost; it continues from its checkpoint


def work_on_ray(
    todo: Sequence[Cell],
    folder: Path,
    threads: int,
    watch: CellWatch,
    finished: Callable[[Cell], None],
) -> None:
    """Run cells in the order of the plan, each when its inputs are finished and a core is free.

    Joins the cluster that RAY_ADDRESS names, or starts one on this machine. A cell is finished
    when its record is on the shared disk. A cell whose machine is lost runs again elsewhere, from
    its last checkpoint.
    """
    connect()
    import ray

    task = ray.remote(num_cpus=threads, max_retries=RETRIES)(_do)
    waiting, running = list(todo), {}
    while waiting or running:
        unfinished = {cell.key for cell in (*waiting, *running.values())}
        for cell in list(waiting):
            if all(i.key not in unfinished for i in cell.inputs.values()):
                waiting.remove(cell)
                watch.start(cell)
                running[task.remote(cell, folder.resolve(), threads)] = cell
        done, _ = ray.wait(list(running), num_returns=1)
        for reference in done:
            cell = running.pop(reference)
            ray.get(reference)
            watch.progress(cell, 1, 1)
            finished(cell)


def _do(cell: Cell, folder: Path, threads: int) -> None:
    os.environ.update(thread_limits(threads))
    # A retried task may have finished before its machine was lost.
    if not is_finished(cell, folder):
        do_cell(cell, folder, _nobody)


def _nobody(done: int, total: int) -> Any: ...
