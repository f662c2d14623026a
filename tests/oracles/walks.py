"""Exact laws of the schemes that walk the lattice, from their definitions."""

from functools import cache
from math import exp

from tests.oracles.lattice import Path, tokenizations

from robustok.tokenizer.vocabulary import Vocabulary

Distribution = dict[Path, float]


def unigram(
    vocab: Vocabulary, text: bytes, scores: dict[int, float], temperature: float
) -> Distribution:
    """Every tokenization in proportion to exp(score / T)."""
    paths = tokenizations(vocab, text)
    weights = [exp(sum(scores[i] for i in path) / temperature) for path in paths]
    return {path: w / sum(weights) for path, w in zip(paths, weights, strict=True)}


def grampa(vocab: Vocabulary, text: bytes, temperature: float, min_length: int) -> Distribution:
    """At each byte the arcs of at least the length, else the longest; powers of path counts.

    Arcs that lead to no end are none.
    """
    ids = {vocab.tokens[i]: int(i) for i in vocab.ordinary.nonzero()[0]}
    n = len(text)

    @cache
    def has_path(i: int) -> bool:
        return i == n or any(text[i:j] in ids and has_path(j) for j in range(i + 1, n + 1))

    @cache
    def arcs(i: int) -> list[int]:
        ends: list[int] = []
        for j in range(n, i, -1):
            if (j - i >= min_length or not ends) and text[i:j] in ids and has_path(j):
                ends.append(j)
        return ends

    @cache
    def count_from(i: int) -> int:
        return 1 if i == n else sum(count_from(j) for j in arcs(i))

    def distribution_from(i: int) -> Distribution:
        if i == n:
            return {(): 1.0}
        powers = [count_from(j) ** (1 / temperature) for j in arcs(i)]
        return {
            (ids[text[i:j]], *path): w / sum(powers) * q
            for j, w in zip(arcs(i), powers, strict=True)
            for path, q in distribution_from(j).items()
        }

    return distribution_from(0)


def maxmatch_dropout(vocab: Vocabulary, text: bytes, p: float) -> Distribution:
    """The longest match first, each passed over with probability p, but never the shortest."""
    ids = {vocab.tokens[i]: int(i) for i in vocab.ordinary.nonzero()[0]}
    if not text:
        return {(): 1.0}
    sizes = [size for size in range(len(text), 0, -1) if text[:size] in ids]
    distribution: Distribution = {}
    for passed, size in enumerate(sizes):
        share = p**passed * (1.0 if size == sizes[-1] else 1 - p)
        for path, q in maxmatch_dropout(vocab, text[size:], p).items():
            distribution[(ids[text[:size]], *path)] = share * q
    return distribution
