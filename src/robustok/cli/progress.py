"""One bar on standard error, so that what a command prints can be piped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress


@contextmanager
def bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar for one call; gives what the call's `progress` takes. None is drawn in a log."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bars:
        task = bars.add_task(label)

        def progress(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total)

        yield progress
