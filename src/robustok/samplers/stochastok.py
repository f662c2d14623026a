"""`stochastok`: random splits of random tokens, again and again (paper, Algorithm `stok`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from robustok.errors import RobustokError
from robustok.samplers.base import strength
from robustok.samplers.tabled import TabledSampler
from robustok.vocabulary import Vocabulary


class StochasTok(TabledSampler):
    """⌈α·m⌉ times: pick a position uniformly, replace its token by one of its expansions.

    >>> [vocab.tokens[i] for i in StochasTok(vocab, alpha=1).sample("hello world", seed=0)]
    [b'hell', b'o', b' world']

    The expansions of a token are all its cuts into two tokens, with ``ways=3`` into two or three,
    listed together and equally likely. A pick whose token has none is spent.
    """

    name = "stochastok"
    example = "stochastok(alpha=0.5)"

    def __init__(self, vocab: Vocabulary, *, alpha: float = 0.1, ways: int = 2) -> None:
        super().__init__(vocab)
        self.alpha = strength("alpha", alpha, self.name)
        if isinstance(ways, bool) or ways != int(ways) or ways < 2:
            raise RobustokError(f"stochastok: ways must be a whole number from 2 on, not {ways}")
        self.ways = int(ways)

    @property
    def parameters(self) -> dict[str, Any]:
        return {"alpha": self.alpha} | ({"ways": self.ways} if self.ways != 2 else {})

    def _pairs(self) -> Any:
        """The two-way cuts of every token, made once a vocabulary."""
        from robustok.kernels.stochastok import pairs_of

        v = self.vocab
        return v.derived(
            "stochastok pairs",
            lambda: pairs_of(v.trie, v.token_bytes, v.token_offsets, v.ordinary),
        )

    def _room(self, texts: int, tokens: int, size: int) -> int:
        picks = int(self.alpha * tokens) + 2 * texts  # rounded up in each text
        return min(size, tokens + picks * (self.ways - 1))

    def _draw(self, batch: Any, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        from robustok.kernels import stochastok

        v = self.vocab
        alpha = np.float64(self.alpha)
        if self.ways == 2:
            start, left, right = self._pairs()
            stochastok.draw_stochastok(start, left, right, batch, alpha, first, last, out, ends)
            return
        self._with_store(
            lambda store: stochastok.draw_stochastok_ways(
                v.trie, store, v.token_bytes, v.token_offsets, batch, alpha, self.ways, first,
                last, out, ends,
            ),
            last,
        )  # fmt: skip
