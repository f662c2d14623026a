"""Every scheme follows its law: draws and `log_prob` against exact enumeration."""

import random
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.oracles import lattice, samplers
from tests.oracles.chi_square import (
    DRAWS,
    OF_LONG_TEXTS,
    assert_distribution,
    assert_follows,
    only_compiled,
)
from tests.oracles.data import real
from tests.oracles.vocabulary import ENGLISH, GAPPY, canonical, cases, toy
from tokenizers import Tokenizer, models

import robustok as rt
from robustok.kernels import store as stores

TEXTS = [(ENGLISH, b"abc"), (ENGLISH, b"abcab d"), (ENGLISH, b"cabcc ab"), (GAPPY, b"abcddab")]


def draws(scheme: rt.Sampler, ids: tuple[int, ...], count: int = DRAWS) -> rt.Ragged:
    return scheme.sample_batch([ids], seed=11, draws=min(count, DRAWS))


@pytest.mark.parametrize(("vocab", "text"), TEXTS)
def test_uniform(vocab: rt.Vocabulary, text: bytes) -> None:
    ids = canonical(vocab, text)
    assert_follows(rt.Uniform(vocab), ids, samplers.uniform(vocab, ids))


@pytest.mark.parametrize(("vocab", "text"), TEXTS)
def test_uniform_k_at_every_distance(vocab: rt.Vocabulary, text: bytes) -> None:
    ids = canonical(vocab, text)
    for k in range(len(text) + 2):
        assert_follows(rt.UniformK(vocab, k=k), ids, samplers.uniform_k(vocab, ids, k), 5000)
    of_tokens = samplers.uniform_k(vocab, ids, ceil(0.7 * len(ids)))
    assert_follows(rt.UniformK(vocab, alpha=0.7), ids, of_tokens, 5000)


def _paths_after(length: int, most: int, k: int | None) -> list[list[int]]:
    """[i][d]: paths of steps 1 to ``most`` from i to ``length`` at distance d, or all at 0."""
    counts = [[0] * ((k or 0) + 1) for _ in range(length)] + [[1] + [0] * (k or 0)]
    for i in reversed(range(length)):
        for size in range(1, min(most, length - i) + 1):
            cost = _cost(i, size, most, k)
            for d in range(cost, len(counts[i])):
                counts[i][d] += counts[i + size][d - cost]
    return counts


def _cost(at: int, size: int, most: int, k: int | None) -> int:
    """The distance that a step adds, where the reference is one of the longest steps alone."""
    return int(k is not None and (at % most != 0 or size != most))


def _first_tokens(length: int, most: int, k: int | None) -> dict[tuple[int, ...], Fraction]:
    """The law of the first four tokens of all paths, or of those at distance k."""
    after = _paths_after(length, most, k)
    states: list[tuple[tuple[int, ...], int, int]] = [((), 0, k or 0)]
    for _ in range(4):
        states = [state for state in states if state[1] == length] + [
            ((*path, size - 1), at + size, left - _cost(at, size, most, k))
            for path, at, left in states
            for size in range(1, min(most, length - at) + 1)
            if left >= _cost(at, size, most, k)
        ]
    total = after[0][-1]
    return {path: Fraction(after[at][left], total) for path, at, left in states if after[at][left]}


# 108 tokenizations, 20,569, beyond 2^31, and a block that is too long for a record.
@pytest.mark.parametrize("length", [8, 16, 40, 300])
def test_words_of_many_tokenizations(length: int) -> None:
    vocab = toy([b"a", b"aa", b"aaa", b"aaaa"])
    ids, k = canonical(vocab, b"a" * length), length // 2
    count = DRAWS if length < 100 else OF_LONG_TEXTS
    for scheme, distance in ((rt.Uniform(vocab), None), (rt.UniformK(vocab, k=k), k)):
        rows = draws(scheme, ids, count)
        assert_distribution((row[:4] for row in rows), _first_tokens(length, 4, distance))


@pytest.mark.parametrize("ways", [2, 3, 4])
@pytest.mark.parametrize(("vocab", "text"), TEXTS)
@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_stochastok(vocab: rt.Vocabulary, text: bytes, ways: int, alpha: float) -> None:
    ids = canonical(vocab, text)
    distribution = samplers.stochastok(vocab, ids, alpha, ways)
    assert_distribution(draws(rt.StochasTok(vocab, alpha=alpha, ways=ways), ids), distribution)


@pytest.mark.parametrize("ways", [2, 3])
@pytest.mark.parametrize(("alpha", "most"), [(1.0, 0), (1.0, 1), (1.0, 50), (20.0, 1), (20.0, 2)])
def test_stochastok_with_a_greatest_number_of_picks(ways: int, alpha: float, most: int) -> None:
    vocab, text = TEXTS[0]
    ids = canonical(vocab, text)
    distribution = samplers.stochastok(vocab, ids, alpha, ways, most)
    limited = rt.StochasTok(vocab, alpha=alpha, ways=ways, max_picks=most)
    assert_distribution(draws(limited, ids), distribution)
    assert limited.spec == str(rt.Spec.parse(limited.spec))
    assert f"max_picks={most}" in limited.spec


@pytest.mark.parametrize("support", ["all", "pairwise"])
@pytest.mark.parametrize(("vocab", "text"), TEXTS)
@pytest.mark.parametrize("alpha", [0.3, 1.0, 3.0])
def test_stochastok_uniform(vocab: rt.Vocabulary, text: bytes, support: str, alpha: float) -> None:
    ids = canonical(vocab, text)
    distribution = samplers.stochastok_uniform(vocab, ids, alpha, support)
    assert_follows(rt.StochasTokUniform(vocab, alpha=alpha, support=support), ids, distribution)


@settings(max_examples=40)
@given(cases(most=5), st.sampled_from([0.3, 1.0, 1.7]), st.integers(2, 4))
def test_stochastok_of_any_small_vocabulary(
    case: tuple[rt.Vocabulary, bytes], alpha: float, ways: int
) -> None:
    vocab, text = case
    assume(text)
    ids = canonical(vocab, text)
    rows = draws(rt.StochasTok(vocab, alpha=alpha, ways=ways), ids, 2000)
    assert_distribution(rows, samplers.stochastok(vocab, ids, alpha, ways))
    for support in ("all", "pairwise"):
        rows = draws(rt.StochasTokUniform(vocab, alpha=alpha, support=support), ids, 2000)
        assert_distribution(rows, samplers.stochastok_uniform(vocab, ids, alpha, support))


@pytest.mark.parametrize(("name", "reached", "all_"), [("gpt2", 7, 14)])
def test_stochastok_reaches_half_of_revolution(name: str, reached: int, all_: int) -> None:
    """The paper's histogram: of 14 three-split segmentations StochasTok reaches 7, unevenly."""
    vocab = real(name)
    ids = canonical(vocab, b"revolution")
    assert len(ids) == 1
    three = [u for u in lattice.tokenizations(vocab, b"revolution") if len(u) == 4]
    assert len(three) == all_
    distribution = samplers.stochastok(vocab, ids, 3.0)
    in_four = {u: p for u, p in distribution.items() if len(u) == 4}
    assert len(in_four) == reached
    assert max(in_four.values()) > 2 * min(in_four.values())
    assert_distribution(draws(rt.StochasTok(vocab, alpha=3.0), ids), distribution)


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
    distribution = word * power[199][k - np.arange(len(word))]
    distribution /= distribution.sum()
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
    assert np.abs(share - distribution).max() < 0.03


def test_uniform_k_ends_where_a_long_block_lacks_the_distance() -> None:
    vocab = toy([b"x", b"x" * 300])
    for k, expected in ((2, 0), (299, 0), (300, 300), (450, 300)):
        row = rt.UniformK(vocab, k=k).sample("x" * 300, seed=0)
        assert rt.distance(vocab, [1], row) == expected
    rows = draws(rt.UniformK(vocab, k=310), (1, 1), min(3000, OF_LONG_TEXTS))
    offsets = [int(np.flatnonzero(np.asarray(row) == 1)[0]) for row in rows]
    distribution = {
        (at,): Fraction(1, 299) for at in range(1, 300)
    }  # distance 301 is the nearest below
    assert_distribution([(at,) for at in offsets], distribution)


def test_uniform_k_draws_what_is_too_rare_for_rejection() -> None:
    """Under any weights, distance 41 has a probability below 1e-15 here: a table is drawn from."""
    vocab = toy([b"x", b"xx", b"xxx", b"x" * 120, b"x" * 240])
    ids = canonical(vocab, b"x" * 240)
    assert vocab.lattice("x" * 240).count(distance=41) == 41
    rows = draws(rt.UniformK(vocab, k=41), ids, min(2000, OF_LONG_TEXTS))
    distribution = {(2,) * at + (3,) + (2,) * (40 - at): Fraction(1, 41) for at in range(41)}
    assert_distribution(rows, distribution)


@pytest.mark.parametrize(("k", "count"), [(300, 3000), (3, 600), (1349, 600)])
def test_stages_of_a_long_block_follow_the_distribution(k: int, count: int) -> None:
    """1,350 bytes without a cut: the first tokens, and how far the middle is from the reference."""
    length = 1350
    vocab = toy([b"a", b"aa", b"aaa"])
    ids = canonical(vocab, b"a" * length)
    rows = draws(rt.UniformK(vocab, k=k), ids, min(count, OF_LONG_TEXTS))
    assert all(rt.distance(vocab, ids, row) == k for row in rows)
    assert_distribution((row[:4] for row in rows), _first_tokens(length, 3, k))
    # The distance of the last 300 bytes, where a token ends at their beginning.
    cut = length - 300
    on, before = _paths_after(length, 3, k), _paths_after(cut, 3, k)[0]
    split = [Fraction(before[k - d] * on[cut][d], on[0][k]) for d in range(k + 1)]
    seen: list[tuple[int, ...]] = []
    for row in rows:
        ends = np.cumsum(np.asarray(row) + 1)
        at = np.flatnonzero(ends == cut)
        tokens = np.asarray(row)[at[0] + 1 :] if len(at) else None
        begins = ends - np.asarray(row) - 1
        if tokens is not None:
            cost = (begins % 3 != 0) | (np.asarray(row) != 2)
            seen.append((int(cost[at[0] + 1 :].sum()),))
    whole = sum(split)
    assert_distribution(seen, {(d,): p / whole for d, p in enumerate(split) if p})


@pytest.mark.parametrize(("size", "k"), [(120, 3), (120, 100), (1300, 40)])
def test_uniform_k_of_long_words(size: int, k: int) -> None:
    """Words too long for a table, beside short ones; every draw has the distance k."""
    vocab = toy([b"a", b"aa", b"aaa", b" ", b"b", b"bb", b" b"])
    ids = tuple(vocab.encode("a" * size + " bb b" * 3 + "a" * 60).tolist())
    for row in draws(rt.UniformK(vocab, k=k), ids, 2):
        assert vocab.decode_bytes(row) == vocab.decode_bytes(ids)
        assert rt.distance(vocab, ids, row) == k


@only_compiled
def test_uniform_k_of_very_many_words_is_at_its_distance() -> None:
    """40,000 words: the last group alone has 625."""
    vocab = toy([b" ", b"a", b"b", b" a", b"ab", b" ab"])
    ids = canonical(vocab, b" ab" * 40_000)
    for k in (3, 30_000, 119_999):
        row = rt.UniformK(vocab, k=k).sample(ids, seed=k)
        assert vocab.decode_bytes(row) == b" ab" * 40_000
        assert rt.distance(vocab, ids, row) == k


@pytest.mark.parametrize("text", ["Z", "Q" * 100, "abZ", "ab Z ab" * 20])
def test_a_byte_that_no_token_has_raises(text: str) -> None:
    vocab = toy([b"a", b"b", b"ab", b" "])
    batch = np.frombuffer(text.encode(), np.uint8)
    scheme = rt.Uniform(vocab)
    from robustok.kernels.batch import Batch
    from robustok.samplers.base import draw_texts

    offsets, zero = np.array([0, len(batch)]), np.zeros(1, np.int64)
    one = Batch(batch.copy(), offsets, zero, zero, np.uint64(0), np.int64(0), np.int64(1))
    with pytest.raises(rt.RobustokError, match="lacks a token for one of its bytes"):
        draw_texts(scheme, one, offsets, 1)
    assert vocab.decode_bytes(scheme.sample("ab ab", seed=0)) == b"ab ab"


@pytest.mark.parametrize("support", ["all", "pairwise"])
def test_stochastok_uniform_of_a_token_with_many_segmentations(support: str) -> None:
    vocab = toy([b"a", b"aa", b"aaa", b"a" * 9])
    scheme = rt.StochasTokUniform(vocab, alpha=4, support=support)
    assert_distribution(
        draws(scheme, (3,), 400), samplers.stochastok_uniform(vocab, (3,), 4, support)
    )


def test_starts_of_tokenizations_without_an_end_cost_no_time() -> None:
    """A last character that is no token: the letters before it have 2 ** 40 segmentations."""
    names = {"a": 0, "aa": 1, "a" * 60 + "x": 2}
    vocab = rt.Vocabulary.load(Tokenizer(models.BPE(names, [("a", "a")], ignore_merges=True)))
    assert rt.StochasTokUniform(vocab, alpha=1).sample([2], seed=0).tolist() == [2]


def test_a_store_that_is_full_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of more words than a small store holds, each text fitting alone."""
    rng = random.Random(1)
    texts = ["".join(rng.choices("abc d", k=12)) for _ in range(9)]
    new_store = stores.new_store
    schemes = ["uniform", "stochastok-uniform", "stochastok(alpha=1, ways=3)", "uniform-k(k=2)",
               "grampa"]  # fmt: skip
    for spec in schemes:
        expected = rt.sampler(spec, ENGLISH).sample_batch(texts, seed=3, draws=2)
        sizes = []

        def small(scale: int = 1, sizes: list[int] = sizes) -> stores.Store:
            sizes.append(scale)
            store = new_store()
            words = store.words[: 80 * scale]
            return store._replace(
                words=words, floats=words.view(np.float64), ints=words.view(np.int32),
                bytes=words.view(np.uint8),
            )  # fmt: skip

        monkeypatch.setattr("robustok.samplers.stored.new_store", small)
        drawn = rt.sampler(spec, ENGLISH).sample_batch(texts, seed=3, draws=2, threads=1)
        assert drawn == expected
        assert max(sizes) < 2000
        monkeypatch.undo()


@pytest.mark.parametrize("spec", ["uniform-k", "stochastok", "stochastok-uniform"])
def test_a_product_that_is_whole_as_a_decimal_is_not_rounded_up(spec: str) -> None:
    vocab = toy([b"a", b"b", b"c", b"abc", b"ab"])
    canonical = [3] * 25  # 0.28 of them are 7, and 0.28 * 25 is above 7 as a float
    scheme = rt.sampler(f"{spec}(alpha=0.28)", vocab)
    drawn = scheme.sample_batch([canonical], seed=0, draws=200)
    strength = rt.measure(vocab, [canonical], drawn)
    most = strength.distance if spec == "uniform-k" else strength.splits
    assert most.max() == 7
    if scheme.exact:
        assert all(scheme.log_prob(row) > -np.inf for row in drawn)
