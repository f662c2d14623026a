"""Base class of cells: key, label, inputs, a method to run it, and the cost of cells.

Costs are seconds on one core, from which the time left of a run is estimated.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from robustok.runtime.display import Progress
from robustok.runtime.environment import computed_once
from robustok.runtime.files import JsonObject
from robustok.study.sections import ModelSection, TokenizerSection

Summary = dict[str, Any]  # the `result` of a finished cell's record, as JSON

FORMAT = 3  # of all keys; raise it when the fields of every kind mean another result
CORE = 1e11  # floating-point operations a second of one core, for small models
QUESTION_TOKENS = 45  # of a question with its answer


class Cell(ABC):
    """One unit of work whose result is kept. Each kind is a frozen dataclass.

    >>> from robustok.study.inputs import DataCell
    >>> small, large = (DataCell("cute", words, train=8, test=8, seed=0) for words in (100, 200))
    >>> small.key == large.key
    False
    >>> small.fields["words"]
    100

    `fields`, `version` and the keys of `inputs` make the key: cells with equal keys have equal
    results.
    """

    kind: ClassVar[str]
    version: ClassVar[int] = 1  # of this kind; raise it when its fields mean another result

    @property
    def fields(self) -> JsonObject:
        """The dataclass's fields as JSON: all that decides the result beside the inputs.

        A field with the metadata `NOT_IN_KEY`, of the cell or of a value in it, is left out.
        """
        return _in_key(self)

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
        """The models, tokenizers and texts that the cell itself reads from the hub."""
        values = (getattr(self, field.name) for field in dataclasses.fields(self))  # type: ignore[arg-type]
        plain_values = (value for value in values if not isinstance(value, Cell))
        return tuple(name for value in plain_values for name in getattr(value, "hub_names", ()))

    @abstractmethod
    def run(self, folder: Path, progress: Progress) -> Summary:
        """Do the work: write files to `self.path(folder)` and return the summary of the result.

        Args:
            folder: the folder of the run.
            progress: called with (work done, all work), in any unit.

        The inputs are finished. An interrupted cell continues from its files.
        """

    @computed_once
    def inputs(self) -> dict[str, Cell]:
        """The cells whose results this one reads, by the names of the attributes."""
        inputs: dict[str, Cell] = {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, Cell):
                inputs[field.name] = value
            elif _is_cells(value):
                inputs |= {f"{field.name}-{i}": cell for i, cell in enumerate(value)}
        return inputs

    @computed_once
    def key(self) -> str:
        """The kind and a hash of all that decides the result; the name of the cell's folder."""
        content = {
            "format": FORMAT,
            "kind": self.kind,
            "version": self.version,
            "fields": self.fields,
            "inputs": {role: cell.key for role, cell in self.inputs.items()},
        }
        text = json.dumps(content, sort_keys=True, ensure_ascii=False)
        return f"{self.kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def path(self, folder: Path) -> Path:
        """The folder of the cell's files in the folder of a run."""
        return folder / "cells" / self.key


def _is_cells(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and all(isinstance(v, Cell) for v in value)


def _in_key(value: object) -> Any:
    """A value as JSON, without inputs and without fields that change no result."""
    if isinstance(value, tuple):
        return [_in_key(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    content = {
        field.name: getattr(value, field.name)
        for field in dataclasses.fields(value)
        if field.metadata.get("in_key", True)
    }
    return {
        name: _in_key(item)
        for name, item in content.items()
        if not isinstance(item, Cell) and not _is_cells(item)
    }


def parameters(model: ModelSection, tokenizer: TokenizerSection | None) -> float:
    """The approximate number of parameters of a study's model.

    A named model has the number in its `parameters`, else one for every two bytes of its folder,
    else a billion.
    """
    if model.name is not None:
        files = Path(model.name).glob("*.safetensors")
        return model.parameters or sum(file.stat().st_size for file in files) / 2 or 1e9
    sizes = model.sizes()
    width, size = sizes["width"], tokenizer.size if tokenizer else None
    keys = width // sizes["heads"] * sizes["kv_heads"]
    block = 2 * width * width + 2 * width * keys + 3 * width * sizes["feed_forward"]
    return sizes["layers"] * block + (1 if sizes["tied"] else 2) * (size or 50_257) * width
