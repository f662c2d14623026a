"""One bar on standard error, so that what a command prints can be piped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import Progress


class Told(Protocol):
    def __call__(self, done: int, total: int, label: str | None = None) -> None: ...


@contextmanager
def bar(label: str) -> Iterator[Told]:
    """A bar for one call; gives what the call's `progress` takes. None is drawn in a log."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bars:
        task = bars.add_task(label)

        def progress(done: int, total: int, label: str | None = None) -> None:
            bars.update(task, completed=done, total=total, description=label)

        yield progress
