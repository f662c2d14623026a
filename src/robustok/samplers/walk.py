"""Schemes that walk the lattice from left to right, each with its own step distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from robustok.errors import RobustokError
from robustok.samplers.tabled import TabledSampler


class WalkSampler(TabledSampler):
    """A sampler with a step rule of `kernels.walk`. It reads bytes, not canonical ids."""

    def _step_rule(self) -> Any:
        """A `kernels.walk.StepRule`."""
        raise NotImplementedError

    def _log_prob_text(self, ids: np.ndarray) -> float:
        """The sum over the steps. Exact."""
        from robustok.kernels.walk import log_prob_walk

        v = self.vocab
        text = np.frombuffer(bytearray(v.decode_bytes(ids)), np.uint8)
        return log_prob_walk(v.trie, text, ids, v.token_offsets, self._step_rule())

    def _draw(self, batch: Any, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        from robustok.kernels.batch import Rows, spelled
        from robustok.kernels.walk_draws import draw_walk

        v, step_rule = self.vocab, self._step_rule()
        if batch.values.dtype != np.uint8:
            batch = spelled(batch, v.token_bytes, v.token_offsets)

        def kernel(store: Any, first: int, rows: Any) -> int:
            done: Any = draw_walk(v.trie, store, batch, step_rule, first, last, rows)
            if done < 0:
                raise RobustokError(
                    f"{self.name}: a text has no tokenization that this scheme allows"
                )
            return done

        self._with_store(kernel, first, last, batch.draws, Rows(out, ends))


def plain_rule(kind: int, setting: float, least: int = 1) -> Any:
    """A step rule without weights for each token."""
    from robustok.kernels.walk import StepRule

    return StepRule(kind, setting, least, np.zeros(0), np.zeros(0, np.bool_))
