"""How far a scheme is from choosing uniformly among the ways to cut a word into as many pieces."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import ceil, exp
from typing import Any, NamedTuple

import numpy as np

from robustok.lattice import Lattice
from robustok.ragged import Ragged
from robustok.samplers import (
    SCHEMES as SCHEME_CLASSES,
)
from robustok.samplers import Sampler, StochasTok, StochasTokUniform, Uniform, UniformK, sampler
from robustok.samplers.registry import parse
from robustok.vocabulary import Vocabulary

Cut = tuple[int, ...]
_FEWEST = 100  # draws with as many splits; a share estimated from fewer is mostly noise


SCHEMES = (
    "stochastok", "stochastok(ways=3)", "stochastok-uniform(support=pairwise)",
    "stochastok-uniform", "uniform-k", "uniform", "bpe-dropout(p=0.5, rule=hf)",
)  # fmt: skip


class Bias(NamedTuple):
    """One scheme on one word, given that it cuts the word ``splits`` times.

    ``ways`` segmentations there are; ``total_variation`` from the uniform law over them (0 to 1),
    ``divergence`` KL(scheme || uniform) in nats, ``support`` the share of them that can come.
    ``draws`` is 0 where the law is exact; an estimate from draws errs upward.
    """

    scheme: str
    word: str
    splits: int
    ways: int
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

    >>> bias(vocab, ["revolution"], ["stochastok"], seed=0)[0]              # doctest: +SKIP
    Bias(scheme='stochastok', word='revolution', splits=2, ways=4, total_variation=0.25,
         divergence=0.3465735902799727, support=0.75, draws=0)

    Given the number of splits, so that a scheme's strength is not taken for bias; where there is
    one way to cut a word, or the scheme never cuts it so often, nothing is said. A scheme without
    its alpha gets the one that aims at so many splits of the word. The laws of stochastok,
    stochastok-uniform, uniform-k and uniform are exact, those of others estimated from ``draws``
    draws a word.
    """
    listed = list(words)
    whole = [w for w, row in zip(listed, vocab.encode_batch(listed), strict=True) if len(row) == 1]
    at = {(name, s): _aimed(name, s, vocab) for name in schemes for s in range(1, splits + 1)}
    found = []
    for number, word in enumerate(whole):
        lattice = vocab.lattice(word)
        for s in range(1, splits + 1):
            ways = [tuple(row.tolist()) for row in lattice.enumerate(segments=s + 1)]
            if len(ways) < 2:
                continue
            for name in schemes:
                law, drawn = _law(at[name, s], lattice, ways, draws, seed, number)
                if told := _compare(name, word, s, ways, law, drawn):
                    found.append(told)
        if progress:
            progress(number + 1, len(whole))
    return found


def _aimed(name: str, splits: int, vocab: Vocabulary) -> Sampler:
    """A scheme at the strength that cuts a single token about so many times."""
    family, settings = parse(name)
    if family not in ("stochastok", "stochastok-uniform", "uniform-k") or {"alpha", "k"} & {
        *settings
    }:
        return sampler(name, vocab)
    # One token in s + 1 pieces is s picks away, and at distance s + 1.
    alpha = splits + (family == "uniform-k")
    made: Any = SCHEME_CLASSES[family]
    return made(vocab, **settings, alpha=alpha)


class BiasSummary(NamedTuple):
    """The mean over words of one scheme's bias at one number of splits."""

    scheme: str
    splits: int
    words: int
    total_variation: float
    divergence: float
    support: float
    exact: bool


def summarize(rows: Iterable[Bias]) -> list[BiasSummary]:
    """Means over words, by scheme and splits, in the order they came."""
    groups: dict[tuple[str, int], list[Bias]] = defaultdict(list)
    for row in rows:
        groups[row.scheme, row.splits].append(row)
    found = []
    for (scheme, splits), group in sorted(groups.items(), key=lambda g: g[0][1]):
        tv, kl, support = np.mean(
            [(r.total_variation, r.divergence, r.support) for r in group], axis=0
        ).tolist()
        exact = all(r.draws == 0 for r in group)
        found.append(BiasSummary(scheme, splits, len(group), tv, kl, support, exact))
    return found


def _compare(
    scheme: str, word: str, splits: int, ways: list[Cut], law: dict[Cut, float], drawn: bool
) -> Bias | None:
    weights = np.array([law.get(way, 0.0) for way in ways])
    total = weights.sum()
    if total <= 0 or (drawn and total < _FEWEST):
        return None
    p = weights / total
    even = 1 / len(ways)
    some = p[p > 0]
    return Bias(
        scheme, word, splits, len(ways), float(np.abs(p - even).sum() / 2),
        max(float((some * np.log(some / even)).sum()), 0.0), len(some) / len(ways),
        round(total) if drawn else 0,
    )  # fmt: skip


def _law(
    scheme: Sampler, lattice: Lattice, ways: list[Cut], draws: int, seed: int, key: int
) -> tuple[dict[Cut, float], bool]:
    """Weights of the segmentations of a word, and whether they are counts of draws."""
    if isinstance(scheme, StochasTok):
        return stochastok_law(lattice, ceil(scheme.alpha), scheme.ways), False
    if isinstance(scheme, Uniform):
        return dict.fromkeys(ways, 1.0), False
    if isinstance(scheme, (StochasTokUniform, UniformK)):
        return {way: exp(scheme.log_prob(way)) for way in ways}, False
    rows = scheme.sample_batch(
        Ragged.from_rows([lattice.reference]), seed=seed, draws=draws, keys=[key]
    )
    return dict(Counter(tuple(row.tolist()) for row in rows)), True


def stochastok_law(lattice: Lattice, picks: int, ways: int = 2) -> dict[Cut, float]:
    """The exact law of `stochastok` after some picks on one token: its Markov chain, all of it.

    >>> stochastok_law(vocab.lattice("the"), picks=1)                       # doctest: +SKIP
    {(83, 258): 0.5, (400, 68): 0.5}
    """
    vocab = lattice.vocab
    cuts: dict[int, list[Cut]] = {}

    def expansions(token: int) -> list[Cut]:
        if token not in cuts:
            own = Lattice(vocab, [token])
            cuts[token] = [
                tuple(row.tolist()) for s in range(2, ways + 1) for row in own.enumerate(segments=s)
            ]
        return cuts[token]

    law: dict[Cut, float] = {tuple(lattice.reference.tolist()): 1.0}
    for _ in range(picks):
        after: dict[Cut, float] = defaultdict(float)
        for state, p in law.items():
            for at, token in enumerate(state):
                options = expansions(token)
                if not options:
                    after[state] += p / len(state)
                for cut in options:
                    after[(*state[:at], *cut, *state[at + 1 :])] += p / len(state) / len(options)
        law = dict(after)
    return law
