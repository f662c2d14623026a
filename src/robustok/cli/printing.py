"""What commands read from standard input and print: tokens, tables, JSON, written files, progress.

Progress is printed on standard error, so that the output of a command can be piped.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from robustok.runtime.display import visible
from robustok.runtime.files import JsonFields, json_text

# Light enough for black text, and distinguishable with any color vision.
TOKEN_COLORS = ("#cfe8fb", "#fde3b0", "#cdeedd", "#f6d5e6", "#e3e0fa", "#f3efb4")
EVERY = 30.0  # seconds between lines in a log
ProgressCallback = Callable[..., None]  # (done, total, label=None)


def text_of(argument: str) -> str | bytes:
    """An argument as text, or as bytes where the shell passed bytes that are not UTF-8."""
    raw = os.fsencode(argument)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def texts_of(argument: str) -> list[Any]:
    """The argument as the only text; for "-" the lines of standard input, without line ends."""
    return sys.stdin.buffer.read().splitlines() if argument == "-" else [text_of(argument)]


def as_str(text: str | bytes) -> str:
    """A text for JSON, which has no bytes."""
    return text if isinstance(text, str) else text.decode(errors="replace")


def print_json(value: object) -> None:
    click.echo(json_text(value))


def print_result(result: object, row: JsonFields, as_json: bool) -> None:
    """Print a result as the line that it is as text, or its row as JSON."""
    if as_json:
        print_json(row)
    else:
        click.echo(str(result))


def print_written(paths: Iterable[Path], as_json: bool) -> None:
    if not as_json:
        click.echo("written: " + ", ".join(map(str, paths)))


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


def print_tokens(tokens: Sequence[bytes], console: Console | None = None, lead: str = "") -> None:
    """Print one tokenization: colored boxes on a terminal, bars between tokens elsewhere.

    Bars also on a terminal without color, and where NO_COLOR is set.
    """
    console = console or Console(highlight=False, soft_wrap=True)
    if not console.is_terminal or not console.color_system or console.no_color:
        console.print(Text(lead + "|".join(visible(token) for token in tokens)))
        return
    text = Text(lead)
    for i, token in enumerate(tokens):
        text.append(visible(token), style=f"black on {TOKEN_COLORS[i % len(TOKEN_COLORS)]}")
    console.print(text)


@contextmanager
def training_log(as_json: bool) -> Iterator[None]:
    """Print the steps and losses of a training as lines, unless to a terminal or as JSON."""
    if as_json or sys.stdout.isatty():
        yield
        return
    log = logging.getLogger("robustok.training")
    handler = logging.StreamHandler(sys.stdout)
    level, log.propagate = log.level, False
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = True


@contextmanager
def bar(label: str, *, in_bytes: bool = False) -> Iterator[ProgressCallback]:
    """A bar for one call; yields the callback for its `progress`. In a log, a line now and then.

    Counts of bytes are shown with their rate.
    """
    columns = ()
    if in_bytes:
        rates = DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
        columns = (TextColumn("{task.description}"), BarColumn(), *rates)
    with Bars(*columns, console=Console(stderr=True, highlight=False), transient=True) as bars:
        task = bars.add_task(label, total=None if in_bytes else 100.0, in_bytes=in_bytes)

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
        in_bytes = task.fields.get("in_bytes")
        total = decimal(int(task.total or 0)) if in_bytes else f"{task.total:,.0f}"
        line = f"{task.description}: {task.percentage:.1f}% of {total}"
        if task.speed:  # unknown at first
            line += f", {decimal(int(task.speed))}/s" if in_bytes else ""
            line += f", {timedelta(seconds=int(task.time_remaining or 0))} left"
        self.console.print(line, soft_wrap=True, markup=False)
