"""Finds a study by its name among the included ones, or by its file."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from robustok.errors import RobustokError, nearest
from robustok.study.config import MAX_BYTES, load_study
from robustok.study.schema import Study


def studies() -> dict[str, str]:
    """The YAML of every study that comes with robustok, by name.

    >>> list(studies())[:3]
    ['bpe-dropout-cute', 'bpe-dropout-langgame', 'embeddings']
    """
    folder = files("robustok") / "studies"
    if not folder.is_dir():
        # A wheel has them in the package, a checkout in the top folder.
        folder = Path(__file__).parents[3] / "studies"
    entries = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".yaml")}
    return {
        name.removesuffix(".yaml"): entries[name].read_text(encoding="utf-8")
        for name in sorted(entries)
    }


def scales_of(name: str) -> list[str]:
    """The scales of an included study, besides the full one.

    >>> scales_of("finetuning-table")
    ['cpu', 'small']

    Args:
        name: name of the study.
    """
    return list(yaml.safe_load(studies()[name]).get("scales") or {})


def find_study(name: str, **changes: Any) -> Study:
    """An included study by its name, or the study of a YAML file by its path.

    >>> find_study("quick").task.kind
    'langgame'

    Args:
        name: name of an included study, or path of a YAML file.
        **changes: the keyword arguments of :func:`load_study`, such as ``scale``.

    Raises RobustokError for an unknown name and for invalid YAML.
    """
    if name.endswith((".yaml", ".yml")) or "/" in name:
        path = Path(name)
        try:
            with path.open("rb") as file:  # A device or a pipe may have no end.
                content = file.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                raise RobustokError(f"{path} is larger than {MAX_BYTES >> 10} KiB: not a study")
            text = content.decode()
        except UnicodeDecodeError:
            raise RobustokError(f"{path} is not UTF-8 text") from None
        except OSError as error:
            raise RobustokError(f"the study {path} cannot be read: {error.strerror}") from None
        return load_study(text, str(path), **changes)
    known = studies()
    if name not in known:
        raise RobustokError(f"there is no study '{name}': {nearest(name, known)}")
    return load_study(known[name], f"{name}.yaml", **changes)
