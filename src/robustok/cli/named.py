"""Several models on one command line, each with a name for the figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robustok.cli.outputs import output_folder
from robustok.errors import RobustokError

Models = Annotated[
    list[str], typer.Argument(help="folders or hub names; NAME=FOLDER sets the name")
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FOLDER",
        callback=output_folder,
        help="folder for figure, CSV and rows; also resumes an interrupted run",
    ),
]


def named(models: list[str]) -> dict[str, str]:
    """Paths of models by name; the name is the last part of the path unless given before "=".

    >>> named(["runs/a/canonical", "other=runs/b/model"])
    {'canonical': 'runs/a/canonical', 'other': 'runs/b/model'}

    Raises RobustokError where two models have one name.
    """
    by_name: dict[str, str] = {}
    for given in models:
        name, mark, path = given.partition("=")
        if not mark or "/" in name:
            name, path = Path(given).name, given
        if not name or not path:
            raise RobustokError(f"'{given}' names no model: give NAME=FOLDER, or a folder")
        if name in by_name:
            raise RobustokError(
                f"two models are called '{name}': write NAME={path} for one of them"
            )
        by_name[name] = path
    return by_name
