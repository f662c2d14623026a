"""The epoch and the mode of a stochastic tokenizer, shared with worker processes."""

from __future__ import annotations

import multiprocessing.context
from multiprocessing.sharedctypes import RawArray
from typing import Any


class State:
    """The epoch and whether draws are on, in memory that worker processes share.

    >>> state = State()
    >>> state.epoch = 3
    >>> state.epoch, state.training
    (3, True)

    Workers that are forked, or spawned by multiprocessing, see later changes. Any other pickle
    holds the two values of its moment.
    """

    def __init__(self, epoch: int = 0, training: bool = True) -> None:
        self._values = RawArray("q", [epoch, int(training)])

    @property
    def epoch(self) -> int:
        return self._values[0]

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._values[0] = epoch

    @property
    def training(self) -> bool:
        return bool(self._values[1])

    @training.setter
    def training(self, training: bool) -> None:
        self._values[1] = int(training)

    def __reduce__(self) -> Any:
        # Shared memory can be pickled for a process that is being spawned only.
        if multiprocessing.context.get_spawning_popen() is not None:
            return _of_values, (self._values,)
        return State, (self.epoch, self.training)


def _of_values(values: Any) -> State:
    state = State()
    state._values = values
    return state
