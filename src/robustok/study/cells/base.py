"""Base class of cells: key, label, cost, inputs, and a method to run it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from robustok.display import Progress

Summary = dict[str, Any]  # the `result` of a finished cell's record, as JSON

FORMAT = 2  # of all keys; raise it when the fields of every kind mean another result


class Cell(ABC):
    """One piece of work with a result that is kept. Each kind is a frozen dataclass.

    >>> from robustok.study.cells import DataCell
    >>> small, large = (DataCell("cute", words, train=8, test=8, seed=0) for words in (100, 200))
    >>> small.key, large.key
    ('data-75badde4e0df0cb1', 'data-ef0645890f6e8556')

    `fields`, `version` and the keys of `inputs` make the key: cells with equal keys have equal
    results. An attribute outside `fields`, such as the place of a file, does not change the result.
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """All that decides the result apart from the inputs, as JSON. The names are permanent."""

    @property
    def version(self) -> int:
        """Raised when the same fields come to mean another result. 1 does not enter the key."""
        return 1

    @property
    def label(self) -> str:
        """The cell in a few words, for people."""
        return self.kind

    @property
    def work(self) -> float:
        """A rough number of seconds on one core, for progress bars and estimates."""
        return 1.0

    @property
    def hub_names(self) -> tuple[str, ...]:
        """The models, tokenizers and texts that the cell reads from the hub."""
        return ()

    @abstractmethod
    def run(self, folder: Path, progress: Progress) -> Summary:
        """Do the work: write files to `self.path(folder)` and return the summary of the result.

        Args:
            folder: the folder of the run.
            progress: called with (work done, all work), in units of the cell's own.

        The inputs are finished. A cell that was interrupted continues from the files it left.
        """

    @cached_property
    def inputs(self) -> dict[str, Cell]:
        """The cells whose results this one reads, by the names of the attributes."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in values.items() if isinstance(value, Cell)}

    @cached_property
    def key(self) -> str:
        content = {
            "format": FORMAT,
            "kind": self.kind,
            "fields": self.fields,
            "inputs": {role: cell.key for role, cell in self.inputs.items()},
        }
        if self.version > 1:
            content["version"] = self.version
        text = json.dumps(content, sort_keys=True, ensure_ascii=False)
        return f"{self.kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def path(self, folder: Path) -> Path:
        """The folder of the cell's files in the folder of a run."""
        return folder / "cells" / self.key
