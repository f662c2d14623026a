"""The lattice against enumeration by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from tests.oracles import lattice as oracle
from tests.oracles.data import real
from tests.oracles.strategies import cases
from tests.oracles.vocabulary import Greedy, toy

import robustok as rt
from robustok.lattice import canonical_of

FEW = settings(max_examples=150, deadline=None)


def lattice_of(vocab: rt.Vocabulary, text: bytes) -> rt.Lattice:
    encoder = vocab.data.encoder
    assert isinstance(encoder, Greedy)
    return rt.Lattice(vocab, encoder.encode_bytes(text))


@given(cases())
@FEW
def test_counts_and_enumeration_are_those_by_hand(case) -> None:
    vocab, text = case
    lattice = lattice_of(vocab, text)
    reference = tuple(lattice.reference.tolist())
    by_distance, by_segments = oracle.counts(vocab, text, reference)
    paths = oracle.tokenizations(vocab, text)
    assert lattice.count() == len(paths)
    assert lattice.count(modulus=7) == len(paths) % 7
    assert [tuple(p.tolist()) for p in lattice.enumerate()] == paths
    for k in range(len(text) + 2):
        assert lattice.count(distance=k) == by_distance[k]
        assert lattice.count(segments=k) == by_segments[k]
        found = [tuple(p.tolist()) for p in lattice.enumerate(distance=k)]
        assert found == [p for p in paths if oracle.distance(vocab, reference, p) == k]
        both = [p for p in found if len(p) == 3]
        assert lattice.count(distance=k, segments=3) == len(both)
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
def test_neighbours_and_distance_are_those_by_hand(case) -> None:
    vocab, text = case
    lattice = lattice_of(vocab, text)
    paths = oracle.tokenizations(vocab, text)
    for v in paths[:6]:
        for k in range(5):
            wanted = [u for u in paths if oracle.distance(vocab, v, u) == k]
            assert [tuple(r.tolist()) for r in lattice.neighbours(v, distance=k)] == wanted
        for u in paths[:20]:
            assert rt.distance(vocab, v, u) == oracle.distance(vocab, v, u)


def test_splitting_costs_two_and_merging_costs_one() -> None:
    vocab = toy([b"a", b"b", b"ab"])
    assert rt.distance(vocab, [2], [0, 1]) == 2
    assert rt.distance(vocab, [0, 1], [2]) == 1


def test_special_ids_stay_and_nothing_crosses_them() -> None:
    vocab = toy([b"a", b"b", b"ab", b"ba"], special=[b"<s>"])
    lattice = rt.Lattice(vocab, [2, 4, 3])
    assert lattice.count() == 4
    assert all(row[np.flatnonzero(row == 4)[0]] == 4 for row in lattice.enumerate())
    assert {tuple(r.tolist()) for r in lattice.enumerate()} == {
        (2, 4, 3), (0, 1, 4, 3), (2, 4, 1, 0), (0, 1, 4, 1, 0),
    }  # fmt: skip


def test_limit_and_empty_text() -> None:
    vocab = toy([b"a", b"aa"])
    assert len(list(vocab.lattice("aaaa").enumerate(limit=2))) == 2
    empty = vocab.lattice("")
    assert empty.count() == 1
    assert [r.tolist() for r in empty.enumerate()] == [[]]
    assert len(empty.neighbours([], distance=2)) == 0


def test_wrong_ids_are_told() -> None:
    vocab = toy([b"a", b"aa"])
    with pytest.raises(rt.RobustokError, match="id 9 at position 1 is not in the vocabulary"):
        rt.Lattice(vocab, [0, 9])
    with pytest.raises(rt.RobustokError, match="not a tokenization of the lattice's text"):
        vocab.lattice("aa").neighbours([0])
    with pytest.raises(rt.RobustokError, match="spell different texts"):
        rt.distance(vocab, [0], [1])


def test_counts_pass_any_float() -> None:
    vocab = toy([b"a", b"aa", b" "])
    lattice = vocab.lattice("aaaaa " * 400)
    assert lattice.count() == 8**400
    assert sum(lattice.counts(by="segments")) == 8**400


@pytest.mark.parametrize(("name", "three_splits"), [("gpt2", 14), ("llama3", 24)])
def test_revolution_has_the_segmentations_of_the_paper(name: str, three_splits: int) -> None:
    assert real(name).lattice("revolution").count(segments=4) == three_splits


def test_canonical_of_takes_off_the_space_an_encoder_adds() -> None:
    vocab = real("llama2")
    ids = vocab.encode("hello world")
    drawn = rt.Uniform(vocab).sample(ids, seed=3)
    assert np.array_equal(canonical_of(vocab, drawn), ids)
