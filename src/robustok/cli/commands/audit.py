"""robustok audit: how far the id sequences of a file drifted from their canonical encoding."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from robustok.cli.options import Json, Tokenizer, print_json
from robustok.cli.progress import bar

NAME = "audit"


def command(
    file: Annotated[Path, typer.Argument(help="Parquet or JSON Lines of id sequences")],
    tokenizer: Tokenizer,
    column: Annotated[
        str | None, typer.Option("--column", help="the column of ids, if there are several")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=0, help="tokens and exchanges to tell of")] = 20,
    as_json: Json = False,
) -> None:
    """Report how far the sequences of FILE drifted from what their text is encoded to.

    Where (by position in the sequence), in which tokens, and what stands for what. Special ids are
    taken as they are. Exit code 0: all canonical. 1: some drifted. 2: bad input.
    """
    from robustok.guard import Audit, read_sequences
    from robustok.vocabulary import Vocabulary

    audit = Audit(Vocabulary.load(tokenizer))
    with bar("audit") as progress:
        for rows, share in read_sequences(file, column):
            audit.add(rows)
            progress(round(1000 * share), 1000)
    drift = audit.report(top)
    if as_json:
        print_json(drift.as_dict())
    else:
        _print(drift)
    if drift.drifted_rows:
        raise typer.Exit(1)


def _print(drift: Any) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print(
        f"{drift.drifted_rows:,} of {drift.rows:,} sequences drifted "
        f"({_share(drift.drifted_rows, drift.rows)}); {drift.changed_rows:,} do not come back from "
        f"decoding and encoding.\n{drift.drifted:,} of {drift.ids:,} ids do not stand "
        f"({_share(drift.drifted, drift.ids)}), {drift.splits:,} boundaries are not the encoder's.",
        soft_wrap=True,
    )
    if drift.unknown:
        console.print(f"{drift.unknown:,} ids are not in the vocabulary.")
    for kind, rows in drift.kinds.items():
        console.print(f"{rows:,} sequences have a finding of kind {kind}.")
    if not drift.drifted_rows:
        return
    rows = [
        (f"{p.begin} to {p.end - 1}", f"{p.ids:,}", f"{p.drifted:,}", _share(p.drifted, p.ids))
        for p in drift.by_position
    ]
    console.print(_table("by position", ("ids", "drifted", "share"), rows))
    rows = [
        (repr(t.token), f"{t.ids:,}", f"{t.drifted:,}", _share(t.drifted, t.ids))
        for t in drift.by_token
    ]
    console.print(_table("by token", ("ids", "drifted", "share"), rows))
    rows = [(repr(e.given), repr(e.becomes), f"{e.times:,}") for e in drift.exchanges]
    console.print(_table("given", ("canonical", "times"), rows))


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(f"\n{title}", overflow="fold")
    for name in columns:
        table.add_column(f"\n{name}", justify="left" if name == "canonical" else "right")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _share(part: int, whole: int) -> str:
    """A share in percent: two significant digits, no exponent, 100% only where it is all.

    >>> _share(1, 800), _share(799, 800), _share(800, 800), _share(996, 1000)
    ('0.12%', '99.9%', '100%', '99.6%')
    """
    if not part or part == whole:
        return "100%" if part else "0%"
    percent = 100 * part / whole
    if percent < 10:
        return f"{percent:.2g}%" if percent >= 0.0001 else "<0.0001%"
    return f"{min(percent, 99.9):.1f}%" if percent > 99 else f"{percent:.0f}%"
