"""Every scheme follows its law: chi-square of its draws against exact enumeration."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import ceil

import numpy as np
import pytest
from tests.oracles import lattice, samplers
from tests.oracles.chi_square import assert_law
from tests.oracles.data import real
from tests.oracles.vocabulary import Greedy, toy

import robustok as rt

DRAWS = 20_000
ENGLISH = toy([bytes([b]) for b in b"abc d"] + [b"ab", b"bc", b"abc", b" d", b"cab", b" ab", b"cc"])
# Some numbers of segments have no segmentation here: "abcd" splits in 1 and in 4 and nothing else.
GAPPY = toy([b"a", b"b", b"c", b"d", b"abcd", b"bc", b"dd"])
TEXTS = [(ENGLISH, b"abc"), (ENGLISH, b"abcab d"), (ENGLISH, b"cabcc ab"), (GAPPY, b"abcddab")]


def canonical(vocab: rt.Vocabulary, text: bytes) -> tuple[int, ...]:
    encoder = vocab.data.encoder
    if isinstance(encoder, Greedy):
        return tuple(encoder.encode_bytes(text))
    return tuple(vocab.encode(text).tolist())


def draws(scheme: rt.Sampler, ids: tuple[int, ...], count: int = DRAWS) -> rt.Ragged:
    return scheme.sample_batch([ids], seed=11, draws=count)


@pytest.mark.parametrize(("vocab", "text"), TEXTS)
def test_uniform(vocab: rt.Vocabulary, text: bytes) -> None:
    ids = canonical(vocab, text)
    assert_law(draws(rt.Uniform(vocab), ids), samplers.uniform(vocab, ids))


@pytest.mark.parametrize(("vocab", "text"), TEXTS)
def test_uniform_k_at_every_distance(vocab: rt.Vocabulary, text: bytes) -> None:
    ids = canonical(vocab, text)
    for k in range(len(text) + 2):
        assert_law(draws(rt.UniformK(vocab, k=k), ids, 5000), samplers.uniform_k(vocab, ids, k))


@pytest.mark.parametrize("length", [8, 16, 40])  # 108 tokenizations, 20,569, and beyond 2^31
def test_words_of_many_tokenizations(length: int) -> None:
    vocab = toy([b"a", b"aa", b"aaa", b"aaaa"])
    ids, k = canonical(vocab, b"a" * length), length // 2

    @cache
    def ways(at: int, left: int | None) -> int:
        """The tokenizations from ``at`` on, all or those at distance ``left``."""
        if at == length:
            return not left
        return sum(ways(end, rest) for _, end, rest in steps(at, left))

    def steps(at: int, left: int | None) -> list[tuple[int, int, int | None]]:
        found = []
        for size in range(1, min(4, length - at) + 1):
            cost = int(at % 4 != 0 or size != 4)  # the reference is aaaa, aaaa and so on
            rest = None if left is None else left - cost
            if rest is None or rest >= 0:
                found.append((size - 1, at + size, rest))
        return found

    def law(at: int, left: int | None, tokens: int) -> dict[tuple[int, ...], Fraction]:
        """The law of the first so many tokens."""
        if not tokens or at == length:
            return {(): Fraction(1)}
        return {
            (token, *more): Fraction(ways(end, rest), ways(at, left)) * p
            for token, end, rest in steps(at, left)
            if ways(end, rest)
            for more, p in law(end, rest, tokens - 1).items()
        }

    for scheme, left in ((rt.Uniform(vocab), None), (rt.UniformK(vocab, k=k), k)):
        assert_law((row[:4] for row in draws(scheme, ids)), law(0, left, 4))


@pytest.mark.parametrize("ways", [2, 3, 4])
@pytest.mark.parametrize(("vocab", "text"), TEXTS)
@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_stochastok(vocab: rt.Vocabulary, text: bytes, ways: int, alpha: float) -> None:
    ids = canonical(vocab, text)
    law = samplers.stochastok(vocab, ids, alpha, ways)
    assert_law(draws(rt.StochasTok(vocab, alpha=alpha, ways=ways), ids), law)


@pytest.mark.parametrize("support", ["all", "pairwise"])
@pytest.mark.parametrize(("vocab", "text"), TEXTS)
@pytest.mark.parametrize("alpha", [0.3, 1.0, 3.0])
def test_stochastok_uniform(vocab: rt.Vocabulary, text: bytes, support: str, alpha: float) -> None:
    ids = canonical(vocab, text)
    law = samplers.stochastok_uniform(vocab, ids, alpha, support)
    assert_law(draws(rt.StochasTokUniform(vocab, alpha=alpha, support=support), ids), law)


@pytest.mark.parametrize("name", ["gpt2", "llama3"])
def test_real_words(name: str) -> None:
    vocab = real(name)
    ids = canonical(vocab, b" the cat")
    assert_law(draws(rt.Uniform(vocab), ids), samplers.uniform(vocab, ids))
    for k in (1, 2, 3, 4):
        assert_law(draws(rt.UniformK(vocab, k=k), ids), samplers.uniform_k(vocab, ids, k))
    law = samplers.stochastok_uniform(vocab, ids, 1.5)
    assert_law(draws(rt.StochasTokUniform(vocab, alpha=1.5), ids), law)
    assert_law(draws(rt.StochasTok(vocab, alpha=1.5), ids), samplers.stochastok(vocab, ids, 1.5))


@pytest.mark.parametrize(("name", "reached", "all_"), [("gpt2", 7, 14)])
def test_stochastok_reaches_half_of_revolution(name: str, reached: int, all_: int) -> None:
    """The paper's histogram: of 14 three-split segmentations StochasTok reaches 7, unevenly."""
    vocab = real(name)
    ids = canonical(vocab, b"revolution")
    assert len(ids) == 1
    three = [u for u in lattice.tokenizations(vocab, b"revolution") if len(u) == 4]
    assert len(three) == all_
    law = samplers.stochastok(vocab, ids, 3.0)
    found = {u: p for u, p in law.items() if len(u) == 4}
    assert len(found) == reached
    assert max(found.values()) > 2 * min(found.values())
    assert_law(draws(rt.StochasTok(vocab, alpha=3.0), ids), law)


def test_uniform_k_through_blocks_of_words() -> None:
    """A text of 200 words: the last block is convolved, the rest drawn; word 1 is as it must be.

    By symmetry all words have the same law; a word's distance given that the sum is k follows from
    the product polynomial.
    """
    vocab = toy([b" ", b"a", b"b", b" a", b"ab", b" ab"])
    ids = canonical(vocab, b" ab" * 200)
    word = np.array(vocab.lattice(" ab").counts(by="distance"), float)
    k = 150
    power = [np.ones(1)]
    for _ in range(200):
        nxt = np.convolve(power[-1], word)
        power.append(nxt / nxt.max())
    law = word * power[199][k - np.arange(len(word))]
    law /= law.sum()
    rows = draws(rt.UniformK(vocab, k=k), ids, 400)
    seen = np.zeros(len(word))
    for row in rows:
        assert rt.distance(vocab, ids, row) == k
        for begin in range(0, 600, 3):
            ends = np.cumsum([len(vocab.tokens[i]) for i in row])
            inside = int(np.searchsorted(ends, begin + 3) - np.searchsorted(ends, begin + 1) + 1)
            seen[0 if inside == 1 else inside] += 1
            if begin > 30:
                break
    share = seen / seen.sum()
    assert np.abs(share - law).max() < 0.03


@pytest.mark.parametrize("spec", ["uniform", "uniform-k(k=60)"])
def test_long_stretches_are_drawn_evenly(spec: str) -> None:
    """Without cut positions a path is walked: positions mirrored about the middle look alike."""
    vocab = toy([b"a", b"aa", b"aaa"])
    ids = tuple([2] * 100)
    rows = rt.sampler(spec, vocab).sample_batch([ids], seed=5, draws=600)
    for row in rows:
        assert vocab.decode_bytes(row) == b"a" * 300
    first = np.array([np.bincount([r[0]], minlength=3) for r in rows]).sum(0)
    last = np.array([np.bincount([r[-1]], minlength=3) for r in rows]).sum(0)
    if spec == "uniform":
        growth = 1.8392867552141612  # of the tribonacci numbers: how counts grow with a byte
        law = np.array([growth**-1, growth**-2, growth**-3])
        for seen in (first, last):
            assert np.abs(seen / 600 - law).max() < 0.08
    else:
        assert all(rt.distance(vocab, ids, row) == 60 for row in rows)
        assert np.abs(first - last).max() / 600 < 0.1


def test_a_distance_nobody_has_becomes_the_nearest_below() -> None:
    vocab = toy([b"a", b"b", b"ab"])
    ids = canonical(vocab, b"abab")
    for k, expected in ((1, 0), (2, 2), (3, 2), (4, 4), (99, 4)):
        row = rt.UniformK(vocab, k=k).sample(ids, seed=1)
        assert rt.distance(vocab, ids, row) == expected


def test_strength_is_the_ceiling_of_alpha_times_m() -> None:
    vocab = real("gpt2")
    ids = vocab.encode("a revolution is a rapid, fundamental transformation of a society")
    for alpha in (0.1, 0.5, 1.0, 3.0):
        row = rt.UniformK(vocab, alpha=alpha).sample(ids, seed=2)
        assert rt.distance(vocab, ids, row) == ceil(alpha * len(ids))
