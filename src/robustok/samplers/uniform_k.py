"""`uniform-k`: uniform over the tokenizations at distance exactly k (paper: `Uni-k`)."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.errors import RobustokError
from robustok.kernels.batch import Rows
from robustok.kernels.record import DISTANCE
from robustok.kernels.uniform_k import Goal, draw_uniform_k
from robustok.samplers.parameters import count, per_token
from robustok.samplers.tabled import TabledSampler
from robustok.samplers.texts import is_drawable
from robustok.vocabulary import Vocabulary

if TYPE_CHECKING:
    from robustok.lattice import Lattice


class UniformK(TabledSampler):
    """Uniform over T^k(x, τ(x)), with k = ⌈α·m⌉ for a text of m canonical tokens, or a given k.

    >>> s = UniformK(vocab, k=2)
    >>> [vocab.tokens[i] for i in s.sample("hello world", seed=0)]
    [b'hell', b'o', b' world']
    >>> round(float(np.exp(-s.log_prob(s.sample("hello world", seed=0)))))
    2

    Args:
        vocab: the vocabulary whose texts are tokenized.
        alpha: α, distance for each canonical token, from 0 to 10,000. Give ``alpha`` or ``k``.
        k: distance of every text, whatever its length, from 0 to 2**31 - 1.

    Tokens across canonical boundaries are included. Where no tokenization is at distance k, the
    largest possible distance below is used. Each run of ids between special tokens is a text.
    """

    name = "uniform-k"
    example = "uniform-k(alpha=0.5)"
    variants = ("uniform-k(k=3)",)
    parameters = {"alpha": per_token(), "k": count()}
    strength = "alpha"
    color = "#0072b2"
    exact = True
    given = {"distance": "uniform-k"}
    _too_rare = (
        "uniform-k: this distance is too rare among the tokenizations of the text to be drawn: "
        "take another k or alpha, or shorter texts"
    )
    alpha: float | None
    k: int | None

    def __init__(
        self, vocab: Vocabulary, *, alpha: float | None = None, k: int | None = None
    ) -> None:
        super().__init__(vocab, alpha=alpha, k=k)

    @classmethod
    def _check_together(cls, params: Mapping[str, Any]) -> None:
        if len(params) != 1:
            raise RobustokError("uniform-k: give either alpha (per token) or k, as uniform-k(k=20)")

    def distance_of(self, tokens: int) -> int:
        """The distance k of a text with this many canonical tokens.

        Args:
            tokens: number of canonical tokens.
        """
        return self.k if self.k is not None else ceil((self.alpha or 0.0) * tokens)

    def _log_prob_text(self, ids: np.ndarray) -> float:
        """Minus the logarithm of the number at distance k; minus infinity at another distance."""
        from robustok.lattice import Lattice, distance

        canonical = self.vocab.canonicalize(ids)
        if not is_drawable(self.vocab, canonical, ids):
            return -np.inf
        lattice = Lattice(self.vocab, canonical)
        k = self.distance_of(len(canonical))
        k = min(k, lattice.farthest)
        log_count = lattice.log_count(distance=k)
        if log_count == -np.inf:
            k = lattice.feasible(k)
            log_count = lattice.log_count(distance=k)
        return -log_count if distance(self.vocab, canonical, ids) == k else -np.inf

    def segmentation_weights(
        self, lattice: Lattice, segmentations: list[tuple[int, ...]]
    ) -> dict[tuple[int, ...], float]:
        """Uniform among segmentations with as many splits."""
        return dict.fromkeys(segmentations, 1.0)

    def split_distributions(self, canonical: np.ndarray, token: int) -> dict[str, np.ndarray]:
        """The paper's within tokens, by splits and by distance, and the exact one by distance."""
        from robustok.lattice import Lattice
        from robustok.samplers.split_distributions import (
            by_distance_within,
            by_splits,
            exactly,
            span_of,
        )

        lattice = Lattice(self.vocab, canonical)
        k = self.distance_of(len(canonical))
        k = min(k, lattice.farthest)
        while not lattice.count(distance=k):
            k -= 1
        span = span_of(self.vocab, canonical, token)
        return {
            "by splits (paper)": by_splits(self.vocab, canonical, token, k),
            "by distance within tokens": by_distance_within(self.vocab, canonical, token, k),
            "by distance (exact)": exactly(lattice, *span, distance=k),
        }

    def _room(self, texts: int, tokens: int, size: int) -> int:
        # Tokens that are not the reference's are k, and of the reference's some are left.
        most = self.k * texts if self.k is not None else int((self.alpha or 0.0) * tokens) + texts
        return min(size, tokens + most)

    def _draw(self, batch: Any, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        fixed = np.int64(-1 if self.k is None else self.k)
        goal = Goal(np.int64(DISTANCE), np.float64(self.alpha or 0.0), fixed)
        draw_at(self, goal, batch, first, last, Rows(out, ends))


def draw_at(
    sampler: TabledSampler, goal: Goal, batch: Any, first: int, last: int, rows: Rows
) -> None:
    """Draw texts first..last of a batch uniformly at the cost of ``goal``, with a store."""
    tokens = sampler.vocab.kernel_tokens

    def kernel(store: Any, first: int, rows: Any) -> int:
        return draw_uniform_k(tokens, store, batch, goal, first, last, rows)

    sampler._with_store(kernel, first, last, int(batch.draws), rows)
