"""robustok report: write a run's report again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

NAME = "report"


def command(folder: Annotated[Path, typer.Argument(help="the folder of a run")]) -> None:
    """Write the report of a run again."""
    from robustok.report import write_report

    typer.echo(f"The report is at {write_report(folder).resolve()}")
