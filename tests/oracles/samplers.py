"""Exact distributions of the schemes on short texts, straight from DESIGN's table."""

from collections import defaultdict
from fractions import Fraction
from itertools import combinations, pairwise
from math import ceil

from tests.oracles.lattice import Path, distance, ids_by_token, tokenizations

from robustok.tokenizer.vocabulary import Vocabulary

Distribution = dict[Path, Fraction]


def _even(paths: list[Path]) -> Distribution:
    return {path: Fraction(1, len(paths)) for path in paths}


def uniform(vocab: Vocabulary, canonical: Path) -> Distribution:
    return _even(tokenizations(vocab, vocab.decode_bytes(canonical)))


def uniform_k(vocab: Vocabulary, canonical: Path, k: int) -> Distribution:
    """Uniform at distance k, or at the nearest feasible one below."""
    paths = tokenizations(vocab, vocab.decode_bytes(canonical))
    while True:
        at_distance = [u for u in paths if distance(vocab, canonical, u) == k]
        if at_distance:
            return _even(at_distance)
        k -= 1


def expansions(vocab: Vocabulary, token: int, ways: int) -> list[Path]:
    """All cuts of a token into 2 to ``ways`` tokens."""
    if not vocab.ordinary[token]:
        return []
    return [u for u in tokenizations(vocab, vocab.tokens[token]) if 2 <= len(u) <= ways]


def stochastok(
    vocab: Vocabulary, canonical: Path, alpha: float, ways: int = 2, max_picks: int | None = None
) -> Distribution:
    """The Markov chain of ⌈α·m⌉ picks or ``max_picks``, all of it."""
    distribution: Distribution = {canonical: Fraction(1)}
    picks = ceil(alpha * len(canonical))
    for _ in range(picks if max_picks is None else min(picks, max_picks)):
        after: dict[Path, Fraction] = defaultdict(Fraction)
        for path, p in distribution.items():
            for i, token in enumerate(path):
                cuts = expansions(vocab, token, ways)
                share = p / len(path)
                if not cuts:
                    after[path] += share
                for cut in cuts:
                    after[path[:i] + cut + path[i + 1 :]] += share / len(cuts)
        distribution = dict(after)
    return distribution


def is_pairwise(vocab: Vocabulary, token: int, cut: Path) -> bool:
    """Whether repeated two-way splits through tokens lead from the token to the cut."""
    if len(cut) == 1:
        return cut == (token,)
    ids = ids_by_token(vocab)
    for middle in range(1, len(cut)):
        left = ids.get(vocab.decode_bytes(cut[:middle]))
        right = ids.get(vocab.decode_bytes(cut[middle:]))
        if left is None or right is None:
            continue
        if is_pairwise(vocab, left, cut[:middle]) and is_pairwise(vocab, right, cut[middle:]):
            return True
    return False


def stochastok_uniform(
    vocab: Vocabulary, canonical: Path, alpha: float, support: str = "all"
) -> Distribution:
    """Stars and bars over the tokens, shares clipped to what a token allows, uniform cuts."""
    total, m = ceil(alpha * len(canonical)), len(canonical)
    cuts: list[dict[int, list[Path]]] = []
    for token in canonical:
        by_size: dict[int, list[Path]] = defaultdict(list)
        for cut in tokenizations(vocab, vocab.tokens[token]):
            if support == "all" or is_pairwise(vocab, token, cut):
                by_size[len(cut)].append(cut)
        cuts.append(by_size)
    shares = []
    for bars in combinations(range(total + m - 1), m - 1):
        edges = [-1, *bars, total + m - 1]
        shares.append([b - a - 1 for a, b in pairwise(edges)])
    distribution: dict[Path, Fraction] = defaultdict(Fraction)
    for share in shares:
        partial: Distribution = {(): Fraction(1, len(shares))}
        for split, by_size in zip(share, cuts, strict=True):
            size = max(s for s in by_size if s <= split + 1)
            options = by_size[size]
            partial = {
                path + cut: p / len(options) for path, p in partial.items() for cut in options
            }
        for path, p in partial.items():
            distribution[path] += p
    return dict(distribution)
