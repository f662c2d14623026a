"""What rich draws: tables, and bars of progress, in a log a line now and then.

Apart from `printing`, so that `sample` and `count` do not import rich. Progress is printed on
standard error, so that the output of a command can be piped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table
from rich.text import Text

EVERY = 30.0  # seconds between lines in a log
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
