"""Distance of a scheme from the uniform distribution over the segmentations of a word."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from robustok.checks import check_list
from robustok.lattice import Lattice
from robustok.ragged import Ragged
from robustok.samplers import Sampler, sampler
from robustok.vocabulary import Vocabulary

Cut = tuple[int, ...]
_FEWEST = 100  # draws with as many splits; a share estimated from fewer is mostly noise


SCHEMES = (
    "stochastok(alpha=1)", "stochastok(alpha=1, ways=3)",
    "stochastok-uniform(alpha=1, support=pairwise)", "stochastok-uniform(alpha=1)",
    "uniform-k(alpha=1)", "uniform", "bpe-dropout(p=0.5, rule=hf)",
)  # fmt: skip


class Bias(NamedTuple):
    """One scheme on one word, given that it splits the word ``splits`` times.

    >>> bias(vocab, ["hello"], ["uniform"], seed=0)[0].total_variation
    0.0

    Attributes:
        scheme: normalized spec of the scheme.
        word: the word.
        splits: number of splits.
        segmentations: number of segmentations of the word with that many splits.
        total_variation: distance from the uniform distribution over them, from 0 to 1.
        divergence: KL(scheme || uniform) in nats.
        support: share of them that the scheme can draw, from 0 to 1.
        draws: number of draws with as many splits; 0 where the distribution is exact. An estimate
            from draws errs upward.
    """

    scheme: str
    word: str
    splits: int
    segmentations: int
    total_variation: float
    divergence: float
    support: float
    draws: int


def bias(
    vocab: Vocabulary,
    words: Iterable[str],
    schemes: Sequence[str] = SCHEMES,
    *,
    seed: int,
    splits: int = 4,
    draws: int = 10_000,
    progress: Callable[[int, int], None] | None = None,
) -> list[Bias]:
    """Distance from uniform of each scheme on each word that is one canonical token.

    >>> result = bias(vocab, ["hello"], ["stochastok(alpha=1)"], seed=0)
    >>> [(b.splits, b.segmentations, round(b.support, 2)) for b in result]
    [(3, 2, 1.0)]

    Args:
        vocab: the vocabulary.
        words: texts; those that are not one canonical token are skipped.
        schemes: specs of the schemes to compare.
        seed: any integer; for schemes without an exact distribution, it and the position of a word
            decide the draws.
        splits: greatest number of splits considered.
        draws: draws of each word for a scheme without an exact distribution; unused by the others.
            A number of splits with fewer than 100 draws gives no row.
        progress: called with (words done, all words that are one token).

    A row compares a scheme with the uniform distribution over the segmentations with one number of
    splits, so that a scheme's strength is not taken for bias. There is no row where a word has only
    one such segmentation, or the scheme never gives one. The distributions of stochastok (in a long
    text), stochastok-uniform, uniform-k and uniform are exact; those of other schemes are
    estimated.
    """
    listed, schemes = check_list("words", words), check_list("schemes", schemes)
    whole = [w for w, row in zip(listed, vocab.encode_batch(listed), strict=True) if len(row) == 1]
    samplers = [sampler(name, vocab) for name in schemes]
    rows = []
    for number, word in enumerate(whole):
        lattice = vocab.lattice(word)
        levels = [
            [tuple(row.tolist()) for row in lattice.enumerate(segments=s + 1)]
            for s in range(1, splits + 1)
        ]
        for scheme in samplers:
            weights, drawn = _weights(scheme, lattice, levels, draws, seed, number)
            for s, cuts in enumerate(levels, 1):
                if len(cuts) < 2:
                    continue
                row = _compare(scheme.spec, word, s, cuts, weights, drawn)
                if row is not None:
                    rows.append(row)
        if progress:
            progress(number + 1, len(whole))
    return rows


class BiasSummary(NamedTuple):
    """Mean over words of one scheme's bias at one number of splits.

    >>> summarize(bias(vocab, ["hello"], ["uniform"], seed=0))[0].words
    1

    Attributes:
        scheme: normalized spec of the scheme.
        splits: number of splits.
        words: number of words.
        total_variation: mean total variation distance from uniform, from 0 to 1.
        divergence: mean KL(scheme || uniform) in nats.
        support: mean share of the segmentations that the scheme can draw, from 0 to 1.
        exact: whether no word was estimated from draws.
    """

    scheme: str
    splits: int
    words: int
    total_variation: float
    divergence: float
    support: float
    exact: bool


def summarize(rows: Iterable[Bias]) -> list[BiasSummary]:
    """Mean over words of the bias, by scheme and number of splits.

    >>> result = summarize(bias(vocab, ["hello"], ["uniform"], seed=0))[0]
    >>> result.scheme, result.splits, result.exact
    ('uniform', 3, True)

    Args:
        rows: what :func:`bias` returned, of one call or several.

    Summaries are ordered by number of splits, then by scheme as the rows first name it. ``exact``
    is true if no row was estimated from draws.
    """
    groups: dict[tuple[str, int], list[Bias]] = defaultdict(list)
    for row in rows:
        groups[row.scheme, row.splits].append(row)
    summaries = []
    for (scheme, splits), group in sorted(groups.items(), key=lambda g: g[0][1]):
        tv, kl, support = np.mean(
            [(r.total_variation, r.divergence, r.support) for r in group], axis=0
        ).tolist()
        exact = all(r.draws == 0 for r in group)
        summaries.append(BiasSummary(scheme, splits, len(group), tv, kl, support, exact))
    return summaries


def _compare(
    scheme: str,
    word: str,
    splits: int,
    cuts: list[Cut],
    distribution: dict[Cut, float],
    drawn: bool,
) -> Bias | None:
    weights = np.array([distribution.get(cut, 0.0) for cut in cuts])
    total = weights.sum()
    if total <= 0 or (drawn and total < _FEWEST):
        return None
    p = weights / total
    even = 1 / len(cuts)
    some = p[p > 0]
    return Bias(
        scheme, word, splits, len(cuts), float(np.abs(p - even).sum() / 2),
        max(float((some * np.log(some / even)).sum()), 0.0), len(some) / len(cuts),
        round(total) if drawn else 0,
    )  # fmt: skip


def _weights(
    scheme: Sampler, lattice: Lattice, levels: list[list[Cut]], draws: int, seed: int, key: int
) -> tuple[dict[Cut, float], bool]:
    """Weights of the segmentations of a word, and whether they are counts of draws."""
    known = scheme.segmentation_weights(lattice, [cut for level in levels for cut in level])
    if known is not None:
        return known, False
    row = Ragged.from_rows([lattice.reference])
    rows = scheme.sample_batch(row, seed=seed, draws=draws, keys=[key])
    return dict(Counter(tuple(row.tolist()) for row in rows)), True
