"""Progress of a study: bars on a terminal, or a line for each finished cell in a log."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from robustok.study import Cell

LABEL = 44  # columns; longer labels are cut off, so that the bars keep their place


class Bars:
    """Shows the progress of a run: bars on a terminal, lines in a log.

    The time left is estimated from the speed of the work done in this run.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("{task.description}", table_column=Column(width=LABEL, no_wrap=True)),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            disable=not console.is_terminal,
            expand=True,
        )
        self._whole = self._bars.add_task("whole study", total=1, left="")
        self._current: dict[str, TaskID] = {}
        self._shares: dict[str, float] = {}
        self._number = self._count = 0
        self._done = self._before = self._total = 0.0
        self._since = time.monotonic()

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def plan(self, cells: tuple[Cell, ...], finished: set[str]) -> None:
        self._count, self._number = len(cells), len(finished)
        self._total = sum(cell.work for cell in cells)
        self._done = sum(cell.work for cell in cells if cell.key in finished)
        self._before = self._done
        self._since = time.monotonic()
        if finished:
            self._console.print(f"{len(finished)} of {len(cells)} cells are already done")
        self._draw_whole()

    def start(self, cell: Cell) -> None:
        label = cell.label.removeprefix("evaluate ")
        self._current[cell.key] = self._bars.add_task(label, total=1, left="")
        self._shares[cell.key] = 0.0

    def progress(self, cell: Cell, done: int, total: int) -> None:
        share = done / max(total, 1)
        self._bars.update(self._current[cell.key], completed=share, left=f"{done}/{total}")
        if not self._shares[cell.key]:  # a part done by an earlier run takes no time now
            self._before += share * cell.work
        self._shares[cell.key] = share * cell.work
        self._draw_whole()

    def finish(self, cell: Cell, record: Mapping[str, Any]) -> None:
        self._number += 1
        self._done += cell.work
        self._shares.pop(cell.key)
        self._bars.remove_task(self._current.pop(cell.key))
        self._draw_whole()
        result = record["result"]
        outcome = f"accuracy {100 * result['accuracy']:.1f}%" if "accuracy" in result else "done"
        line = f"[{self._number}/{self._count}] {cell.label}: {outcome}, {record['seconds']:.1f} s"
        if not self._console.is_terminal and (left := self._left()):
            line += f"; {left}"  # no bar shows it
        self._console.print(Text(line), soft_wrap=True)

    @property
    def _work(self) -> float:
        """The work done in finished and in running cells."""
        return self._done + sum(self._shares.values())

    def _draw_whole(self) -> None:
        share = self._work / max(self._total, 1e-9)
        self._bars.update(self._whole, completed=share, left=self._left())

    def _left(self) -> str:
        """The time left, once there is enough work to estimate it from."""
        done = self._work
        spent, fresh = time.monotonic() - self._since, done - self._before
        if fresh <= 0 or spent <= 5 or done >= self._total:
            return ""
        return f"{_clock((self._total - done) / fresh * spent)} left"


def _clock(seconds: float) -> str:
    """
    >>> _clock(75)
    '1:15'
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
