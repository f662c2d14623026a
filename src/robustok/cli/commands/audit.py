"""robustok audit: measure how far rollouts drifted from their canonical encoding."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from robustok.cli.options import Json, Tokenizer, print_json
from robustok.cli.outputs import output_file
from robustok.cli.progress import bar

NAME = "audit"


def command(
    path: Annotated[
        Path, typer.Argument(help="Parquet or JSON Lines of ids or conversations, or a folder")
    ],
    tokenizer: Tokenizer,
    column: Annotated[
        str | None,
        typer.Option("--column", help="the column of ids or conversations, if there are several"),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=0, help="tokens and exchanges to list")] = 20,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", callback=output_file(".html"), help="also write an HTML page to this file"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Report how far the id sequences of PATH drifted from the canonical encoding of their text.

    By position in the sequence, by token, and which ids stand for which; for conversations (lists
    of turns with a role and ids) also by turn and by role or tool. Special ids are taken as they
    are. Exit code 0: all canonical. 1: some drifted. 2: bad input.
    """
    from robustok.guard import Audit, read_rollouts, rollout_files
    from robustok.vocabulary import Vocabulary

    vocab = Vocabulary.load(tokenizer)
    audit = Audit(vocab)
    files = rollout_files(path)
    starts: list[int] = []  # number of the first sequence of each file
    rows = 0
    with bar("audit") as progress:
        for number, file in enumerate(files):
            starts.append(rows)
            for batch in read_rollouts(file, column):
                audit.add(batch.rows, batch.turns, batch.roles)
                rows += len(batch.rows)
                progress(round(1000 * (number + batch.share)), 1000 * len(files))
    drift = audit.report(top)
    if html:
        from robustok.report.drift import write_drift

        write_drift(html, drift, vocab, str(path), lambda row: _place(files, starts, row))
    if as_json:
        print_json(drift.as_dict())
    else:
        _print(drift, len(files))
        if html:
            typer.echo(f"The page is at {html.resolve()}")
    if drift.drifted_rows:
        raise typer.Exit(1)


def _place(files: list[Path], starts: list[int], row: int) -> str:
    number = max(i for i, start in enumerate(starts) if start <= row)
    return f"{files[number].name}, sequence {row - starts[number]}"


def _print(drift: Any, files: int) -> None:
    from rich.console import Console

    from robustok.report.drift import drift_tables, share

    console = Console(highlight=False)
    of = f" in {files:,} files" if files > 1 else ""
    console.print(
        f"{drift.drifted_rows:,} of {drift.rows:,} sequences{of} drifted "
        f"({share(drift.drifted_rows, drift.rows)}); {drift.changed_rows:,} do not come back from "
        f"decoding and encoding.\n{drift.drifted:,} of {drift.ids:,} ids do not stand "
        f"({share(drift.drifted, drift.ids)}), {drift.splits:,} boundaries are not the encoder's.",
        soft_wrap=True,
    )
    if drift.unknown:
        console.print(f"{drift.unknown:,} ids are not in the vocabulary.")
    for kind, rows in drift.kinds.items():
        console.print(f"{rows:,} sequences have a finding of kind {kind}.")
    if not drift.drifted_rows:
        return
    for title, columns, rows in drift_tables(drift):
        console.print(_table(title, columns[1:], rows))


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
