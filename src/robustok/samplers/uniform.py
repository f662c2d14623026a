"""`uniform` over all tokenizations, `uniform-k` over those at one distance."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from robustok.errors import RobustokError
from robustok.kernels.numbers import rounded_up
from robustok.kernels.store import NOT_DRAWN
from robustok.kernels.uniform_k import Goal, draw_uniform_k
from robustok.kernels.walk import draw_blocks
from robustok.lattice import Lattice, distance
from robustok.runtime.environment import computed_once
from robustok.samplers.parameters import count, per_token
from robustok.samplers.stored import Kernel, StoredSampler
from robustok.tokenizer.vocabulary import Vocabulary

# For a text whose draws are all canonical.
ONLY_CANONICAL = "no tokenization at a distance from 1 to k: use a larger alpha or k"


class Uniform(StoredSampler):
    """Every tokenization of the text is as likely as any other.

    >>> round(float(np.exp(Uniform(vocab).log_prob(vocab.encode("the")))), 3)
    0.333

    In 20 lines of plain Python: uniform in ``tests/oracles/samplers.py``.
    """

    name = "uniform"
    example = "uniform"
    color = "#009e73"
    exact = True
    _reads_bytes = True
    _reads_canonical = False

    def _log_prob_text(self, ids: np.ndarray, canonical: np.ndarray) -> float:
        """Minus the logarithm of the number of tokenizations."""
        return -Lattice(self.vocab, ids).log_count()

    @computed_once
    def _kernel(self) -> Kernel:
        return draw_blocks, self.vocab.kernel_tokens, (None,)


class UniformK(StoredSampler):
    """Uniform over the tokenizations at distance k from the canonical one (the paper's T^k).

    k is ⌈α·m⌉ for a text of m canonical tokens, or given.

    >>> s = UniformK(vocab, k=2)
    >>> [vocab.tokens[i] for i in s.sample("hello world", seed=0)]
    [b'hell', b'o', b' world']
    >>> round(float(np.exp(-s.log_prob(s.sample("hello world", seed=0)))))
    2

    Args:
        vocab: the vocabulary whose texts are tokenized.
        alpha: α, distance for each canonical token, from 0 to 10,000. Give ``alpha`` or ``k``.
        k: distance of every text, whatever its length, from 0 to 2**31 - 1.

    Tokens across canonical boundaries are included. Each run of ids between special tokens is a
    text.

    Where T^k is empty, the largest possible distance below k is used, without a warning
    (:meth:`robustok.Lattice.feasible`). Splitting a token is already at distance 2, so nearly all
    texts whose k is 1 (m ≤ 1/α) stay canonical for every seed: with ``alpha=0.5`` those of one or
    two tokens, 97% of single English words under GPT-2; with ``alpha=0.1`` those of up to ten.

    In 20 lines of plain Python: uniform_k in ``tests/oracles/samplers.py``.
    """

    name = "uniform-k"
    example = "uniform-k(alpha=0.5)"
    variants = ("uniform-k(k=3)",)
    parameters = {"alpha": per_token(), "k": count()}
    strength = "alpha"
    color = "#0072b2"
    exact = True
    _failures = StoredSampler._failures | {
        NOT_DRAWN: "this distance is too rare among the tokenizations of the text to be drawn: "
        "take another k or alpha, or shorter texts",
    }
    alpha: float | None
    k: int | None

    def __init__(
        self, vocab: Vocabulary, *, alpha: float | None = None, k: int | None = None
    ) -> None:
        super().__init__(vocab, alpha=alpha, k=k)

    @classmethod
    def _check_together(cls, params: Mapping[str, object]) -> None:
        if len(params) != 1:
            raise RobustokError("uniform-k: give either alpha (per token) or k, as uniform-k(k=20)")

    def distance_of(self, tokens: int) -> int:
        """The distance k of a text with this many canonical tokens.

        Args:
            tokens: number of canonical tokens.
        """
        return self.k if self.k is not None else int(rounded_up(self.alpha or 0.0, tokens))

    def _log_prob_text(self, ids: np.ndarray, canonical: np.ndarray) -> float:
        """Minus the logarithm of the number at distance k; minus infinity at another distance."""
        lattice = Lattice(self.vocab, canonical)
        k = self.distance_of(len(canonical))
        k = min(k, lattice.farthest)
        log_count = lattice.log_count(distance=k)
        if log_count == -np.inf:
            k = lattice.feasible(k)
            log_count = lattice.log_count(distance=k)
        return -log_count if distance(self.vocab, canonical, ids) == k else -np.inf

    def _max_ids(self, texts: int, tokens: int, size: int) -> int:
        # k tokens are not the reference's, and at most all of the reference's are left.
        n_changed = self.k * texts if self.k is not None else int((self.alpha or 0.0) * tokens)
        return min(size, tokens + n_changed + 2 * texts)  # rounded up in each text

    @computed_once
    def _kernel(self) -> Kernel:
        fixed_k = np.int64(-1 if self.k is None else self.k)
        goal = Goal(np.float64(self.alpha or 0.0), fixed_k)
        return draw_uniform_k, self.vocab.kernel_tokens, (goal, None)
