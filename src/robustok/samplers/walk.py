"""Schemes that walk the lattice from left to right, each with its own law for one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robustok.checks import check_ids
from robustok.errors import RobustokError
from robustok.samplers.tabled import TabledSampler


class WalkSampler(TabledSampler):
    """A sampler whose law is one of `kernels.walk`: it needs no canonical ids, only bytes."""

    def _law(self) -> Any:
        """A `kernels.walk.Law`."""
        raise NotImplementedError

    def log_prob(self, ids: Sequence[int] | np.ndarray) -> float:
        """The sum over the steps; special ids cost nothing. Exact."""
        from robustok.kernels.walk import log_prob_walk

        v, law = self.vocab, self._law()
        given = check_ids(ids, v.size)
        total = 0.0
        for stretch in np.split(given, np.flatnonzero(~v.readable[given])):
            plain = np.ascontiguousarray(stretch[v.readable[stretch]])
            text = np.frombuffer(v.decode_bytes(plain), np.uint8)
            total += log_prob_walk(v.trie, text, plain, v.token_offsets, law)
        return total

    def _draw(self, batch: Any, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        from robustok.kernels.batch import spelled
        from robustok.kernels.walk_draws import draw_walk

        v, law = self.vocab, self._law()
        if batch.values.dtype != np.uint8:
            batch = spelled(batch, v.token_bytes, v.token_offsets)

        def kernel(store: Any) -> int:
            done: Any = draw_walk(v.trie, store, batch, law, first, last, out, ends)
            if done < 0:
                raise RobustokError(
                    f"{self.name}: a text has no tokenization that this scheme allows"
                )
            return done

        self._with_store(kernel, last)


def plain_law(kind: int, setting: float, least: int = 1) -> Any:
    """A law without weights of its own for each token."""
    from robustok.kernels.walk import Law

    return Law(kind, setting, least, np.zeros(0), np.zeros(0, np.bool_))


def positive(name: str, value: float, scheme: str) -> float:
    """A number above 0 and finite, or a RobustokError."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise RobustokError(f"{scheme}: {name} must be a number, not {value!r}") from None
    if not 0 < number < float("inf"):
        raise RobustokError(f"{scheme}: {name} must be above 0 and finite, not {value}")
    return number
