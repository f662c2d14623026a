"""`stochastok-uniform`: StochasTok's split counts, uniform segmentations (paper: `Stok-uni`)."""

from __future__ import annotations

from math import ceil, comb, inf, log
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.samplers.parameters import Choice, per_token
from robustok.samplers.tabled import TabledSampler
from robustok.vocabulary import Vocabulary

if TYPE_CHECKING:
    from robustok.lattice import Lattice


class StochasTokUniform(TabledSampler):
    """⌈α·m⌉ splits spread over the tokens, each token then cut uniformly into its share.

    >>> s = StochasTokUniform(vocab, alpha=1)
    >>> [vocab.tokens[i] for i in s.sample("hello world", seed=0)]
    [b'hell', b'o', b' wor', b'ld']

    Args:
        vocab: the vocabulary whose texts are tokenized.
        alpha: α, splits for each canonical token, from 0 to 10,000; m is the number of these
            tokens.
        support: ``"all"`` (default), or ``"pairwise"`` for the segmentations only that repeated
            two-way splits through tokens reach.

    The shares are Dirichlet-multinomial with one unit per token; a share beyond what its token
    allows is clipped to the greatest that it does.
    """

    name = "stochastok-uniform"
    example = "stochastok-uniform(alpha=0.5)"
    variants = ("stochastok-uniform(alpha=2, support=pairwise)",)
    parameters = {"alpha": per_token(0.5), "support": Choice(("all", "pairwise"))}
    strength = "alpha"
    color = "#56b4e9"
    exact = True
    alpha: float
    support: str
    _too_rare = (
        "stochastok-uniform: too few segmentations of a token come from two-way splits: use "
        "support='all' or another alpha"
    )

    def __init__(self, vocab: Vocabulary, *, alpha: float = 0.5, support: str = "all") -> None:
        super().__init__(vocab, alpha=alpha, support=support)

    def _log_prob_text(self, ids: np.ndarray) -> float:
        """The probability of the split counts times that of each token's segmentation."""
        canonical = self.vocab.canonicalize(ids).tolist()
        given = ids.tolist()
        segments = _segments_of(self.vocab, canonical, given)
        if segments is None:
            return -inf
        splits = ceil(self.alpha * len(canonical))
        if splits == 0 or not canonical:
            return 0.0 if canonical == given else -inf
        from robustok.samplers.split_distributions import segmentation_counts

        result = 0.0
        shares = []  # split counts that clip to the one of ``given``: (low, high), high None: any
        for token, cut in zip(canonical, segments, strict=True):
            counts = segmentation_counts(self.vocab, token, self.support)
            if len(cut) >= len(counts) or not counts[len(cut)] or not self._allowed(token, cut):
                return -inf
            result -= log(counts[len(cut)])
            more = [s for s in range(len(cut) + 1, len(counts)) if counts[s]]
            shares.append((len(cut) - 1, more[0] - 2 if more else None))
        compositions = _compositions(splits, shares)
        if not compositions:
            return -inf
        m = len(canonical)
        return result + log(compositions) - log(comb(splits + m - 1, m - 1))

    def _allowed(self, token: int, cut: list[int]) -> bool:
        if len(cut) == 1:
            return cut[0] == token
        if not self.vocab.ordinary[cut].all():
            return False
        if self.support == "all" or len(cut) == 2:
            return True
        from robustok.kernels import pairwise

        v = self.vocab
        spans = pairwise.spans(
            v.trie, v.token_bytes, v.token_offsets[token], v.token_offsets[token + 1]
        )
        size = len(cut) + 1
        scratch = np.empty(size, np.int64), np.empty((size, size), np.bool_)
        segments = np.asarray(cut, np.int32)
        return bool(pairwise.is_pairwise(spans, segments, len(cut), v.token_offsets, *scratch))

    def segmentation_weights(
        self, lattice: Lattice, segmentations: list[tuple[int, ...]]
    ) -> dict[tuple[int, ...], float]:
        """Uniform among the segmentations of the support with as many splits."""
        token = int(lattice.reference[0])
        return {cut: 1.0 for cut in segmentations if self._allowed(token, list(cut))}

    def split_distributions(self, canonical: np.ndarray, token: int) -> dict[str, np.ndarray]:
        """The paper's Dirichlet-multinomial, and the exact one: clipped to the token's counts."""
        from robustok.samplers.split_distributions import (
            clipped,
            dirichlet_multinomial,
            segmentation_counts,
        )

        m = len(canonical)
        shares = dirichlet_multinomial(ceil(self.alpha * m), m)
        counts = segmentation_counts(self.vocab, int(canonical[token]), self.support)
        return {
            "Dirichlet-multinomial (paper)": shares,
            "clipped (exact)": clipped(shares, counts),
        }

    def _room(self, texts: int, tokens: int, size: int) -> int:
        return min(size, tokens + int(self.alpha * tokens) + 2 * texts)  # rounded up in each text

    def _draw(self, batch: Any, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        from robustok.kernels.batch import Rows
        from robustok.kernels.stochastok_uniform import draw_stochastok_uniform

        v = self.vocab
        alpha, pairwise = np.float64(self.alpha), self.support == "pairwise"

        def kernel(store: Any, first: int, rows: Any) -> int:
            return draw_stochastok_uniform(
                v.kernel_tokens, store, batch, alpha, pairwise, first, last, rows
            )

        self._with_store(kernel, first, last, batch.draws, Rows(out, ends))


def _segments_of(
    vocab: Vocabulary, canonical: list[int], given: list[int]
) -> list[list[int]] | None:
    """The segments of each canonical token, or None if a token crosses a canonical boundary."""
    segments: list[list[int]] = []
    at = 0
    for token in canonical:
        left = len(vocab.tokens[token])
        cut = []
        while left > 0 and at < len(given):
            cut.append(given[at])
            left -= len(vocab.tokens[given[at]])
            at += 1
        if left:
            return None
        segments.append(cut)
    return segments


def _compositions(total: int, shares: list[tuple[int, int | None]]) -> int:
    """The number of ordered shares, each within its bounds, that add up to ``total``."""
    rest = total - sum(low for low, _ in shares)
    open_ended = sum(high is None for _, high in shares)
    if rest < 0:
        return 0
    counts = [1] + [0] * rest  # by the sum of the bounded shares, less their lower bounds
    for low, high in shares:
        if high is not None and high > low:
            counts = [sum(counts[max(0, r - high + low) : r + 1]) for r in range(rest + 1)]
    if open_ended == 0:
        return counts[rest]
    return sum(w * comb(rest - r + open_ended - 1, open_ended - 1) for r, w in enumerate(counts))
