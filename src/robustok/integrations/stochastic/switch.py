"""What all stochastic tokenizers have beside the methods of the wrapped one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from robustok.analysis import most_probable
from robustok.checks import check_integer, check_text
from robustok.errors import RobustokError
from robustok.integrations.stochastic.draws import SeededScheme

T = TypeVar("T", bound="Switch")


class Switch:
    """Training and evaluation mode, the epoch, samples and n-best lists.

    >>> drawing = rt.stochastic(tokenizer, "uniform", seed=0)
    >>> drawing.training, drawing.epoch
    (True, 0)
    >>> len(drawing.sample_encode("hello", 3))
    3
    >>> [(len(ids), round(log_prob, 2)) for ids, log_prob in drawing.nbest_encode("the", 2)]
    [(3, -1.1), (2, -1.1)]

    ``draws`` are the scheme, seed, epoch and mode; ``wrapped_tokenizer`` is the canonical original.
    """

    draws: SeededScheme
    wrapped_tokenizer: Any

    def train(self: T, mode: bool = True) -> T:
        """Turn draws on, or off by ``mode=False``. Returns the tokenizer itself.

        Args:
            mode: whether draws are on.
        """
        self.draws.state.training = bool(mode)
        return self

    def eval(self: T) -> T:
        """Turn draws off: every call returns what the wrapped tokenizer returns."""
        return self.train(False)

    @property
    def training(self) -> bool:
        """Whether draws are on."""
        return self.draws.state.training

    @property
    def epoch(self) -> int:
        """The epoch or step of the next draws."""
        return self.draws.state.epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch or step of the next draws, here and in worker processes that run.

        Args:
            epoch: an int64; each value gives other draws.
        """
        self.draws.set_epoch(epoch)

    def sample_encode(self, text: str, n: int = 1) -> list[list[int]]:
        """Draw ``n`` tokenizations of a text in the current epoch, without special tokens.

        They do not depend on the mode. The first is that of a call of the tokenizer.

        Args:
            text: a string; special tokens spelled out in it are text.
            n: number of draws, at least 1.
        """
        n = check_integer("n", n, 1)
        ids = self.draws.vocab.encode(check_text(text))
        return [self.draws.draw([ids], number=i)[0].tolist() for i in range(n)]

    def nbest_encode(self, text: str, n: int = 10) -> list[tuple[list[int], float]]:
        """The ``n`` most probable tokenizations of a text under the scheme, best first.

        Args:
            text: a string; special tokens spelled out in it are text.
            n: number of tokenizations, at least 1; fewer where the text has fewer.

        Each has its ids and natural log-probability. See
        :func:`robustok.analysis.most_probable`, which raises the same errors.
        """
        best = most_probable(self.draws.sampler, check_text(text), n)
        return [(ids.tolist(), log_prob) for ids, log_prob in best]

    def _refuse(self, name: str, instead: str) -> None:
        """Raise RobustokError for a method that would silently return canonical ids."""
        if self.training:
            raise RobustokError(
                f"{name} cannot draw tokenizations: use {instead}, or tokenizer.eval() first"
            )

    def _drawn_rows(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        """Canonical ids, drawn in training mode; special ids stay."""
        if not self.training:
            return [list(row) for row in rows]
        return [row.tolist() for row in self.draws.draw([np.asarray(r, np.int32) for r in rows])]

    def _drawn(self, ids: Sequence[int]) -> list[int]:
        return self._drawn_rows([ids])[0]
