"""What commands read from standard input and print: tokens, JSON, written files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import click

from robustok.errors import RobustokError
from robustok.runtime.display import visible
from robustok.runtime.files import json_text
from robustok.runtime.inputs import TOO_LONG, lines_of

# Of the palette of 256 colors, which every terminal has: light enough for black text.
BLACK, TOKEN_COLORS = 16, (153, 223, 158, 225, 189, 229)


def text_of(argument: str) -> str | bytes:
    """An argument as text, or as bytes where the shell passed bytes that are not UTF-8."""
    raw = os.fsencode(argument)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def texts_of(argument: str) -> list[Any]:
    """The argument as the only text; for "-" the lines of standard input, as in a file."""
    if argument != "-":
        return [text_of(argument)]
    texts = []
    for number, (_, line) in enumerate(lines_of(sys.stdin.buffer), 1):
        if line is None:
            raise RobustokError(f"line {number} is {TOO_LONG}: split it")
        texts.append(line)
    return texts


def as_str(text: str | bytes) -> str:
    """A text for JSON, which has no bytes."""
    return text if isinstance(text, str) else text.decode(errors="replace")


def print_json(value: object) -> None:
    click.echo(json_text(value))


def print_model(model: str, precision: str, seed: int) -> None:
    """Print what is measured: a model, the type of its weights where it is not served, the seed."""
    weights = "behind a server" if precision == "served" else f"weights in {precision}"
    click.echo(f"{model}: {weights}, seed {seed}")


def print_written(paths: Iterable[Path], as_json: bool) -> None:
    if not as_json:
        click.echo("written: " + ", ".join(map(str, paths)))


def print_tokens(tokens: Sequence[bytes], lead: str = "") -> None:
    """Print one tokenization: colored boxes on a terminal, bars between tokens elsewhere.

    Bars also where `has_color` is false.
    """
    shown = [visible(token) for token in tokens]
    if has_color():
        boxes = zip(shown, cycle(TOKEN_COLORS), strict=False)
        line = "".join(click.style(text, fg=BLACK, bg=color) for text, color in boxes)
    else:
        line = "|".join(shown)
    click.echo(lead + line, color=True)


def print_heading(text: str, rest: str = "") -> None:
    """Print an empty line, and one that begins with a text in bold letters."""
    click.echo("\n" + (click.style(text, bold=True) if has_color() else text) + rest, color=True)


def has_color() -> bool:
    """Whether standard output shows colors, as rich decides it for tables and bars.

    It is a terminal, or FORCE_COLOR is set; NO_COLOR and TERM=dumb turn colors off.
    """
    variables = os.environ
    if variables.get("NO_COLOR") or variables.get("TERM") in ("dumb", "unknown"):
        return False
    return bool(variables.get("FORCE_COLOR")) or sys.stdout.isatty()
