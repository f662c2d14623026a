"""Schemes that walk the lattice from left to right, each with its own step distribution."""

from __future__ import annotations

from collections.abc import Iterator
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

    def step_log_probs(self, text: bytes) -> Iterator[list[tuple[int, int, float]]]:
        """For each byte of a text, the tokens that a step from it may take.

        Args:
            text: bytes of one text.

        Each is (id, bytes of the token, natural log-probability of the step).
        """
        from robustok.kernels.long import edges_of
        from robustok.kernels.walk import log_totals, log_weights, step_probabilities

        rule = self._step_rule()
        raw = np.frombuffer(bytearray(text), np.uint8)
        edges = edges_of(self.vocab.trie, raw, 0, len(raw))
        weights = log_weights(self.vocab.trie, edges, raw, 0, rule)
        total = log_totals(edges, weights)
        p = np.empty(len(edges.token) + 1)
        for i in range(len(raw)):
            begin, end = int(edges.first[i]), int(edges.first[i + 1])
            if total[i] == -np.inf:
                yield []
                continue
            step_probabilities(edges, weights, total, i, rule.kind, rule.setting, p)
            yield [
                (int(edges.token[e]), int(edges.step[e] >> 1), float(np.log(p[e - begin])))
                for e in range(begin, end)
                if p[e - begin] > 0.0
            ]

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
