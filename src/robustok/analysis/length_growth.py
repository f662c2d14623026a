"""Growth of texts in tokens under a scheme: the cost of stochastic training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from robustok.checks import check_list
from robustok.samplers import sampler
from robustok.strength import measure
from robustok.vocabulary import Vocabulary


class Growth(NamedTuple):
    """Length ratio of one scheme at one alpha, over all texts together.

    >>> result = growth(vocab, texts, ["uniform-k"], alphas=[1], seed=0)[0]
    >>> result.scheme, result.alpha, result.texts
    ('uniform-k', 1.0, 2)

    Attributes:
        scheme: the scheme, without its alpha.
        alpha: strength per canonical token.
        ratio: drawn tokens over canonical tokens.
        error: standard error of ``ratio`` over texts (of a ratio of sums, by linearization).
        texts: number of texts.
    """

    scheme: str
    alpha: float
    ratio: float
    error: float
    texts: int


def growth(
    vocab: Vocabulary,
    texts: Iterable[str],
    schemes: Sequence[str] = ("stochastok", "stochastok-uniform", "uniform-k"),
    *,
    seed: int,
    alphas: Sequence[float] = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0),
    progress: Callable[[int, int], None] | None = None,
) -> list[Growth]:
    """Expected length ratio of each scheme at each alpha, from one draw of every text.

    >>> round(growth(vocab, texts, ["stochastok"], alphas=[0.5], seed=0)[0].ratio, 2)
    1.5

    Args:
        vocab: the vocabulary.
        texts: the texts, all weighted by their length: tokens are summed before they are divided.
        schemes: names or specs of schemes, without their alpha: ``"stochastok(ways=3)"``.
        seed: any integer; it and the position of a text decide its draw.
        alphas: strengths per canonical token, each from 0 to 10,000.
        progress: called with (pairs of scheme and alpha done, all pairs).

    Rows are ordered by scheme, then by alpha. Raises RobustokError for a scheme without alpha.
    """
    schemes = check_list("schemes", schemes)
    rows = vocab.encode_batch(texts)
    jobs = [(scheme, alpha) for scheme in schemes for alpha in alphas]
    points = []
    for number, (scheme, alpha) in enumerate(jobs, 1):
        name, _, inside = scheme.partition("(")
        rest = f", {inside[:-1]}" if inside else ""
        draw = sampler(f"{name}(alpha={alpha:g}{rest})", vocab)
        strength = measure(vocab, rows, draw.sample_batch(rows, seed=seed))
        points.append(
            Growth(scheme, float(alpha), *_ratio(strength.tokens, strength.canonical), len(rows))
        )
        if progress:
            progress(number, len(jobs))
    return points


def _ratio(tokens: np.ndarray, canonical: np.ndarray) -> tuple[float, float]:
    """A ratio of sums and its standard error."""
    total = max(int(canonical.sum()), 1)
    ratio = float(tokens.sum() / total)
    spread = tokens - ratio * canonical
    n = len(tokens)
    error = float(np.sqrt((spread**2).sum() * n / max(n - 1, 1)) / total)
    return ratio, error
