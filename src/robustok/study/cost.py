"""Estimates of cost: seconds on one core, GPU hours for `study list`, time left of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from robustok.study.cells.base import Cell
from robustok.study.schema import Study, TrainingSection

CORE = 1e11  # floating-point operations a second of one core, for small models
GPU = 3e14  # of one large accelerator in bfloat16, at a third of its peak
QUESTION_TOKENS = 45  # of a question with its answer
TRUSTED = 60.0  # seconds of finished cells that count as much as their planned cost


def parameters(study: Study) -> float:
    """About how many parameters a study's model has.

    A named model has the number its `parameters` give, else that of the bytes of its folder, at two
    bytes each, else a billion.
    """
    model = study.model
    if model.name is not None:
        files = Path(model.name).glob("*.safetensors")
        return model.parameters or sum(file.stat().st_size for file in files) / 2 or 1e9
    sizes = model.sizes()
    width, size = sizes["width"], study.tokenizer.size if study.tokenizer else None
    keys = width // sizes["heads"] * sizes["kv_heads"]
    block = 2 * width * width + 2 * width * keys + 3 * width * sizes["feed_forward"]
    return sizes["layers"] * block + (1 if sizes["tied"] else 2) * (size or 50_257) * width


def training_seconds(
    parameters: float, options: TrainingSection, scheme: str, max_length: int | None = None
) -> float:
    """Seconds of training on full rows of `max_length` tokens, or on questions without it."""
    if max_length is None:
        # Drawn tokenizations are about twice as long as the canonical ones.
        max_length = QUESTION_TOKENS * (1 if scheme == "canonical" else 2)
    return 6 * parameters * float(options.steps * options.batch_size) * max_length / CORE


def scoring_seconds(parameters: float, tokens: float) -> float:
    return 2 * parameters * tokens / CORE


def gpu_hours(work: Sequence[float]) -> float:
    """Hours on one accelerator for cells of this many seconds on one core."""
    return sum(work) * CORE / GPU / 3600


class Estimate:
    """The time that the unfinished cells of a run take.

    >>> from robustok.study import find_study, plan
    >>> cells = plan(find_study("quick"))
    >>> estimate = Estimate(cells, {})
    >>> estimate.finish(cells[0], 30.0)  # its work is 1: thirty times as long as planned
    >>> estimate.seconds_left() > sum(cell.work for cell in cells[1:])
    True

    The planned costs are scaled by what finished cells took, those of the same kind first. Of a
    minute of finished work and the plan each has half of the weight, so that one short cell, which
    takes mostly start-up time, does not decide.

    Args:
        cells: all cells of the study.
        records: the records of cells that an earlier run finished, by key.
    """

    def __init__(self, cells: Iterable[Cell], records: Mapping[str, Mapping[str, Any]]) -> None:
        self._left = {cell.key: cell for cell in cells}
        self._planned: dict[str, float] = defaultdict(float)  # by kind
        self._taken: dict[str, float] = defaultdict(float)
        for cell in list(self._left.values()):
            if cell.key in records:
                self.finish(cell, records[cell.key]["seconds"])

    def finish(self, cell: Cell, seconds: float) -> None:
        """Count a cell that took this many seconds."""
        del self._left[cell.key]
        self._planned[cell.kind] += cell.work
        self._taken[cell.kind] += seconds

    def seconds_left(self, shares: Mapping[str, float] | None = None) -> float:
        """Seconds of one cell after another, without the finished shares of running cells.

        Args:
            shares: how much of each running cell is done, from 0 to 1, by key.
        """
        taken, planned = sum(self._taken.values()), sum(self._planned.values())
        overall_rate = (taken + TRUSTED) / (planned + TRUSTED)
        shares = shares or {}
        seconds = 0.0
        for cell in self._left.values():
            taken = self._taken[cell.kind] + overall_rate * TRUSTED
            rate = taken / (self._planned[cell.kind] + TRUSTED)
            seconds += cell.work * rate * (1 - shares.get(cell.key, 0.0))
        return seconds
