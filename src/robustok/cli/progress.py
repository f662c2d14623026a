"""Progress on standard error, so that the output of a command can be piped."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

EVERY = 30.0  # seconds between lines in a log


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


class ProgressCallback(Protocol):
    def __call__(self, done: int, total: int, label: str | None = None) -> None: ...


@contextmanager
def bar(label: str, *, unit: str = "") -> Iterator[ProgressCallback]:
    """A bar for one call; yields the callback for its `progress`. In a log, a line now and then.

    With ``unit="B"`` the counts are bytes, and the rate is shown.
    """
    console = Console(stderr=True, highlight=False)
    columns = () if not unit else (
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal,
                  transient=True) as bars:  # fmt: skip
        task = bars.add_task(label, total=100.0 if not unit else None)
        print_line = None if console.is_terminal else log_lines(console, label, unit)

        def progress(done: int, total: int, label: str | None = None) -> None:
            bars.update(task, completed=done, total=total, description=label)
            if print_line:
                print_line(done, total, label)

        yield progress


def log_lines(console: Console, name: str, unit: str = "") -> ProgressCallback:
    """A callback that prints a line at most every 30 seconds."""
    last = time.monotonic()
    first: tuple[int, float] | None = None  # a continued run starts with what was done before

    def print_line(done: int, total: int, label: str | None = None) -> None:
        nonlocal first, last
        now = time.monotonic()
        first = first or (done, now)
        if now - last >= EVERY:
            last = now
            line = log_line(done, total, done - first[0], now - first[1], unit)
            console.print(f"{label or name}: {line}", soft_wrap=True, markup=False)

    return print_line


def log_line(done: int, total: int, fresh: int, seconds: float, unit: str = "") -> str:
    """How far a run is; ``fresh`` of what is done was done in these seconds.

    >>> log_line(50_000_000, 200_000_000, 50_000_000, 10.0, "B")
    '25.0% of 200.0 MB, 5.0 MB/s, 0:00:30 left'
    >>> log_line(300, 1200, 100, 60.0)
    '25.0% of 1,200, 0:09:00 left'
    """
    rate = fresh / max(seconds, 1e-9)
    parts = [f"{100 * done / max(total, 1):.1f}% of {_size(total, unit)}"]
    if fresh:  # no rate is known before
        parts += [f"{_size(rate, unit)}/s"] if unit else []
        parts.append(f"{timedelta(seconds=round((total - done) / rate))} left")
    return ", ".join(parts)


def _size(count: float, unit: str) -> str:
    return f"{count / 1e6:,.1f} M{unit}" if unit else f"{count:,.0f}"
