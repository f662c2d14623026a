"""The lattice against enumeration by hand."""

import random
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from tests.oracles import lattice as oracle
from tests.oracles.chi_square import only_compiled
from tests.oracles.data import real
from tests.oracles.vocabulary import canonical, cases, toy

import robustok as rt
from robustok.lattice import counts_product, integer_multiply

FEW = settings(max_examples=150)


def lattice_of(vocab: rt.Vocabulary, text: bytes) -> rt.Lattice:
    return rt.Lattice(vocab, canonical(vocab, text))


@given(cases())
@FEW
def test_counts_and_enumeration_are_those_by_hand(case) -> None:
    vocab, text = case
    lattice = lattice_of(vocab, text)
    reference = tuple(lattice.reference.tolist())
    by_distance, by_segments = oracle.counts(vocab, text, reference)
    paths = oracle.tokenizations(vocab, text)
    assert lattice.count() == len(paths)
    assert [tuple(p.tolist()) for p in lattice.enumerate()] == paths
    for k in range(len(text) + 2):
        assert lattice.count(distance=k) == by_distance[k]
        assert lattice.count(segments=k) == by_segments[k]
        enumerated = [tuple(p.tolist()) for p in lattice.enumerate(distance=k)]
        assert enumerated == [p for p in paths if oracle.distance(vocab, reference, p) == k]
        both = [p for p in enumerated if len(p) == 3]
        assert [tuple(p.tolist()) for p in lattice.enumerate(distance=k, segments=3)] == both
    assert lattice.counts(by="distance") == [
        by_distance[k] for k in range(max(by_distance, default=0) + 1)
    ]
    assert lattice.farthest == max(by_distance)
    assert np.isclose(lattice.log_count(), np.log(len(paths)))
    for k in range(len(text) + 2):
        expected = np.log(by_distance[k]) if by_distance[k] else -np.inf
        assert np.isclose(lattice.log_count(distance=k), expected, atol=1e-9)


@given(cases(most=7))
@FEW
def test_neighbors_and_distance_are_those_by_hand(case) -> None:
    vocab, text = case
    lattice = lattice_of(vocab, text)
    paths = oracle.tokenizations(vocab, text)
    for v in paths[:6]:
        for k in range(5):
            wanted = [u for u in paths if oracle.distance(vocab, v, u) == k]
            assert [tuple(r.tolist()) for r in lattice.neighbors(v, distance=k)] == wanted
        for u in paths[:20]:
            assert rt.distance(vocab, v, u) == oracle.distance(vocab, v, u)


def test_special_ids_stay_and_nothing_crosses_them() -> None:
    vocab = toy([b"a", b"b", b"ab", b"ba"], special=[b"<s>"])
    lattice = rt.Lattice(vocab, [2, 4, 3])
    assert lattice.count() == 4
    assert all(row[np.flatnonzero(row == 4)[0]] == 4 for row in lattice.enumerate())
    assert {tuple(r.tolist()) for r in lattice.enumerate()} == {
        (2, 4, 3), (0, 1, 4, 3), (2, 4, 1, 0), (0, 1, 4, 1, 0),
    }  # fmt: skip


def test_a_lattice_keeps_its_ids_where_the_array_changes() -> None:
    vocab = rt.Vocabulary.load("demo")
    ids = np.array(vocab.encode("the cat"))
    lattice = rt.Lattice(vocab, ids)
    ids[:] = 0
    assert lattice.reference.tolist() == vocab.encode("the cat").tolist()


def test_limit_and_empty_text() -> None:
    vocab = toy([b"a", b"aa"])
    assert len(list(vocab.lattice("aaaa").enumerate(limit=2))) == 2
    empty = vocab.lattice("")
    assert empty.count() == 1
    assert [r.tolist() for r in empty.enumerate()] == [[]]
    assert len(empty.neighbors([], distance=2)) == 0


def test_wrong_ids_are_errors() -> None:
    vocab = toy([b"a", b"b", b"ab"], special=[b""])
    for call, message in (
        (lambda: rt.Lattice(vocab, [0, 9]), "id 9 at position 1 is not in the vocabulary"),
        (lambda: vocab.lattice("aa").neighbors([0]), "not a tokenization of the lattice's text"),
        (lambda: rt.distance(vocab, [0], [1]), "spell different texts"),
        (lambda: rt.Lattice(vocab, [2, 3]), "id 3 at position 1 has no bytes"),
        (lambda: vocab.lattice("ab").neighbors([2, 3]), "id 3 at position 1 has no bytes"),
        (lambda: rt.distance(vocab, [2, 3], [0, 1]), "id 3 at position 1 has no bytes"),
    ):
        with pytest.raises(rt.RobustokError, match=message):
            call()


def _counts_by_distance(vocab: rt.Vocabulary, text: bytes, ids: list[int]) -> list[int]:
    """[d]: the tokenizations at distance d, one position and distance after another."""
    spans = oracle.spans(vocab, tuple(ids))
    counts = [[0] * (len(text) + 1) for _ in range(len(text))] + [[1] + [0] * len(text)]
    for i in reversed(range(len(text))):
        for token, bytes_ in enumerate(vocab.tokens):
            if text.startswith(bytes_, i):
                cost = int((i, i + len(bytes_), token) not in spans)
                for d in range(len(text) + 1 - cost):
                    counts[i][d + cost] += counts[i + len(bytes_)][d]
    return counts[0]


def test_a_large_block_is_counted_exactly() -> None:
    """One block of 300 bytes: over 2**56 paths, so several moduli."""
    vocab = toy([b"a", b"aa", b"aaa", b"aab", b"b"])
    text = b"aab" * 100
    lattice = lattice_of(vocab, text)
    exact = _counts_by_distance(vocab, text, lattice.reference.tolist())
    assert max(exact) > 2**112
    assert lattice.counts() == exact[: lattice.farthest + 1]
    assert lattice.counts(most=5) == exact[:6]
    assert lattice.count() == sum(exact) == sum(lattice.counts(by="segments"))
    for k in (1, 2, 77, 150, lattice.farthest):
        expected = log(exact[k]) if exact[k] else -np.inf
        assert np.isclose(lattice.log_count(distance=k), expected, rtol=1e-9)


def test_a_coefficient_by_angles_is_that_of_the_table() -> None:
    """3,000 bytes: the characteristic function is summed; few distances: exact counts."""
    vocab = toy([b"a", b"aa", b"aaa", b"b"])
    lattice = vocab.lattice("aaab" * 750)
    assert 3000 * 1001 > 1 << 20
    exact = lattice.counts()
    for k in (400, 1000, 1700, lattice.farthest - 1, lattice.farthest):
        assert np.isclose(lattice.log_count(distance=k), log(exact[k]), rtol=1e-9)
    assert lattice.log_count(distance=lattice.farthest + 1) == -np.inf


def test_infeasible_distances_of_a_long_text_have_no_count() -> None:
    lattice = toy([b"a", b"b", b"ab"]).lattice("ab" * 1500)  # every distance is even
    assert lattice.farthest == 3000
    assert lattice.log_count(distance=1001) == lattice.log_count(distance=1) == -np.inf
    assert np.isfinite(lattice.log_count(distance=1000))
    lattice = toy([b"x", b"x" * 300]).lattice("x" * 600)
    assert lattice.log_count(distance=302) == -np.inf
    assert np.isclose(lattice.log_count(distance=301), np.log(299))


@pytest.mark.parametrize(
    ("tokens", "text", "feasible"),
    [
        ([b"a", b"b", b"ab"], "ab" * 1500, {0: 0, 1: 0, 2: 2, 99: 98, 1001: 1000, 9999: 3000}),
        ([b"x", b"x" * 300], "x" * 600,
         {2: 0, 299: 0, 300: 300, 301: 301, 302: 301, 599: 301, 600: 600}),
        # Each reference token alone has distances 0 and 2; a token across two of them gives 3.
        pytest.param([b"h", b"e", b"he", b"eh"], "he" * 200_000,
                     {1: 0, 99_999: 99_999, 200_001: 200_001, 399_999: 399_999},
                     marks=only_compiled),
    ],
)  # fmt: skip
def test_a_text_may_lack_distances(tokens: list[bytes], text: str, feasible: dict) -> None:
    lattice = toy(tokens).lattice(text)
    assert {k: lattice.feasible(k) for k in feasible} == feasible


@given(cases(most=30))
@FEW
def test_feasible_distances_are_those_with_a_count(case) -> None:
    vocab, text = case
    lattice = lattice_of(vocab, text)
    counts = lattice.counts()
    for k in range(len(text) + 2):
        assert lattice.feasible(k) == max(d for d, c in enumerate(counts) if c and d <= k)


@only_compiled
def test_feasible_distances_of_longer_texts() -> None:
    """From distance 64 on the answer comes from what the segments of the text can do."""
    vocab = toy([b"a", b"b", b"ab", b"aab", b"ba" * 40])
    for text in (b"aab" * 60, b"ab" * 90, b"ba" * 90, b"ab" * 20 + b"aab" * 20 + b"ba" * 50):
        lattice = lattice_of(vocab, text)
        counts = lattice.counts()
        for k in range(60, lattice.farthest + 1):
            assert lattice.feasible(k) == max(d for d, c in enumerate(counts) if c and d <= k)


@only_compiled
def test_counts_of_any_size_are_refused_where_they_would_fill_memory() -> None:
    vocab = toy([b"a", b"aa"])
    lattice = vocab.lattice("a" * 20_000)
    for call in (lattice.counts, lambda: lattice.count(distance=12_000)):
        with pytest.raises(rt.RobustokError, match=r"over 16 MB: give a smaller"):
            call()
    with pytest.raises(rt.RobustokError, match="not both"):
        lattice.count(distance=100, segments=15_000)
    with pytest.raises(rt.RobustokError, match="over 256 MB to list"):
        next(vocab.lattice("a" * 60_000).enumerate(distance=20_000, segments=30_000))
    assert lattice.count(distance=2) > 0
    assert lattice.log_count(distance=9_000) > 0
    with pytest.raises(rt.RobustokError, match=r"take too long: use log_count\(\)"):
        vocab.lattice("a" * 1_400_000).count()


def test_neighbors_that_no_memory_holds_are_refused() -> None:
    lattice = toy([b"a", b"aa"]).lattice("a" * 2000)
    with pytest.raises(rt.RobustokError, match=r"over 2\*\*31 tokens"):
        lattice.neighbors(lattice.reference, distance=300)
    assert len(lattice.neighbors(lattice.reference, distance=10**9)) == 0
    for wrong in (-1, 1.5):
        with pytest.raises(rt.RobustokError, match="distance"):
            lattice.neighbors(lattice.reference, distance=wrong)  # type: ignore[arg-type]


def test_large_integers_are_multiplied_exactly() -> None:
    assert toy([b"a", b"aa", b" "]).lattice("aaaaa " * 400).count() == 8**400
    rng = random.Random(0)
    for bits in (1 << 16, 100_001, 1 << 20):
        a, b = rng.getrandbits(bits) | 1 << (bits - 1), (1 << bits) - 1
        assert integer_multiply(a, b) == a * b
        assert integer_multiply(b, b) == b * b
    powers = counts_product([([3], 100_000), ([5, 1], 1), ([1 << 70_000], 3)], 1)
    assert powers == [(3**100_000 * c) << 210_000 for c in (5, 1)]


@pytest.mark.parametrize(("name", "three_splits"), [("gpt2", 14), ("llama3", 24)])
def test_revolution_has_the_segmentations_of_the_paper(name: str, three_splits: int) -> None:
    assert real(name).lattice("revolution").count(segments=4) == three_splits


@pytest.mark.parametrize("wrong", [1.5, float("inf"), float("nan"), "2", True])
def test_a_degree_that_is_no_integer_is_refused(wrong: object) -> None:
    lattice = toy([b"a", b"aa"]).lattice("aaa")
    for call in (
        lambda: lattice.count(distance=wrong),  # type: ignore[arg-type]
        lambda: lattice.count(segments=wrong),  # type: ignore[arg-type]
        lambda: lattice.counts(most=wrong),  # type: ignore[arg-type]
        lambda: lattice.log_count(distance=wrong),  # type: ignore[arg-type]
        lambda: lattice.feasible(wrong),  # type: ignore[arg-type]
        lambda: lattice.enumerate(distance=wrong),  # type: ignore[arg-type]
        lambda: lattice.enumerate(limit=wrong),  # type: ignore[arg-type]
    ):
        with pytest.raises(rt.RobustokError, match="must be an integer"):
            call()


@pytest.mark.parametrize("degree", [-1, 4, 2**63, 10**30])
def test_a_degree_that_no_tokenization_has_counts_nothing(degree: int) -> None:
    lattice = toy([b"a", b"aa"]).lattice("aaa")
    assert lattice.count(distance=degree) == lattice.count(segments=degree) == 0
    assert lattice.log_count(distance=degree) == -np.inf
    assert lattice.feasible(degree) == (2 if degree > 0 else 0)
    assert not list(lattice.enumerate(distance=degree))
    assert not list(lattice.enumerate(segments=degree, limit=10**30))
    assert len(lattice.counts(most=degree)) == (3 if degree > 0 else 0)
