"""Progress on standard error, so that the output of a command can be piped."""

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
    """Show on a terminal that kernels are being compiled, on their first use."""
    from robustok.kernels.compiler.cache import kernels_are_cached

    console = Console(stderr=True)
    if not console.is_terminal or kernels_are_cached():
        yield
        return
    with console.status("compiling kernels"):
        yield


@contextmanager
def training_log(as_json: bool) -> Iterator[None]:
    """Print the steps and losses of a training as lines, unless to a terminal or as JSON."""
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
    """A bar for one call; yields the callback for its `progress`. A log gets no bar."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bars:
        task = bars.add_task(label)

        def progress(done: int, total: int, label: str | None = None) -> None:
            bars.update(task, completed=done, total=total, description=label)

        yield progress
