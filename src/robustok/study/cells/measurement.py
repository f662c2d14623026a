"""Base class of cells that measure a model: each has a row in results.jsonl."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from robustok.study.cells.base import Cell
from robustok.study.cells.models import ModelCell
from robustok.study.cells.tokenizer import TokenizerCell


def rounded(strength: Mapping[str, float]) -> dict[str, float]:
    """Splits, distance and length ratio of a result's draws, for its summary.

    >>> rounded({"splits": 0.123456})
    {'splits': 0.1235}
    """
    return {name: round(value, 4) for name, value in strength.items()}


class MeasurementCell(Cell):
    """A measurement of one model. The cell's summary holds `query`, the scheme it was under."""

    model: ModelCell
    tokenizer: TokenizerCell
    seed: int

    @property
    @abstractmethod
    def query(self) -> str:
        """What it was measured under, as the summary names it."""

    @property
    def task(self) -> str:
        """The name of the task in results."""
        return "text"
