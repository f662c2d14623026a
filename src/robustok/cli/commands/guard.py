"""robustok guard: check whether id sequences are canonical, and repair them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import typer

from robustok.cli.options import Json, Tokenizer, print_json
from robustok.errors import RobustokError

NAME = "guard"
SHOWN = 20  # findings


def command(
    ids: Annotated[
        str,
        typer.Argument(
            help="as 1,2,3 or [1, 2, 3]; - reads one sequence per line of standard input"
        ),
    ],
    tokenizer: Tokenizer,
    mode: Annotated[
        Literal["report", "strict", "repair"],
        typer.Option("--mode", help="report all, stop at the first finding, or print repaired ids"),
    ] = "report",
    allow_special: Annotated[
        bool, typer.Option("--allow-special", help="do not report special ids")
    ] = False,
    max_length: Annotated[
        int, typer.Option("--max-length", min=1, help="greatest number of ids in a sequence")
    ] = 1 << 20,
    as_json: Json = False,
) -> None:
    """Compare IDS with the canonical encoding of their text.

    With - every line is answered as soon as it is read; a line that is not a sequence of ids gets
    an error, and the next ones are still judged.
    Exit code 0: no findings (in repair mode: none that remain after it). 1: findings.
    2: not a sequence of ids.
    """
    from robustok.guard import Guard
    from robustok.vocabulary import Vocabulary

    guard = Guard(Vocabulary.load(tokenizer), allow_special=allow_special, max_length=max_length)
    code = 0
    for number, line in _lines(ids):
        try:
            verdict = guard.check(_parsed(line))
        except RobustokError as error:
            if number is None:
                raise
            _print_error(number, error, as_json)
            code = 2
            continue
        left = guard.check(verdict.repaired).findings if mode == "repair" else verdict.findings
        code = max(code, 1 if left else 0)
        if mode == "strict" and verdict.findings:
            _print_first(guard.vocab, verdict, number)
            break
        if as_json:
            print_json(verdict.as_dict())
        elif mode == "repair":
            print_json(verdict.repaired.tolist())
        elif mode == "report":
            _print(guard.vocab, verdict)
        sys.stdout.flush()
    if code:
        raise typer.Exit(code)


def _lines(ids: str) -> Iterator[tuple[int | None, str]]:
    """The argument, or each line of standard input with its number."""
    if ids != "-":
        yield None, ids
        return
    lines = getattr(sys.stdin, "buffer", sys.stdin)
    for number, line in enumerate(lines, 1):
        yield number, line.decode("utf8", "replace") if isinstance(line, bytes) else line


def _print_error(number: int, error: RobustokError, as_json: bool) -> None:
    if as_json:
        print_json({"line": number, "error": str(error)})
        sys.stdout.flush()
    else:
        typer.echo(f"robustok: line {number}: {error}", err=True)


def _parsed(text: str) -> list[Any]:
    try:
        return json.loads(text) if text.lstrip().startswith("[") else _numbers(text)
    except (ValueError, RecursionError):
        raise RobustokError(
            f"not a sequence of ids: {text[:60].strip()!r}; write it as 1,2,3 or [1, 2, 3]"
        ) from None


def _numbers(text: str) -> list[int]:
    return [int(part) for part in re.split(r"[\s,]+", text.strip()) if part]


def _print_first(vocab: Any, verdict: Any, number: int | None) -> None:
    from robustok.guard import describe

    where = "" if number is None else f"line {number}, "
    typer.echo(f"robustok: {where}{describe(vocab, verdict.findings[0])}", err=True)


def _print(vocab: Any, verdict: Any) -> None:
    from robustok.guard import describe

    state = "canonical" if verdict.canonical else "not canonical"
    back = "comes back" if verdict.round_trip else "does not come back"
    typer.echo(
        f"{state}: distance {verdict.distance}, splits {verdict.splits}; "
        f"{back} from decoding and encoding"
    )
    for finding in verdict.findings[:SHOWN]:
        typer.echo(f"  {describe(vocab, finding)}")
    if verdict.findings.total > SHOWN:
        typer.echo(f"  and {verdict.findings.total - SHOWN:,} more")
    if not verdict.canonical:
        typer.echo(f"repaired: {','.join(map(str, verdict.repaired.tolist()))}")
