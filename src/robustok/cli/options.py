"""Options that several commands share, and readers of their text."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from robustok.cli.help import SCHEMES
from robustok.cli.outputs import output_folder

Tokenizer = Annotated[
    str, typer.Option("--tokenizer", "-t", help="tokenizer.json, a folder with one, or a hub name")
]
Scheme = Annotated[
    str,
    typer.Option("--scheme", "-s", help=f"such as 'uniform-k(alpha=0.5)'; one of {SCHEMES}"),
]
Seed = Annotated[int, typer.Option("--seed", help="the same seed gives the same draws")]
Model = Annotated[str, typer.Argument(help="folder or hub name of a model")]
Items = Annotated[
    str,
    typer.Option(
        "--items", help="JSON Lines with query, choices and label, or a benchmark on the hub"
    ),
]
OwnTokenizer = Annotated[
    str | None, typer.Option("--tokenizer", "-t", help="[default: the model's own]")
]
Schemes = Annotated[
    list[str] | None, typer.Option("--scheme", "-s", help="may be given more than once")
]
Draws = Annotated[int, typer.Option("--draws", "-n", min=1)]
Overflow = Annotated[
    str,
    typer.Option(
        "--overflow", help="rows longer than the model's max_length: error, drop, left or canonical"
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="number of items to read")]
Out = Annotated[
    Path,
    typer.Option(
        "--out", "-o", metavar="FOLDER", callback=output_folder, help="folder of the trained model"
    ),
]
Words = Annotated[int, typer.Option("--words", min=1, help="number of the most frequent words")]
WordsFile = Annotated[
    str | None, typer.Option("--words-file", help="file with one word per line, instead of --words")
]
SampleBy = Annotated[
    str,
    typer.Option(
        "--sample-by", help="documents of a .txt file: line (each line) or document (the file)"
    ),
]
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


def print_training(done: Any, spec: str, out: Path, as_json: bool) -> None:
    """Print the record of a training run as JSON, or a line and the last held-out perplexities."""
    speed = done.tokens_per_second
    if as_json:
        record = {**vars(done), "scheme": spec, "tokens_per_second": speed}
        print_json(record | {"perplexities": [entry._asdict() for entry in done.perplexities]})
        return
    last = f"last loss {done.losses[-1][1]:.3f}, " if done.losses else ""
    typer.echo(f"{done.steps} steps, {last}{speed:,.0f} tokens/s: {out}")
    for entry in {entry.scheme: entry for entry in done.perplexities}.values():
        typer.echo(f"held out, {entry.scheme}: perplexity {entry.perplexity:.2f}")


StartToken = Annotated[
    str | None,
    typer.Option(
        "--start-token",
        metavar="TOKEN",
        help="special token before every text, as '<|begin_of_text|>' [default: none]",
    ),
]


def start_ids_of(vocab: Any, token: str | None) -> list[int]:
    """The ids of --start-token: one special token, or none."""
    from robustok.special_tokens import special_token

    return [] if token is None else [special_token(vocab, token)]
