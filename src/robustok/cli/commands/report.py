"""robustok report: write the report of finished runs again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robustok.cli.outputs import output_folder
from robustok.errors import RobustokError

NAME = "report"


def command(
    folders: Annotated[
        list[Path], typer.Argument(help="folders of runs; several are merged into one report")
    ],
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
        raise RobustokError("the report of several runs needs its own folder: give --out")
    typer.echo(f"The report is at {write_report(folders[0], folders[1:], out=out).resolve()}")
