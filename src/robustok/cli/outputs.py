"""Checks of output paths, done by typer before a command starts its work."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from robustok.errors import RobustokError


def output_folder(path: Path | None) -> Path | None:
    """The path, or RobustokError where it is a file or its folder cannot be written."""
    if path is not None:
        if path.exists() and not path.is_dir():
            raise RobustokError(f"{path} is a file: give a folder")
        _check_writable(path)
    return path


def output_file(*suffixes: str) -> Callable[[Path | None], Path | None]:
    """A check of a file to write: not a folder, an allowed suffix, a writable folder.

    >>> output_file(".png", ".svg")(Path("curve.png")).name
    'curve.png'
    """

    def check(path: Path | None) -> Path | None:
        if path is None:
            return None
        if path.is_dir():
            raise RobustokError(f"{path} is a folder: give a file")
        if suffixes and path.suffix not in suffixes:
            raise RobustokError(f"{path}: the name must end in {' or '.join(suffixes)}")
        _check_writable(path)
        return path

    return check


def _check_writable(path: Path) -> None:
    """Raise RobustokError unless the nearest existing folder above can be written."""
    while not path.exists():
        path = path.parent
        if path.is_file():
            raise RobustokError(f"{path} is a file: give another path")
    for needed in (path, path.parent) if path.is_file() else (path,):
        if not os.access(needed, os.W_OK):
            raise RobustokError(f"{needed} cannot be written: give another path")
