"""`canonical`: the tokenization that the tokenizer returns."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from robustok.samplers.base import Sampler


class Canonical(Sampler):
    """Every draw is τ(x); a row of ids is taken to be canonical.

    >>> Canonical(vocab).sample("hello world", seed=0)
    array([276, 275], dtype=int32)
    """

    name = "canonical"
    example = "canonical"
    color = "#3e4c59"
    exact = True
    deterministic = True
    nominal_splits = 0.0

    def _log_prob_text(self, ids: np.ndarray) -> float:
        """0 for the canonical tokenization, minus infinity for any other."""
        return 0.0 if np.array_equal(ids, self.vocab.canonicalize(ids)) else -np.inf

    def _draw(self, batch: Any, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        at, draws = 0, int(batch.draws)
        offsets = batch.offsets[first : last + 1].tolist()
        for t, (begin, end) in enumerate(itertools.pairwise(offsets)):
            for d in range(draws):
                out[at : at + end - begin] = batch.values[begin:end]
                at += end - begin
                ends[t * draws + d] = at
