"""Segmentations of one token: shares among draws, and the distance from the uniform distribution.

An unbiased scheme gives the same share to all segmentations with the same number of splits. For
`stochastok` the distribution is that of a Markov chain in continuous time. Source: the paper's
appendix "Different tokenisers and their effect".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, log
from typing import Any, NamedTuple

import numpy as np

from robustok.analysis.splits import boundaries_inside, in_blocks, place_of
from robustok.checks import check_list
from robustok.lattice import Lattice
from robustok.ragged import Ragged
from robustok.runtime.display import Progress, part_of_progress, visible
from robustok.samplers import Sampler, StochasTok, StochasTokUniform, Uniform, UniformK, sampler
from robustok.tokenizer.vocabulary import Text, Vocabulary

Cut = tuple[int, ...]
_FEWEST = 100  # draws with as many splits; a share estimated from fewer is mostly noise
SCHEMES = (
    "stochastok(alpha=1)",
    "stochastok(alpha=1, ways=3)",
    "stochastok-uniform(alpha=1, support=pairwise)",
    "stochastok-uniform(alpha=1)",
    "uniform-k(alpha=1)",
    "uniform",
    "bpe-dropout(p=0.5, rule=hf)",
)


@dataclass(frozen=True, eq=False)
class Segmentations:
    """Shares of the segmentations of one canonical token, for 1, 2, … splits.

    >>> result = segmentations(vocab, " revolution", ["uniform"], seed=0)
    >>> result.token, list(result.shares)
    ('·revolution', ['uniform'])

    Args:
        token: the token as text, spaces as "·".
        by_splits: all segmentations with s splits at index s - 1, such as "rev-olution".
        shares: by spec, at index s - 1 the share of each of these segmentations among the draws
            with s splits, float64 [segmentations].
        draws: by spec, at index s - 1 the number of draws with s splits.
    """

    token: str
    by_splits: tuple[tuple[str, ...], ...]
    shares: dict[str, tuple[np.ndarray, ...]]
    draws: dict[str, tuple[int, ...]]

    def table(self) -> list[dict[str, Any]]:
        """One plain dictionary for each segmentation and scheme."""
        return [
            {
                "token": self.token,
                "splits": splits,
                "segmentation": segmentation,
                "scheme": spec,
                "draws": self.draws[spec][splits - 1],
                "share": float(share),
            }
            for splits, segmentations in enumerate(self.by_splits, 1)
            for spec, shares in self.shares.items()
            for segmentation, share in zip(segmentations, shares[splits - 1], strict=True)
        ]


def segmentations(
    vocab: Vocabulary,
    text: Text,
    specs: list[str],
    *,
    seed: int,
    token: int = 0,
    splits: int = 4,
    draws: int = 50_000,
    progress: Progress | None = None,
) -> Segmentations:
    """Draw tokenizations of a text and count how its ``token``-th canonical token was split.

    >>> result = segmentations(vocab, " revolution", ["uniform"], seed=0)
    >>> result.by_splits[0][:3]
    ('·revolutio-n',)

    Args:
        vocab: the vocabulary.
        text: one text.
        specs: specs of the schemes to compare.
        seed: any integer; it and the number of a draw decide the draw.
        token: position of the token in the canonical tokenization, from 0.
        splits: greatest number of splits counted; draws with more are left out.
        draws: draws of the text for each scheme, at least 1.
        progress: called with (draws done, all draws), over all schemes.

    A draw counts where it has boundaries at both ends of the token and 1 to ``splits`` inside. An
    unbiased scheme gives the same share to all segmentations with the same number of splits.

    Raises RobustokError for a token that the text does not have.
    Source: the paper's appendix "Different tokenisers and their effect".
    """
    place = place_of(vocab, text, token)
    own = int(place.canonical[token])
    lattice = Lattice(vocab, [own])
    levels = _levels(lattice, splits)
    shares, counted = {}, {}
    for number, spec in enumerate(specs):
        scheme = sampler(spec, vocab)
        seen: Counter[Cut] = Counter()
        scheme_progress = part_of_progress(progress, number * draws, len(specs) * draws)
        for _, drawn in in_blocks(scheme, place.canonical, draws, seed, scheme_progress):
            seen.update(_cuts(vocab, drawn, place.begin, place.end, splits))
        totals = [sum(seen[cut] for cut in level) for level in levels]
        shares[scheme.spec] = tuple(
            np.array([seen[cut] / total if total else 0.0 for cut in level])
            for level, total in zip(levels, totals, strict=True)
        )
        counted[scheme.spec] = tuple(totals)
    names = tuple(tuple(_shown(vocab, cut) for cut in level) for level in levels)
    return Segmentations(_shown(vocab, (own,)), names, shares, counted)


def _levels(lattice: Lattice, splits: int) -> list[list[Cut]]:
    """At index s - 1 all segmentations with s splits."""
    return [
        [tuple(row.tolist()) for row in lattice.enumerate(segments=s + 1)]
        for s in range(1, splits + 1)
    ]


def _cuts(vocab: Vocabulary, rows: Ragged, begin: int, end: int, splits: int) -> list[Cut]:
    """The ids between two boundaries, of the rows that have both and few enough splits between."""
    lengths = vocab.token_lengths
    inside = boundaries_inside(vocab, rows, begin, end)
    cuts = []
    for i in np.flatnonzero((inside > 0) & (inside <= splits)).tolist():
        row = rows[i]
        ends = np.cumsum(lengths[row])
        first, last = np.searchsorted(ends, [begin, end - 1], "right")
        if ends[last] == end and (ends[first] - lengths[row[first]]) == begin:
            cuts.append(tuple(row[first : last + 1].tolist()))
    return cuts


def _shown(vocab: Vocabulary, ids: Cut) -> str:
    return "-".join(visible(vocab.tokens[i]) for i in ids)


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
        kl_divergence: KL(scheme || uniform) in nats.
        support: share of them that the scheme can draw, from 0 to 1.
        draws: number of draws with as many splits; 0 where the distribution is exact. An estimate
            from draws errs upward.
    """

    scheme: str
    word: str
    splits: int
    segmentations: int
    total_variation: float
    kl_divergence: float
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
    progress: Progress | None = None,
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
        levels = _levels(lattice, splits)
        for scheme in samplers:
            weights, drawn = _weights(scheme, lattice, levels, draws, seed, number)
            compared = [_compare(scheme.spec, word, cuts, weights, drawn) for cuts in levels]
            rows += [row for row in compared if row is not None]
        if progress:
            progress(number + 1, len(whole))
    return rows


def summarize(rows: Iterable[Bias]) -> list[dict[str, Any]]:
    """Mean over words of the bias, by number of splits and scheme, as plain dictionaries.

    >>> result = summarize(bias(vocab, ["hello"], ["uniform"], seed=0))[0]
    >>> result["scheme"], result["splits"], result["words"], result["exact"]
    ('uniform', 3, 1, True)

    Args:
        rows: what :func:`bias` returned, of one call or several.

    They have the means of ``total_variation``, ``kl_divergence`` and ``support`` over ``words``;
    ``exact`` is true if no row was estimated from draws. Ordered by number of splits, then by
    scheme as the rows first name it.
    """
    groups: dict[tuple[str, int], list[Bias]] = defaultdict(list)
    for row in rows:
        groups[row.scheme, row.splits].append(row)
    measures = ("total_variation", "kl_divergence", "support")
    return [
        {
            "scheme": scheme,
            "splits": splits,
            "words": len(group),
            **{name: float(np.mean([getattr(row, name) for row in group])) for name in measures},
            "exact": all(row.draws == 0 for row in group),
        }
        for (scheme, splits), group in sorted(groups.items(), key=lambda entry: entry[0][1])
    ]


def _compare(
    scheme: str, word: str, cuts: list[Cut], distribution: dict[Cut, float], drawn: bool
) -> Bias | None:
    """The bias among segmentations with one number of splits; None where there is none to see."""
    weights = np.array([distribution.get(cut, 0.0) for cut in cuts])
    total = weights.sum()
    if len(cuts) < 2 or total <= 0 or (drawn and total < _FEWEST):
        return None
    p = weights / total
    even = 1 / len(cuts)
    some = p[p > 0]
    return Bias(
        scheme,
        word,
        len(cuts[0]) - 1,
        len(cuts),
        float(np.abs(p - even).sum() / 2),
        max(float((some * np.log(some / even)).sum()), 0.0),
        len(some) / len(cuts),
        round(total) if drawn else 0,
    )


def _weights(
    scheme: Sampler, lattice: Lattice, levels: list[list[Cut]], draws: int, seed: int, key: int
) -> tuple[dict[Cut, float], bool]:
    """Weights in proportion to the probability of each segmentation of one canonical token.

    ``lattice``: that of the token, which stands in a long text. Only segmentations with as many
    splits are compared. Also whether the weights are not known, but counts of draws.
    """
    cuts = [cut for level in levels for cut in level]
    if isinstance(scheme, (Uniform, UniformK)):
        return dict.fromkeys(cuts, 1.0), False
    if isinstance(scheme, StochasTokUniform):
        token = int(lattice.reference[0])
        return {cut: 1.0 for cut in cuts if scheme.allows(token, list(cut))}, False
    if isinstance(scheme, StochasTok) and scheme.max_picks is None:  # else the chain exceeds them
        splits = max((len(cut) for cut in cuts), default=1) - 1
        return stochastok_distribution(lattice, scheme.alpha, scheme.ways, splits), False
    row = Ragged.from_rows([lattice.reference])
    rows = scheme.sample_batch(row, seed=seed, draws=draws, keys=[key])
    return dict(Counter(tuple(row.tolist()) for row in rows)), True


def stochastok_distribution(
    lattice: Lattice, alpha: float, ways: int = 2, splits: int = 4
) -> dict[Cut, float]:
    """The distribution of `stochastok` on one token of a long text, up to ``splits`` splits.

    In a long text every segment is picked at rate one for a time of ln(1 + alpha), so the segments
    of a token are a Markov chain in continuous time. This is exact as the text grows if every pick
    takes effect; where some are spent, the time is a little longer.

    >>> shares = stochastok_distribution(vocab.lattice("the"), alpha=1)
    >>> round(shares[tuple(vocab.encode("the"))], 3), len(shares)
    (0.5, 3)
    """

    @cache
    def expansions(token: int) -> list[Cut]:
        levels = _levels(Lattice(lattice.vocab, [token]), ways - 1)
        return [cut for level in levels for cut in level]

    states: dict[Cut, int] = {tuple(lattice.reference.tolist()): 0}
    moves: list[tuple[int, int, float]] = []  # from, to, rate; to -1 beyond the last split
    waiting = list(states)
    while waiting:
        state = waiting.pop()
        for at, token in enumerate(state):
            options = expansions(token)
            for cut in options:
                after = (*state[:at], *cut, *state[at + 1 :])
                if len(after) <= splits + 1 and after not in states:
                    states[after] = len(states)
                    waiting.append(after)
                moves.append((states[state], states.get(after, -1), 1 / len(options)))
    distribution = _after(len(states), moves, log(1 + alpha))
    return {state: float(distribution[i]) for state, i in states.items()}


def _after(size: int, moves: list[tuple[int, int, float]], time: float) -> np.ndarray:
    """The distribution of a chain that starts in state 0 after a time, by uniformization."""
    leave = np.zeros(size)
    rates = np.zeros((size, size))
    for a, b, rate in moves:
        leave[a] += rate
        if b >= 0:
            rates[a, b] += rate
    fastest = max(float(leave.max()), 1e-9)
    step = rates / fastest + np.diag(1 - leave / fastest)
    now = np.eye(1, size)[0]
    distribution, weight = np.zeros(size), exp(-fastest * time)
    for n in range(1, int(fastest * time + 12 * (fastest * time) ** 0.5) + 40):
        distribution += weight * now
        now = now @ step
        weight *= fastest * time / n
    return distribution
