"""Progress of a study: bars on a terminal, lines for finished and running cells in a log."""

from __future__ import annotations

from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from robustok.cli.printing import Bars
from robustok.runtime.files import JsonFields
from robustok.study import Cell, Watch
from robustok.study.cells.base import Estimate

LABEL = 44  # columns; longer labels are cut off, so that the bars keep their place


class StudyBars(Watch):
    """Shows the progress of a run: bars on a terminal, lines in a log.

    The time left is that of :class:`robustok.study.cells.base.Estimate`, divided by ``at_once``,
    the number of cells that run at once.
    """

    def __init__(self, console: Console, at_once: int = 1) -> None:
        self._console, self._at_once = console, at_once
        self._estimate = Estimate((), {})
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
        self._current: dict[str, TaskID] = {}
        self._work: dict[str, float] = {}  # of every cell, by key
        self._shares: dict[str, float] = {}  # how much of each running or finished cell is done
        self._number = self._count = 0

    def __enter__(self) -> StudyBars:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def plan(self, cells: tuple[Cell, ...], finished: JsonFields) -> None:
        self._count, self._number = len(cells), len(finished)
        self._work = {cell.key: cell.work for cell in cells}
        self._shares = dict.fromkeys(finished, 1.0)
        self._estimate = Estimate(cells, finished)
        self._bars.update(self._whole, total=sum(self._work.values()))
        if finished:
            self._console.print(f"{len(finished)} of {len(cells)} cells are already done")
        if todo := len(cells) - len(finished):
            self._console.print(f"{todo} cells to do, about {self._left()}")
        self._draw_whole()

    def start(self, cell: Cell) -> None:
        label = cell.label.removeprefix("evaluate ")
        self._current[cell.key] = self._bars.add_task(label, total=1, left="")
        self._shares[cell.key] = 0.0

    def progress(self, cell: Cell, done: int, total: int) -> None:
        task = self._current[cell.key]
        self._bars.update(task, completed=done, total=total, left=f"{done}/{total}")
        self._bars.print_line(task)
        self._shares[cell.key] = done / max(total, 1)
        self._estimate.progress(cell, self._shares[cell.key])
        self._draw_whole()

    def finish(self, cell: Cell, record: JsonFields) -> None:
        self._number += 1
        self._shares[cell.key] = 1.0
        self._estimate.finish(cell, record["seconds"])
        self._bars.remove_task(self._current.pop(cell.key))
        self._draw_whole()
        result = record["result"]
        outcome = f"accuracy {100 * result['accuracy']:.1f}%" if "accuracy" in result else "done"
        line = f"[{self._number}/{self._count}] {cell.label}: {outcome}, {record['seconds']:.1f} s"
        if not self._console.is_terminal and self._number < self._count:
            line += f"; {self._left()} left"  # no bar shows it
        self._console.print(Text(line), soft_wrap=True)

    def _draw_whole(self) -> None:
        done = sum(self._work[key] * share for key, share in self._shares.items())
        left = f"{self._left()} left" if self._number < self._count else ""
        self._bars.update(self._whole, completed=done, left=left)

    def _left(self) -> str:
        seconds = self._estimate.seconds_left() / self._at_once
        return str(timedelta(seconds=round(seconds)))
