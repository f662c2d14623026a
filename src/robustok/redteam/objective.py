"""Objective of an attack: ids of candidate tokenizations in, a score for each out.

The search knows nothing else about the model. An objective scores all its candidates in one call,
so one for a causal language model computes their shared prefixes once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from robustok.errors import RobustokError
from robustok.ragged import Ragged


@runtime_checkable
class Objective(Protocol):
    """What an attack maximizes over the tokenizations of one text.

    >>> objective = as_objective(lambda rows: -rows.lengths)
    >>> isinstance(objective, Objective), objective(rt.Ragged.from_rows([[5, 6], [7]])).tolist()
    (True, [-2.0, -1.0])

    Args:
        name: what is maximized, for tables and files.
        threshold: an attack succeeds where its score exceeds it; None where no score is a success.
        max_length: greatest number of tokens of a candidate; None for no limit.
    """

    @property
    def name(self) -> str: ...
    @property
    def threshold(self) -> float | None: ...
    @property
    def max_length(self) -> int | None: ...

    def __call__(self, rows: Ragged) -> np.ndarray:
        """The score of each candidate, float64 [candidates]; minus infinity excludes one.

        Args:
            rows: the candidates, tokenizations of the text without what is around it.
        """
        ...


@dataclass(frozen=True)
class FunctionObjective:
    """A Python function as an objective; see :func:`as_objective`.

    >>> as_objective(len, name="count").name
    'count'

    Args:
        function: takes a :class:`robustok.Ragged` of candidates and returns a number for each.
        name: what is maximized.
        threshold: score above which an attack succeeds; None for never.
        max_length: greatest number of tokens of a candidate; None for no limit.
    """

    function: Callable[[Ragged], Any]
    name: str
    threshold: float | None = None
    max_length: int | None = None

    def __call__(self, rows: Ragged) -> np.ndarray:
        """The function's numbers.

        Args:
            rows: the candidates.

        Raises RobustokError where there is not one number for each candidate.
        """
        scores = np.asarray(self.function(rows), np.float64)
        if scores.shape != (len(rows),):
            raise RobustokError(
                f"objective '{self.name}' gave an array of shape {scores.shape} for {len(rows)} "
                "candidates: return one number for each"
            )
        if np.isnan(scores).any():
            raise RobustokError(f"objective '{self.name}' gave a score that is not a number")
        return scores


def as_objective(
    function: Callable[[Ragged], Any],
    *,
    name: str | None = None,
    threshold: float | None = None,
    max_length: int | None = None,
) -> FunctionObjective:
    """An objective from any Python function.

    >>> as_objective(lambda rows: rows.lengths, name="length", threshold=9).threshold
    9

    Args:
        function: takes a :class:`robustok.Ragged` of candidates, and returns a number for each.
        name: what is maximized, by default the name of the function.
        threshold: score above which an attack succeeds, by default none.
        max_length: greatest number of tokens of a candidate, by default unlimited.
    """
    own_name = getattr(function, "__name__", type(function).__name__)
    return FunctionObjective(function, name or own_name, threshold, max_length)
