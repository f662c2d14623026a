"""How often a scheme cuts one canonical token s times, by theory (paper, distributional appendix).

Every law is float64 of shape [most + 1]: the probability of s = 0, 1, … splits inside the token.
"""

from __future__ import annotations

from collections import Counter
from math import comb

import numpy as np

from robustok.errors import RobustokError
from robustok.lattice import Lattice
from robustok.polynomial import product
from robustok.samplers.pairwise import pairwise_segmentations
from robustok.vocabulary import Vocabulary


def span_of(vocab: Vocabulary, canonical: np.ndarray, token: int) -> tuple[int, int]:
    """First byte and end of the ``token``-th canonical token in the text."""
    end = int(np.diff(vocab.token_offsets)[canonical[: token + 1]].sum())
    return end - len(vocab.tokens[canonical[token]]), end


def dirichlet_multinomial(splits: int, tokens: int) -> np.ndarray:
    """The share of one of ``tokens`` urns in ``splits`` draws of Pólya's, [splits + 1].

    >>> dirichlet_multinomial(2, 2)
    array([0.33333333, 0.33333333, 0.33333333])

    The paper's law for `stochastok` and `stochastok-uniform`; it knows no limit to what a token
    can be cut into.
    """
    if tokens == 1:
        return np.eye(splits + 1)[splits]
    whole = comb(splits + tokens - 1, tokens - 1)
    return np.array([comb(splits - s + tokens - 2, tokens - 2) / whole for s in range(splits + 1)])


def clipped(law: np.ndarray, ways: list[int]) -> np.ndarray:
    """A law whose shares are clipped to what a token allows: the law of `stochastok-uniform`.

    ``ways[s]`` says how many segmentations into s pieces the token has.

    >>> clipped(np.array([0.5, 0.3, 0.2]), [0, 1, 4])
    array([0.5, 0.5])
    """
    can = [s - 1 for s in range(1, len(ways)) if ways[s]]
    found = np.zeros(can[-1] + 1)
    for s, p in enumerate(law):
        found[max(c for c in can if c <= s)] += p
    return found


def token_ways(vocab: Vocabulary, token: int, support: str = "all") -> list[int]:
    """[s]: the segmentations of one token into s pieces."""
    if support == "pairwise":
        return pairwise_segmentations(vocab, token)
    return Lattice(vocab, [token]).counts(by="segments")


def by_splits(vocab: Vocabulary, canonical: np.ndarray, token: int, k: int) -> np.ndarray:
    """The paper's law for `uniform-k`: uniform over all ways to cut tokens k times altogether.

    Tokens are cut within their boundaries, ``token`` is a position in ``canonical``. From the
    coefficients A_i(s)·[x^(k-s)]H_i / [x^k]G; where k splits cannot be, of the most below that can.
    """
    ways = [token_ways(vocab, int(i))[1:] for i in canonical]  # by splits, not pieces
    others = Counter(tuple(w) for i, w in enumerate(ways) if i != token)
    rest = product([(list(w), times) for w, times in others.items()], k)
    k = max(
        a + b for a, mine in enumerate(ways[token]) for b, other in enumerate(rest)
        if mine and other and a + b <= k
    )  # fmt: skip
    counts = [
        mine * rest[k - s] if 0 <= k - s < len(rest) else 0 for s, mine in enumerate(ways[token])
    ]
    return _normal(counts, f"no tokenization of this text cuts its tokens {k} times")


def exactly(lattice: Lattice, begin: int, end: int, *, distance: int | None = None) -> np.ndarray:
    """Boundaries strictly inside bytes ``begin`` to ``end``, over all tokenizations alike.

    Exact, tokens across the ends included; with ``distance`` over those at exactly that distance
    alone. The laws of `uniform` and of `uniform-k` as they are sampled.
    """
    n = len(lattice.text)
    most = -1 if distance is None else distance
    ahead: list[Counter[tuple[int, int]]] = [Counter() for _ in range(n + 1)]
    ahead[n][0, 0] = 1
    for i in range(n - 1, -1, -1):
        for _, j, cost in lattice._edges(i):
            inside = begin < j < end
            for (far, cuts), ways in ahead[j].items():
                now = far + cost if distance is not None else 0
                if now <= most or distance is None:
                    ahead[i][now, cuts + inside] += ways
    wanted = 0 if distance is None else distance
    counts = [ahead[0][wanted, s] for s in range(end - begin)]
    return _normal(counts, f"no tokenization of this text is at distance {distance}")


def binomial(size: int) -> np.ndarray:
    """A fair coin at every inner boundary of ``size`` bytes: `uniform` over an infinite vocabulary.

    >>> binomial(3)
    array([0.25, 0.5 , 0.25])
    """
    return np.array([comb(size - 1, s) for s in range(size)]) / 2.0 ** (size - 1)


def _normal(counts: list[int], none: str) -> np.ndarray:
    total = sum(counts)
    if not total:
        raise RobustokError(none)
    while len(counts) > 1 and not counts[-1]:
        counts = counts[:-1]
    return np.array([count / total for count in counts])
