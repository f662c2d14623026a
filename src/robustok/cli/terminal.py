"""What rich draws: tables, and bars of progress (of a study, too), in a log a line now and then.

Apart from `printing`, so that `sample` and `count` do not import rich. Progress is printed on
standard error, so that the output of a command can be piped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
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
TRUSTED = 60.0  # seconds that count as finished as planned, beside the finished cells
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


class StudyBars:
    """A ``Watch`` of a study: bars on a terminal, lines for finished and running cells in a log.

    The time left is the planned cost of what is not done, times the seconds that finished cells
    took for a planned one, divided by ``at_once``, the number of cells that run at once. A minute
    as planned is added to both, so that one short cell, which takes mostly start-up time, does not
    decide. ``note`` is printed first, when the cells are planned.
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
        self._left: dict[str, float] = {}  # the planned cost of what is not done, by cell
        self._running: dict[str, TaskID] = {}
        self._planned = self._taken = TRUSTED  # seconds of finished cells
        self._count = 0  # of all cells

    def __enter__(self) -> StudyBars:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def plan(self, cells: tuple[Cell, ...], finished: JsonFields) -> None:
        self._count = len(cells)
        self._left = {cell.key: cell.work for cell in cells}
        self._bars.update(self._whole, total=sum(self._left.values()))
        for cell in cells:
            if cell.key in finished:
                self._count_finished(cell, finished[cell.key])
        if self._note:
            self._console.print(self._note)
        if finished:
            self._console.print(f"{len(finished)} of {len(cells)} cells are already done")
        if self._left:
            self._console.print(f"{len(self._left)} cells to do, about {self._time_left()}")
        self._draw_whole()

    def start(self, cell: Cell) -> None:
        label = cell.label.removeprefix("evaluate ")
        self._running[cell.key] = self._bars.add_task(label, total=1, left="")

    def progress(self, cell: Cell, done: int, total: int) -> None:
        bar = self._running[cell.key]
        self._bars.update(bar, completed=done, total=total, left=f"{done}/{total}")
        self._bars.print_line(bar)
        self._left[cell.key] = cell.work * (1 - done / max(total, 1))
        self._draw_whole()

    def finish(self, cell: Cell, record: JsonFields) -> None:
        self._count_finished(cell, record)
        self._bars.remove_task(self._running.pop(cell.key))
        self._draw_whole()
        result, number = record["result"], self._count - len(self._left)
        outcome = f"accuracy {100 * result['accuracy']:.1f}%" if "accuracy" in result else "done"
        line = f"[{number}/{self._count}] {cell.label}: {outcome}, {record['seconds']:.1f} s"
        if not self._console.is_terminal and self._left:
            line += f"; {self._time_left()} left"  # no bar shows it
        self._console.print(Text(line), soft_wrap=True)

    def _count_finished(self, cell: Cell, record: JsonFields) -> None:
        del self._left[cell.key]
        self._planned += cell.work
        self._taken += record["seconds"]

    def _draw_whole(self) -> None:
        total = self._bars.tasks[self._whole].total or 0
        left = f"{self._time_left()} left" if self._left else ""
        self._bars.update(self._whole, completed=total - sum(self._left.values()), left=left)

    def _time_left(self) -> timedelta:
        seconds = sum(self._left.values()) * self._taken / self._planned / self._at_once
        return timedelta(seconds=round(seconds))
