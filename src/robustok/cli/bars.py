"""Progress of a study: bars on a terminal, lines for finished and running cells in a log."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from robustok.cli.terminal import Bars
from robustok.runtime.files import JsonFields
from robustok.study import Cell, Watch

LABEL = 44  # columns; longer labels are cut off, so that the bars keep their place
TRUSTED = 60.0  # seconds of finished work that count as much as their planned cost


@dataclass
class _Running:
    """A cell at work: its bar, and the share of it that is done, now and at its first report."""

    bar: TaskID
    began: float = 0.0  # when the first report came
    resumed: float | None = None  # the share in it, above zero where an earlier run began the cell
    now: float = 0.0
    share: float = 0.0


class StudyBars(Watch):
    """Shows the progress of a run: bars on a terminal, lines in a log.

    The time left is the planned cost of the unfinished cells, divided by ``at_once``, the number of
    cells that run at once. It is scaled by what cells took, finished ones and the done shares of
    running ones, those of the same kind first. Of a minute of such work and the plan each has half
    of the weight, so that one short cell, which takes mostly start-up time, does not decide.
    """

    def __init__(self, console: Console, at_once: int = 1) -> None:
        self._console, self._at_once = console, at_once
        self._bars = Bars(
            TextColumn("{task.description}", table_column=Column(width=LABEL, no_wrap=True)),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            expand=True,
        )
        self._whole = self._bars.add_task("whole study", left="")
        self._left: dict[str, Cell] = {}  # the unfinished cells, by key
        self._running: dict[str, _Running] = {}
        self._planned: dict[str, float] = defaultdict(float)  # cost of finished cells, by kind
        self._taken: dict[str, float] = defaultdict(float)  # seconds of the same
        self._count = 0

    def __enter__(self) -> StudyBars:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def plan(self, cells: tuple[Cell, ...], finished: JsonFields) -> None:
        self._count = len(cells)
        self._left = {cell.key: cell for cell in cells}
        self._bars.update(self._whole, total=sum(cell.work for cell in cells))
        for cell in cells:
            if cell.key in finished:
                self._count_finished(cell, finished[cell.key]["seconds"])
        if finished:
            self._console.print(f"{len(finished)} of {len(cells)} cells are already done")
        if self._left:
            self._console.print(f"{len(self._left)} cells to do, about {self._time_left()}")
        self._draw_whole()

    def start(self, cell: Cell) -> None:
        label = cell.label.removeprefix("evaluate ")
        self._running[cell.key] = _Running(self._bars.add_task(label, total=1, left=""))

    def progress(self, cell: Cell, done: int, total: int) -> None:
        one = self._running[cell.key]
        self._bars.update(one.bar, completed=done, total=total, left=f"{done}/{total}")
        self._bars.print_line(one.bar)
        one.now, one.share = time.monotonic(), done / max(total, 1)
        if one.resumed is None:
            one.began, one.resumed = one.now, one.share
        self._draw_whole()

    def finish(self, cell: Cell, record: JsonFields) -> None:
        self._count_finished(cell, record["seconds"])
        self._bars.remove_task(self._running.pop(cell.key).bar)
        self._draw_whole()
        result, number = record["result"], self._count - len(self._left)
        outcome = f"accuracy {100 * result['accuracy']:.1f}%" if "accuracy" in result else "done"
        line = f"[{number}/{self._count}] {cell.label}: {outcome}, {record['seconds']:.1f} s"
        if not self._console.is_terminal and self._left:
            line += f"; {self._time_left()} left"  # no bar shows it
        self._console.print(Text(line), soft_wrap=True)

    def _count_finished(self, cell: Cell, seconds: float) -> None:
        del self._left[cell.key]
        self._planned[cell.kind] += cell.work
        self._taken[cell.kind] += seconds

    def _draw_whole(self) -> None:
        done = sum(self._planned.values())
        done += sum(self._left[key].work * one.share for key, one in self._running.items())
        left = f"{self._time_left()} left" if self._left else ""
        self._bars.update(self._whole, completed=done, left=left)

    def seconds_left(self) -> float:
        """Seconds of one cell after another, without the done shares of running cells."""
        planned, taken = self._planned.copy(), self._taken.copy()
        for key, one in self._running.items():
            cell = self._left[key]
            planned[cell.kind] += cell.work * (one.share - (one.resumed or 0.0))
            taken[cell.kind] += one.now - one.began
        overall_rate = (sum(taken.values()) + TRUSTED) / (sum(planned.values()) + TRUSTED)
        seconds = 0.0
        for key, cell in self._left.items():
            rate = (taken[cell.kind] + overall_rate * TRUSTED) / (planned[cell.kind] + TRUSTED)
            share = self._running[key].share if key in self._running else 0.0
            seconds += cell.work * rate * (1 - share)
        return seconds

    def _time_left(self) -> str:
        return str(timedelta(seconds=round(self.seconds_left() / self._at_once)))
