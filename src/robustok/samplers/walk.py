"""Schemes that walk the lattice from left to right, each with its own law for one step."""

from __future__ import annotations

from typing import Any

import numpy as np

from robustok.errors import RobustokError
from robustok.samplers.tabled import TabledSampler


class WalkSampler(TabledSampler):
    """A sampler whose law is one of `kernels.walk`: it needs no canonical ids, only bytes."""

    def _law(self) -> Any:
        """A `kernels.walk.StepRule`."""
        raise NotImplementedError

    def _log_prob_text(self, ids: np.ndarray) -> float:
        """The sum over the steps. Exact."""
        from robustok.kernels.walk import log_prob_walk

        v = self.vocab
        text = np.frombuffer(bytearray(v.decode_bytes(ids)), np.uint8)
        return log_prob_walk(v.trie, text, ids, v.token_offsets, self._law())

    def _draw(self, batch: Any, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        from robustok.kernels.batch import Rows, spelled
        from robustok.kernels.walk_draws import draw_walk

        v, law = self.vocab, self._law()
        if batch.values.dtype != np.uint8:
            batch = spelled(batch, v.token_bytes, v.token_offsets)

        def kernel(store: Any, first: int, rows: Any) -> int:
            done: Any = draw_walk(v.trie, store, batch, law, first, last, rows)
            if done < 0:
                raise RobustokError(
                    f"{self.name}: a text has no tokenization that this scheme allows"
                )
            return done

        self._with_store(kernel, first, last, batch.draws, Rows(out, ends))


def plain_law(kind: int, setting: float, least: int = 1) -> Any:
    """A law without weights of its own for each token."""
    from robustok.kernels.walk import StepRule

    return StepRule(kind, setting, least, np.zeros(0), np.zeros(0, np.bool_))
