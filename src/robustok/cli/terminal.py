"""What rich draws: tables, and bars of progress (of a study, too), in a log a line now and then.

Apart from `printing`, so that `sample` and `count` do not import rich. Progress is printed on
standard error, so that the output of a command can be piped.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from robustok.runtime.files import JsonFields

if TYPE_CHECKING:
    from robustok.study import Cell

EVERY = 30.0  # seconds between lines in a log
LABEL = 44  # columns; longer labels are cut off, so that the bars keep their place
TRUSTED = 60.0  # seconds of finished work that count as much as their planned cost
ProgressCallback = Callable[..., None]  # (done, total, label=None)


def print_table(titles: Sequence[str], rows: Iterable[Sequence[object]], left: int = 2) -> None:
    """Print rows below their titles: the first ``left`` columns as text, the rest as numbers."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(titles))
    for number, title in enumerate(titles):
        grid.add_column(title, justify="left" if number < left else "right", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(str(value)) for value in row))
    console = Console(highlight=False)
    if not console.is_terminal:  # a line stays a line
        console = Console(highlight=False, width=160)
    console.print(grid)


@contextmanager
def bar(label: str) -> Iterator[ProgressCallback]:
    """A bar for one call; yields the callback for its `progress`. In a log, a line now and then."""
    with Bars(console=Console(stderr=True, highlight=False), transient=True) as bars:
        task = bars.add_task(label)

        def progress(done: int, total: int, label: str | None = None) -> None:
            bars.update(task, completed=done, total=total, description=label)
            bars.print_line(task)

        yield progress


class Bars(Progress):
    """Bars on a terminal; elsewhere ``print_line`` prints a line every 30 seconds at most."""

    def __init__(self, *columns: Any, console: Console, **settings: Any) -> None:
        super().__init__(
            *columns,
            console=console,
            disable=not console.is_terminal,
            speed_estimate_period=3600,
            get_time=time.monotonic,
            **settings,
        )

    def print_line(self, number: TaskID) -> None:
        """Print how far a task is, unless a bar shows it or another line was just printed."""
        task, now = self._tasks[number], self.get_time()
        if not self.disable or now - task.fields.get("printed", task.start_time) < EVERY:
            return
        task.fields["printed"] = now
        line = f"{task.description}: {task.percentage:.1f}% of {task.total:,.0f}"
        if task.speed:  # unknown at first
            line += f", {timedelta(seconds=int(task.time_remaining or 0))} left"
        self.console.print(line, soft_wrap=True, markup=False)


@dataclass
class _Running:
    """A cell at work: its bar, and the share of it that is done, now and at its first report."""

    bar: TaskID
    began: float = 0.0  # when the first report came
    resumed: float | None = None  # the share in it, above zero where an earlier run began the cell
    now: float = 0.0
    share: float = 0.0


class StudyBars:
    """A ``Watch`` of a study: bars on a terminal, lines for finished and running cells in a log.

    The time left is the planned cost of the unfinished cells, divided by ``at_once``, the number of
    cells that run at once. It is scaled by what cells took, finished ones and the done shares of
    running ones, those of the same kind first. Of a minute of such work and the plan each has half
    of the weight, so that one short cell, which takes mostly start-up time, does not decide.
    ``note`` is printed first, when the cells are planned.
    """

    def __init__(self, console: Console, at_once: int = 1, note: str = "") -> None:
        self._console, self._at_once, self._note = console, at_once, note
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
        if self._note:
            self._console.print(self._note)
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
