"""One bar on standard error, so that what a command prints can be piped."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import Progress


@contextmanager
def compiling() -> Iterator[None]:
    """Show on a terminal that kernels are compiled, where this is their first use."""
    from robustok.kernels.cache import kernels_are_cached

    console = Console(stderr=True)
    if not console.is_terminal or kernels_are_cached():
        yield
        return
    with console.status("compiling kernels"):
        yield


@contextmanager
def training_log(as_json: bool) -> Iterator[None]:
    """Print a training's steps and losses as lines into a log: not to a terminal, nor as JSON."""
    if as_json or sys.stdout.isatty():
        yield
        return
    log = logging.getLogger("robustok.training.watch")
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
def bar(label: str) -> Iterator[ProgressCallback]:
    """A bar for one call; gives what the call's `progress` takes. None is drawn in a log."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bars:
        task = bars.add_task(label)

        def progress(done: int, total: int, label: str | None = None) -> None:
            bars.update(task, completed=done, total=total, description=label)

        yield progress
