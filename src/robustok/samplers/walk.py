"""Schemes that walk the lattice from left to right, each with its own law for one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from robustok.errors import RobustokError
from robustok.samplers.base import Sampler
from robustok.vocabulary import check_ids


class WalkSampler(Sampler):
    """A sampler whose kernel is `kernels.walk`: it needs no canonical ids, only bytes."""

    law: ClassVar[int]

    def _settings(self) -> tuple[float, int, np.ndarray, np.ndarray]:
        """Temperature or probability, least length, log-weight of each id, which are fallbacks."""
        raise NotImplementedError

    def log_prob(self, ids: Sequence[int] | np.ndarray) -> float:
        """The sum over the steps; special ids cost nothing. Exact."""
        from robustok.kernels.walk import log_prob_walk

        v = self.vocab
        given = check_ids(ids, v.size)
        total = 0.0
        fixed = np.flatnonzero(~v.readable[given])
        for stretch in np.split(given, fixed):
            plain = np.ascontiguousarray(stretch[v.readable[stretch]])
            text = np.frombuffer(v.decode_bytes(plain), np.uint8)
            total += log_prob_walk(v.trie, text, plain, v.token_offsets, self.law,
                                   *self._settings())  # fmt: skip
        return total

    def _draw(self, batch: Any, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        from robustok.kernels.batch import spelled
        from robustok.kernels.walk import draw_walk

        v = self.vocab
        if batch.values.dtype != np.uint8:
            batch = spelled(batch, v.token_bytes, v.token_offsets)
        done: Any = draw_walk(v.trie, batch, self.law, *self._settings(), first, last, out, ends)
        if done < last:
            raise RobustokError(f"{self.name}: a text has no tokenization that this scheme allows")


def positive(name: str, value: float, scheme: str) -> float:
    """A number above 0 and finite, or a RobustokError."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise RobustokError(f"{scheme}: {name} must be a number, not {value!r}") from None
    if not 0 < number < float("inf"):
        raise RobustokError(f"{scheme}: {name} must be above 0 and finite, not {value}")
    return number
