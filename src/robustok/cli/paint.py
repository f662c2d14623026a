"""Tokens in color on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from robustok.display import visible
from robustok.report.style import PIECES


def print_tokens(pieces: Sequence[bytes], console: Console | None = None, lead: str = "") -> None:
    """Print one tokenization: colored boxes on a terminal, bars between tokens elsewhere.

    Bars also where the terminal has no color, or where NO_COLOR is set.
    """
    console = console or Console(highlight=False, soft_wrap=True)
    if console.is_terminal and console.color_system and not console.no_color:
        console.print(Text(lead), painted(pieces), sep="")
    else:
        console.print(Text(lead + "|".join(visible(piece) for piece in pieces)))


def painted(pieces: Sequence[bytes]) -> Text:
    text = Text()
    for i, piece in enumerate(pieces):
        text.append(visible(piece), style=f"black on {PIECES[i % len(PIECES)]}")
    return text
