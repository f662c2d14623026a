"""Split counts of one canonical token: histogram of draws, and theoretical distributions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from robustok.analysis.draws import boundaries_inside, in_blocks, place_of
from robustok.samplers import sampler
from robustok.vocabulary import Text, Vocabulary


@dataclass(frozen=True, eq=False)
class SplitCounts:
    """The splits inside one canonical token: shares of the draws, and theoretical distributions.

    >>> result = split_counts(vocab, "hello world", "uniform", seed=0)
    >>> result.scheme, list(result.distributions)
    ('uniform', ['exact', 'binomial (paper)'])

    Args:
        scheme: normalized spec of the scheme.
        token: the canonical token, as text.
        draws: number of draws.
        observed: share of the draws with s splits inside the token, float64 [s].
        distributions: theoretical probabilities of s splits by name, float64 [s] each. Lengths may
            differ.
    """

    scheme: str
    token: str
    draws: int
    observed: np.ndarray
    distributions: dict[str, np.ndarray]


def split_counts(
    vocab: Vocabulary,
    text: Text,
    spec: str,
    *,
    seed: int,
    token: int = 0,
    draws: int = 50_000,
    progress: Callable[[int, int], None] | None = None,
) -> SplitCounts:
    """Draw tokenizations of a text and count the splits inside its ``token``-th canonical token.

    >>> result = split_counts(vocab, "hello world", "uniform", seed=0)
    >>> result.token, round(float(result.observed[1]), 2)
    ('hello', 0.17)

    Args:
        vocab: the vocabulary.
        text: one text.
        spec: spec of the scheme.
        seed: any integer; it and the number of a draw decide the draw.
        token: position of the token in the canonical tokenization, from 0.
        draws: draws of the text, at least 1.
        progress: called with (draws done, all draws).

    Theoretical distributions: for `stochastok` the Dirichlet-multinomial; for `stochastok-uniform`
    the same, and the exact one, which clips it to what the token allows; for `uniform-k` the
    paper's within tokens (by splits as in its formula, and by distance as in its figure) and the
    exact one (by distance, as it is sampled); for
    `uniform` the exact one and the paper's binomial. Other schemes have none.

    Raises RobustokError for a token that the text does not have.
    Source: the paper's appendix "Empirical distribution over per-token split-counts".
    """
    scheme, place = sampler(spec, vocab), place_of(vocab, text, token)
    counts = np.zeros(place.end - place.begin, np.int64)
    for _, drawn in in_blocks(scheme, place.canonical, draws, seed, progress):
        inside = boundaries_inside(vocab, drawn, place.begin, place.end)
        counts += np.bincount(inside, minlength=len(counts))
    last = int(np.flatnonzero(counts)[-1])
    name = vocab.decode([place.canonical[token]])
    distributions = scheme.split_distributions(place.canonical, place.token)
    return SplitCounts(scheme.spec, name, draws, counts[: last + 1] / draws, distributions)
