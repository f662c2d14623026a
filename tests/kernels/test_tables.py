"""Records of words, sums of distances and draws from them against enumeration of all paths."""

from __future__ import annotations

from collections import Counter
from functools import reduce

import numpy as np
import pytest
from tests.kernels.test_lattices import TEXTS, VOCAB, as_bytes
from tests.oracles import edges as oracle
from tests.oracles import samplers as splits
from tests.oracles.vocabulary import canonical, toy

from robustok.kernels import distances, feasible
from robustok.kernels import store as stores
from robustok.kernels.compiler import njit
from robustok.kernels.conditional import Sums, convolve_group, largest
from robustok.kernels.stochastok_uniform import Pairwise, is_pairwise, reachable_sizes, spans

MODES = {
    "all": stores.ALL, "segments": stores.SEGMENTS, "distance": stores.DISTANCE,
}  # fmt: skip


def by_degree(mode: str, text: bytes) -> dict[int, list[oracle.Path]]:
    """The tokenizations of a text by degree."""
    groups: dict[int, list[oracle.Path]] = {}
    reference = tuple(canonical(VOCAB, text))
    for path, cost in oracle.paths(oracle.lattice(VOCAB, text, list(reference))):
        degree = {"all": 0, "segments": len(path), "distance": cost}[mode]
        groups.setdefault(degree, []).append(path)
    return groups


def insert(store: stores.Store, mode: str, text: bytes) -> int:
    ids = np.array(canonical(VOCAB, text), np.int32)
    key = as_bytes(text) if mode == "all" else ids
    if mode == "segments":
        key = np.array([2**18 + TEXTS.index(text)], np.int32)  # an id that is looked up by its hash
    tokens = VOCAB.kernel_tokens
    assert stores.find(store, MODES[mode], key, 0, len(key)) == -1
    record = stores.insert(store, tokens, MODES[mode], key, as_bytes(text))
    assert stores.find(store, MODES[mode], key, 0, len(key)) == record
    return record


@pytest.fixture(scope="module")
def store() -> stores.Store:
    return stores.new_store()


@pytest.mark.parametrize("mode", MODES)
def test_a_record_has_all_tokenizations_by_degree(store: stores.Store, mode: str) -> None:
    stores.clear(store)
    kinds = set()
    records = [(text, insert(store, mode, text)) for text in TEXTS]
    for text, record in records:
        groups = by_degree(mode, text)
        kinds.add(bool(stores.is_listed(store, record)))
        assert stores.degrees_of(store, record) == max(groups)
        at = stores.counts_of(store, record)
        counts = store.floats[at : at + max(groups) + 1]
        assert counts.tolist() == [len(groups.get(g, [])) for g in range(max(groups) + 1)]
        for degree, expected in groups.items():
            out, state, drawn = np.empty(len(text), np.int32), np.uint64(degree), set()
            for _ in range(12 * len(expected)):
                end, state = stores.draw(store, record, degree, np.uint64(state), out, 0)
                drawn.add(tuple(out[:end].tolist()))
            assert drawn <= set(expected)
            assert len(drawn) > 0.9 * len(expected)
            if stores.is_listed(store, record):
                begin, stride = stores.paths_of(store, record, degree)
                listed = [
                    tuple(store.ints[p + 1 : p + 1 + store.ints[p]].tolist())
                    for p in range(begin, begin + stride * len(expected), stride)
                ]
                assert listed == expected
    assert kinds == {True, False}


def test_a_full_store_and_a_word_without_tokenization_are_codes(store: stores.Store) -> None:
    stores.clear(store)
    tokens = VOCAB.kernel_tokens
    key = as_bytes(b"Z")
    assert stores.insert(store, tokens, stores.ALL, key, key) == stores.NO_PATH
    small = store._replace(words=store.words[:8])
    key = as_bytes(b"abcab")
    assert stores.insert(small, tokens, stores.ALL, key, key) == stores.NO_ROOM
    assert store.used[0] == store.used[1] == 0


@njit(cache=False)
def solve_twice(types, lattice, unbroken, k):
    """log z by both solvers, for the words and ``unbroken`` times a lattice."""
    longs = [lattice for _ in range(unbroken)]
    return distances.solve(types, longs, k), distances.solve_unbroken(types, longs, k)[0]


@njit(cache=False)
def feasible_words(types, lattice, k):
    """`feasible.feasible` without lattices."""
    longs = [lattice]
    longs.pop()
    return feasible.feasible(types, longs, k)


def types_of(store: stores.Store, texts: list[bytes], times: list[int]) -> distances.Types:
    stores.clear(store)
    records = np.array([insert(store, "distance", text) for text in texts])
    return distances.read_types(store, records, np.array(times))


def distribution(text: bytes, z: float) -> np.ndarray:
    counts = oracle.cost_counts(oracle.lattice(VOCAB, text, canonical(VOCAB, text)))
    weights = np.array([number * z**d for d, number in enumerate(counts)])
    return weights / weights.sum()


def test_z_makes_the_wanted_distance_about_the_mean(store: stores.Store) -> None:
    texts, times = [b"abcab", b"aabca"], [3, 2]
    types = types_of(store, texts, times)
    lattice = oracle.lattice(VOCAB, b"abc" * 4, canonical(VOCAB, b"abc" * 4))
    farthest = 3 * 5 + 2 * 5 + 12
    for k in (2, 9, 20, farthest - 3):
        for unbroken in (1, 2):
            for slope in solve_twice(types, lattice, unbroken, k):
                words = zip([*texts, b"abc" * 4], [*times, unbroken], strict=True)
                mean = variance = 0.0
                for text, n in words:
                    p = distribution(text, np.exp(slope))
                    d = np.arange(len(p))
                    mean += n * (p * d).sum()
                    variance += n * ((p * d**2).sum() - (p * d).sum() ** 2)
                assert abs(mean - k) <= 0.2001 * np.sqrt(variance)


def probability_of(sums: Sums, s: int) -> float:
    inside = sums.low[0] <= s <= sums.high[0]
    return float(sums.table[sums.base[0] + s - sums.low[0]]) if inside else 0.0


def test_sums_of_words_are_convolutions(store: stores.Store) -> None:
    texts = [b"abcab", b"aabca", b"a"]
    types = types_of(store, texts, [2, 2, 1])
    _, slope = solve_twice(types, oracle.lattice(VOCAB, b""), 0, 9)
    parts = [distribution(text, np.exp(slope)) for text in texts]
    kind = np.array([0, 1, 2, 0, 1])
    expected = reduce(np.convolve, [parts[x] for x in kind])
    for k in (4, len(expected)):
        sums = convolve_group(types, kind, k)
        assert np.isclose(largest(sums), max(expected[: k + 1]))
        for s, p in enumerate(expected[: k + 1]):
            assert np.isclose(probability_of(sums, s), p, atol=1e-20)


def test_feasible_distances_of_words_are_those_of_their_sums(store: stores.Store) -> None:
    texts, times = [b"abcab", b"b b"], [2, 1]
    types = types_of(store, texts, times)
    reach = {0}
    for text, n in zip(texts, times, strict=True):
        counts = oracle.cost_counts(oracle.lattice(VOCAB, text, canonical(VOCAB, text)))
        for _ in range(n):
            reach = {a + d for a in reach for d, number in enumerate(counts) if number}
    part = oracle.lattice(VOCAB, b"")
    for k in range(max(reach) + 3):
        assert feasible_words(types, part, k) in (-1, max(d for d in reach if d <= k))


def test_pairwise_is_that_some_order_of_two_way_splits_reaches_it() -> None:
    vocab = toy([b"a", b"b", b"c", b"ab", b"bc", b"cab", b"abcab", b"abc"])
    token = vocab.tokens.index(b"abcab")
    table = spans(vocab.trie, vocab.token_bytes, *vocab.token_offsets[token : token + 2])
    sizes = Counter[int]()
    for path, _ in oracle.paths(oracle.lattice(vocab, b"abcab")):
        size = len(path)
        scratch = Pairwise(np.empty(size + 1, np.int64), np.empty((size + 1,) * 2, np.bool_))
        reached = is_pairwise(table, np.array(path), size, vocab.token_offsets, scratch)
        assert reached == splits.is_pairwise(vocab, token, path)
        sizes[size] += bool(reached)
    assert np.flatnonzero(reachable_sizes(table)).tolist() == sorted(s for s in sizes if sizes[s])
