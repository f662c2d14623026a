"""Exact laws of the schemes that walk the lattice, from their definitions."""

from __future__ import annotations

from functools import cache
from math import exp

from tests.oracles.lattice import Path, tokenizations

from robustok.vocabulary import Vocabulary

Law = dict[Path, float]


def unigram(vocab: Vocabulary, text: bytes, scores: dict[int, float], temperature: float) -> Law:
    """Every tokenization in proportion to exp(score / T)."""
    paths = tokenizations(vocab, text)
    weights = [exp(sum(scores[i] for i in path) / temperature) for path in paths]
    return {path: w / sum(weights) for path, w in zip(paths, weights, strict=True)}


def grampa(vocab: Vocabulary, text: bytes, temperature: float, min_length: int) -> Law:
    """At each byte the arcs of at least the length, else the longest; powers of path counts."""
    ids = {vocab.tokens[i]: int(i) for i in vocab.ordinary.nonzero()[0]}
    n = len(text)

    @cache
    def arcs(i: int) -> list[int]:
        found: list[int] = []
        for j in range(n, i, -1):
            if (j - i >= min_length or not found) and text[i:j] in ids:
                found.append(j)
        return found

    @cache
    def ways(i: int) -> int:
        return 1 if i == n else sum(ways(j) for j in arcs(i))

    def law(i: int) -> Law:
        if i == n:
            return {(): 1.0}
        powers = [ways(j) ** (1 / temperature) for j in arcs(i)]
        return {
            (ids[text[i:j]], *path): w / sum(powers) * q
            for j, w in zip(arcs(i), powers, strict=True)
            for path, q in law(j).items()
        }

    return law(0)


def maxmatch_dropout(vocab: Vocabulary, text: bytes, p: float) -> Law:
    """The longest match first, each passed over with probability p, but never the shortest."""
    ids = {vocab.tokens[i]: int(i) for i in vocab.ordinary.nonzero()[0]}
    if not text:
        return {(): 1.0}
    sizes = [size for size in range(len(text), 0, -1) if text[:size] in ids]
    found: Law = {}
    for passed, size in enumerate(sizes):
        share = p**passed * (1.0 if size == sizes[-1] else 1 - p)
        for path, q in maxmatch_dropout(vocab, text[size:], p).items():
            found[(ids[text[:size]], *path)] = share * q
    return found
