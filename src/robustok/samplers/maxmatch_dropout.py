"""`maxmatch-dropout`: longest match that passes over matches at random (Hiraoka 2022)."""

from __future__ import annotations

from typing import Any

import numpy as np

from robustok.samplers.canonical import Canonical
from robustok.samplers.parameters import probability
from robustok.samplers.walk import WalkSampler, plain_rule
from robustok.vocabulary import Vocabulary


class MaxMatchDropout(WalkSampler):
    """At each position the longest token that matches, each dropped with probability p.

    >>> [vocab.tokens[i] for i in MaxMatchDropout(vocab, p=0.5).sample("hello world", seed=1)]
    [b'hello', b' wor', b'ld']

    Args:
        vocab: the vocabulary whose texts are tokenized.
        p: probability that a match is dropped, from 0 to 1.

    Where all longer matches are dropped the shortest is used. p = 0 gives the canonical ids, as
    strength 0 does in every scheme; but as p falls towards 0 the draws become greedy longest match,
    which is not what BPE or Unigram would have chosen.
    """

    name = "maxmatch-dropout"
    example = "maxmatch-dropout(p=0.3)"
    parameters = {"p": probability(0.1)}
    strength = "p"
    exact = True
    p: float

    def __init__(self, vocab: Vocabulary, *, p: float = 0.1) -> None:
        super().__init__(vocab, p=p)

    def _log_prob_text(self, ids: np.ndarray) -> float:
        if self.p == 0.0:
            return Canonical(self.vocab)._log_prob_text(ids)
        return super()._log_prob_text(ids)

    def _step_rule(self) -> Any:
        from robustok.kernels.walk import MAXMATCH

        return plain_rule(MAXMATCH, self.p)

    def _draw(self, batch: Any, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        if self.p == 0.0:
            Canonical(self.vocab)._draw(batch, first, last, out, ends)
        else:
            super()._draw(batch, first, last, out, ends)
