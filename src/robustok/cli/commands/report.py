"""robustok report: write a run's report again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robustok.cli.outputs import output_folder
from robustok.errors import RobustokError

NAME = "report"


def command(
    folders: Annotated[list[Path], typer.Argument(help="folders of runs; several are merged")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            callback=output_folder,
            help="of the report [default: the first folder]",
        ),
    ] = None,
) -> None:
    """Write the report of a run again, or one of several runs together.

    Runs of one study with other seeds become one row each, with an interval over all seeds.
    """
    from robustok.report import write_report

    if len(folders) > 1 and out is None:
        raise RobustokError("several runs make a report of their own: give --out a folder for it")
    typer.echo(f"The report is at {write_report(folders[0], folders[1:], out=out).resolve()}")
