"""Random streams, rounding, and weights, sums and tails of draws at a distance."""

from fractions import Fraction
from functools import reduce
from math import ceil

import numpy as np
import pytest
from tests.oracles.vocabulary import toy

import robustok as rt
from robustok.kernels import distances, numbers
from robustok.kernels import store as stores
from robustok.kernels.compiler import njit
from robustok.kernels.conditional import build_tail, chance, convolve_group, draw_tail, draw_to
from robustok.kernels.lattice import backward, edge_probabilities

VOCAB = toy([b"a", b"b", b"c", b" ", b"ab", b"aa", b"abc", b"bca", b" a"])


def types_of(texts: list[str], times: list[int]) -> distances.Types:
    store, records = stores.new_store(), []
    for text in texts:
        ids, data = VOCAB.lattice(text).reference, np.frombuffer(bytearray(text, "utf8"), np.uint8)
        records.append(stores.insert(store, VOCAB.kernel_tokens, stores.DISTANCE, ids, data))
    return distances.read_types(store, np.array(records), np.array(times))


def distribution(text: str, z: float) -> np.ndarray:
    counts = VOCAB.lattice(text).counts(by="distance")
    weights = np.array([float(count) * z**d for d, count in enumerate(counts)])
    return weights / weights.sum()


@njit(cache=False)
def solve_twice(types, lattice, unbroken, k):
    """log z by both solvers, for the words and ``unbroken`` times a lattice."""
    longs = [lattice for _ in range(unbroken)]
    return distances.solve(types, longs, k), distances.solve_unbroken(types, longs, k)[0]


def test_z_makes_the_wanted_distance_about_the_mean() -> None:
    types, long = types_of(["abcab", "aabca"], [3, 2]), "abc" * 4
    for k in (2, 9, 20, 34):
        for unbroken in (1, 2):
            for slope in solve_twice(types, VOCAB.lattice(long)._edges, unbroken, k):
                mean = variance = 0.0
                for text, times in (("abcab", 3), ("aabca", 2), (long, unbroken)):
                    p = distribution(text, np.exp(slope))
                    d = np.arange(len(p))
                    mean += times * (p @ d)
                    variance += times * (p @ d**2 - (p @ d) ** 2)
                assert abs(mean - k) <= 0.2001 * np.sqrt(variance)


def test_sums_of_words_are_convolutions() -> None:
    texts = ["abcab", "aabca", "a"]
    types = types_of(texts, [2, 2, 1])
    _, slope = solve_twice(types, VOCAB.lattice("")._edges, 0, 9)
    kind = np.array([0, 1, 2, 0, 1])
    expected = reduce(np.convolve, [distribution(texts[x], np.exp(slope)) for x in kind])
    for k in (4, len(expected)):
        sums = convolve_group(types, kind, k)
        low, high, base = int(sums.low[0]), int(sums.high[0]), int(sums.base[0])
        wanted = expected[low : high + 1]
        np.testing.assert_allclose(sums.table[base : base + high - low + 1], wanted, atol=1e-20)
        assert wanted.sum() == pytest.approx(expected[: k + 1].sum())


def test_the_tail_has_the_distribution_of_its_distances() -> None:
    """600 bytes: one stage of 256 bytes, which begins where a canonical token does."""
    vocab = toy([b"a", b"aa", b"aaaa"])
    whole = vocab.lattice("a" * 600)
    probability = edge_probabilities(whole._edges, 1.0, *backward(whole._edges, 1.0))
    tail = build_tail(whole._edges, probability, 250)
    origin = int(tail.stages[0])
    counts = vocab.lattice("a" * (600 - origin)).counts(by="distance")
    chances = [chance(tail, origin, d) for d in range(len(counts))]
    expected = np.array([float(count) for count in counts]) / float(sum(counts))
    np.testing.assert_allclose(chances[:250], expected[:250], atol=1e-12)

    path = np.empty(600, np.int32)
    node, at, distance, state = draw_to(
        whole._edges, probability, np.int64(0), tail.stages[0], np.uint64(3), path, np.int64(0)
    )
    wanted = int(tail.sums.low[node - origin] + tail.sums.high[node - origin]) // 2
    end, _ = draw_tail(whole._edges, probability, tail, node, wanted, np.uint64(state), path, at)
    assert vocab.decode(path[:end]) == "a" * 600
    assert rt.distance(vocab, whole.reference, path[:end]) == distance + wanted


MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    """The finalizer of SplitMix64."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_streams_are_splitmix64() -> None:
    state = numbers.stream(np.uint64(3), np.int64(1), np.int64(-5), np.int64(2), np.int64(0))
    after = (int(state) + GOLDEN) & MASK
    expected = (mix(after) >> 11) / 2**53
    u, state_after = numbers.uniform(np.uint64(state))
    assert (u, int(state_after)) == (expected, after)
    i, state_after = numbers.below(np.uint64(state), np.int64(7))
    assert (i, int(state_after)) == (int(expected * 7), after)
    assert int(numbers.mix(np.uint64(12345))) == mix(12345)


def test_each_stream_is_its_own() -> None:
    states = [
        int(numbers.stream(np.uint64(s), np.int64(e), np.int64(k), np.int64(d), np.int64(p)))
        for s in (0, 1) for e in (0, 1) for k in (0, 1, -1) for d in (0, 1) for p in (0, 1)
    ]  # fmt: skip
    assert len(set(states)) == len(states)
    u = numbers.uniforms(np.uint64(1), np.int64(0), np.arange(50), np.int64(4), np.int64(0))
    assert u.shape == (50, 4) and 0 <= u.min() < u.max() < 1
    assert numbers.mixed(3, 1) != numbers.mixed(3, 2)


def test_a_decimal_rate_is_rounded_up_exactly() -> None:
    for hundredths in range(1, 301):
        rate = float(f"{hundredths / 100:.2f}")
        for m in range(201):
            exact = ceil(Fraction(hundredths, 100) * m)
            assert numbers.rounded_up(rate, m) == exact, (rate, m)
    for rate, m in ((1e-9, 1), (0.0714285715, 14), (9999.99, 5000), (1.0, 10**9)):
        exact = ceil(Fraction(str(rate)) * m)
        assert numbers.rounded_up(rate, m) == numbers.ceil_of(rate, m) == exact
    assert numbers.ceil_of(0.28, 25) == 7
    assert numbers.ceil_of(0.0, 25) == 0
