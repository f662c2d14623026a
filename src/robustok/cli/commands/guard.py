"""robustok guard: is an id sequence canonical, and what is it repaired?"""

from __future__ import annotations

import json
import re
import sys
from typing import Annotated, Any, Literal

import typer

from robustok.cli.options import Json, Tokenizer, print_json
from robustok.errors import RobustokError

NAME = "guard"
SHOWN = 20  # findings


def command(
    ids: Annotated[
        str,
        typer.Argument(help="as 1,2,3 or [1, 2, 3]; - for one sequence a line of standard input"),
    ],
    tokenizer: Tokenizer,
    mode: Annotated[
        Literal["report", "strict", "repair"],
        typer.Option("--mode", help="tell all, stop at the first finding, or print repaired ids"),
    ] = "report",
    allow_special: Annotated[
        bool, typer.Option("--allow-special", help="special ids are no finding")
    ] = False,
    as_json: Json = False,
) -> None:
    """Judge IDS against the canonical encoding of their own text.

    Exit code 0: nothing found (in repair mode: nothing is left after it). 1: findings.
    2: not a sequence of ids.
    """
    from robustok.guard import Guard
    from robustok.vocabulary import Vocabulary

    given = sys.stdin.read().splitlines() if ids == "-" else [ids]
    rows = [_parsed(line) for line in given]
    guard = Guard(Vocabulary.load(tokenizer), allow_special=allow_special)
    verdicts = guard.check_batch(rows)
    clean = verdicts.clean
    if mode == "repair":
        clean = guard.check_batch(verdicts.repaired).clean
    for number, verdict in enumerate(verdicts):
        if mode == "strict" and verdict.findings:
            _print_first(guard.vocab, verdict, number if ids == "-" else None)
            break
        if as_json:
            print_json(verdict.as_dict())
        elif mode == "repair":
            print_json(verdict.repaired.tolist())
        elif mode == "report":
            _print(guard.vocab, verdict)
    if not clean.all():
        raise typer.Exit(1)


def _parsed(text: str) -> list[Any]:
    try:
        return json.loads(text) if text.lstrip().startswith("[") else _numbers(text)
    except ValueError:
        raise RobustokError(
            f"not a sequence of ids: {text[:60]!r}; write it as 1,2,3 or [1, 2, 3]"
        ) from None


def _numbers(text: str) -> list[int]:
    return [int(part) for part in re.split(r"[\s,]+", text.strip()) if part]


def _print_first(vocab: Any, verdict: Any, number: int | None) -> None:
    from robustok.guard import tell

    where = "" if number is None else f"line {number + 1}, "
    typer.echo(f"robustok: {where}{tell(vocab, verdict.findings[0])}", err=True)


def _print(vocab: Any, verdict: Any) -> None:
    from robustok.guard import tell

    said = "canonical" if verdict.canonical else "not canonical"
    back = "comes back" if verdict.round_trip else "does not come back"
    typer.echo(
        f"{said}: distance {verdict.distance}, splits {verdict.splits}; "
        f"{back} from decoding and encoding"
    )
    for finding in verdict.findings[:SHOWN]:
        typer.echo(f"  {tell(vocab, finding)}")
    if len(verdict.findings) > SHOWN:
        typer.echo(f"  and {len(verdict.findings) - SHOWN} more; --json has them all")
    if not verdict.canonical:
        typer.echo(f"repaired: {','.join(map(str, verdict.repaired.tolist()))}")
