"""robustok report: write the report of finished runs or of files of results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robustok.cli.outputs import output_folder
from robustok.errors import RobustokError

NAME = "report"


def command(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER|FILE...",
            help="folders of runs, results.jsonl, or files of evaluate, icl, attack and certify; "
            "several are merged into one report",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            callback=output_folder,
            help="of the report [default: the folder; for FILE.jsonl, FILE-report beside it]",
        ),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--table", help="also write the accuracies with their intervals as a Markdown table"
        ),
    ] = None,
) -> None:
    """Write the report of a run again, of a file of results, or of several together.

    The report has tables and figures: report.html, report.md and figures/. Runs of one study with
    other seeds become one row each, with an interval over all seeds.
    """
    from robustok.report import write_report

    if len(folders) > 1 and out is None:
        raise RobustokError("the report of several results needs its own folder: give --out")
    page = write_report(folders[0], folders[1:], out=out, table=table)
    typer.echo(f"The report is at {page.resolve()}")
