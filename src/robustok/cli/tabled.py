"""A plain table on standard output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def table(titles: Sequence[str], rows: Sequence[Sequence[Any]], left: int = 2) -> None:
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
