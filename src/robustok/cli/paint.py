"""Tokens in color on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from robustok.display import visible
from robustok.report.style import TOKEN_COLORS


def print_tokens(tokens: Sequence[bytes], console: Console | None = None, lead: str = "") -> None:
    """Print one tokenization: colored boxes on a terminal, bars between tokens elsewhere.

    Bars also on a terminal without color, and where NO_COLOR is set.
    """
    console = console or Console(highlight=False, soft_wrap=True)
    if console.is_terminal and console.color_system and not console.no_color:
        console.print(Text(lead), painted(tokens), sep="")
    else:
        console.print(Text(lead + "|".join(visible(token) for token in tokens)))


def painted(tokens: Sequence[bytes]) -> Text:
    text = Text()
    for i, token in enumerate(tokens):
        text.append(visible(token), style=f"black on {TOKEN_COLORS[i % len(TOKEN_COLORS)]}")
    return text
