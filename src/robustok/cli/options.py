"""Options that several commands share, and how their text comes in."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated, Any

import typer

Tokenizer = Annotated[
    str, typer.Option("--tokenizer", "-t", help="tokenizer.json, a folder with one, or a hub name")
]
Scheme = Annotated[
    str, typer.Option("--scheme", "-s", help="such as uniform or 'uniform-k(alpha=0.5)'")
]
Seed = Annotated[int, typer.Option("--seed", help="the same seed gives the same draws")]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]


def text_of(argument: str) -> str | bytes:
    """An argument as text, or as bytes where the shell passed bytes that are not UTF-8."""
    raw = os.fsencode(argument)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def lines_of_stdin() -> list[bytes]:
    """The lines of standard input, a text each, without their line ends."""
    return sys.stdin.buffer.read().splitlines()


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))
