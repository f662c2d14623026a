"""`stochastok`: repeated random splits of random tokens (paper, Algorithm `stok`)."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from robustok.kernels.batch import Rows
from robustok.kernels.stochastok import (
    MOST_PICKS,
    PickRate,
    draw_stochastok,
    draw_stochastok_listed,
    pairs_of,
)
from robustok.samplers.parameters import count, per_token
from robustok.samplers.stored import StoredSampler
from robustok.tokenizer.vocabulary import Vocabulary


class StochasTok(StoredSampler):
    """⌈α·m⌉ times: pick a position uniformly, replace its token by one of its expansions.

    >>> [vocab.tokens[i] for i in StochasTok(vocab, alpha=1).sample("hello world", seed=0)]
    [b'hell', b'o', b' world']

    Args:
        vocab: the vocabulary whose texts are tokenized.
        alpha: α, picks for each canonical token, from 0 to 10,000; m is the number of these tokens.
        ways: greatest number of tokens that one is cut into, at least 2 (default).
        max_picks: greatest number of picks in a text (K_max of the paper's Algorithm 1), from 0 to
            2**31 - 1; by default none. Each run of ids between special tokens is a text.

    The expansions of a token are all its cuts into two tokens (with ``ways=3`` into two or three),
    listed together and equally likely. A pick whose token has none changes nothing.
    """

    name = "stochastok"
    example = "stochastok(alpha=0.5)"
    variants = ("stochastok(alpha=2, ways=3)", "stochastok(alpha=2, max_picks=3)")
    parameters = {
        "alpha": per_token(0.1),
        "ways": count(2, least=2, interactive_max=4),  # the list of expansions grows exponentially
        "max_picks": count(),
    }
    strength = "alpha"
    nominal_splits = "alpha"
    color = "#e69f00"
    alpha: float
    ways: int
    max_picks: int | None

    def __init__(
        self,
        vocab: Vocabulary,
        *,
        alpha: float = 0.1,
        ways: int = 2,
        max_picks: int | None = None,
    ) -> None:
        super().__init__(vocab, alpha=alpha, ways=ways, max_picks=max_picks)

    def picks_of(self, tokens: int) -> int:
        """The picks in a text with this many canonical tokens.

        Args:
            tokens: number of canonical tokens.
        """
        picks = ceil(self.alpha * tokens)
        return picks if self.max_picks is None else min(picks, self.max_picks)

    def _pairs(self) -> Any:
        """The two-way cuts of every token, made once a vocabulary."""
        v = self.vocab
        return v.derived(
            "stochastok pairs",
            lambda: pairs_of(v.trie, v.token_bytes, v.token_offsets, v.ordinary),
        )

    def _max_ids(self, texts: int, tokens: int, size: int) -> int:
        picks = int(self.alpha * tokens) + 2 * texts  # rounded up in each text
        return min(size, tokens + picks * (self.ways - 1))

    def _rate(self) -> PickRate:
        most = MOST_PICKS if self.max_picks is None else self.max_picks
        return PickRate(np.float64(self.alpha), np.int64(most))

    def _kernel(self) -> Any:
        return draw_stochastok_listed, self.vocab.kernel_tokens, (self._rate(), self.ways)

    def _draw(self, batch: Any, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        if self.ways > 2:
            super()._draw(batch, first, last, out, ends)
            return
        offsets, rows = self.vocab.token_offsets, Rows(out, ends)
        draw_stochastok(self._pairs(), offsets, batch, self._rate(), first, last, rows)
