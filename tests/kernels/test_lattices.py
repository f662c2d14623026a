"""The kernels on lattices against enumeration of all paths."""

from __future__ import annotations

from itertools import pairwise
from math import log

import numpy as np
import pytest
from tests.oracles import edges as oracle
from tests.oracles.vocabulary import canonical, toy

import robustok as rt
from robustok.kernels import blocks, counting, feasible, lattice
from robustok.kernels.compiler import njit
from robustok.kernels.conditional import (
    Draws,
    build_tail,
    chance,
    draw_by_table,
    draw_tail,
    draw_to,
)
from robustok.kernels.counting import _by_angles, _by_table, log_coefficient
from robustok.kernels.lattice import at_distance, edge_probabilities, row_edges

VOCAB = toy([b"a", b"b", b"c", b" ", b"ab", b"aa", b"abc", b"bca", b" a"])
TEXTS = [b"a", b"abcab", b"aabca aab", b"abc" * 4, b"b b b"]


@njit(cache=False)
def joined_twice(edges):
    """Lists of lattices exist in compiled code alone."""
    return lattice.joined([edges, edges])


def as_bytes(text: bytes) -> np.ndarray:
    return np.frombuffer(bytearray(text), np.uint8)


@pytest.fixture(params=TEXTS)
def text(request: pytest.FixtureRequest) -> bytes:
    return request.param


@pytest.fixture
def edges(text: bytes):
    return oracle.lattice(VOCAB, text, canonical(VOCAB, text))


def same(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_edges_are_all_tokens_in_the_text(text: bytes, edges) -> None:
    ids = np.array(canonical(VOCAB, text), np.int32)
    built = lattice.edges_of(VOCAB.trie, as_bytes(text), 0, len(text))
    assert same(built, oracle.lattice(VOCAB, text))
    lattice.mark_reference(built, ids, 0, len(ids), VOCAB.token_offsets)
    assert same(built, edges)
    fixed = np.zeros(len(ids), np.bool_)
    row = row_edges(VOCAB.trie, as_bytes(text), VOCAB.token_offsets, ids, fixed)
    assert same(row, edges)
    assert lattice.longest_edge(edges) == max(edges.step >> 1)
    twice = joined_twice(edges)
    assert len(oracle.paths(twice)) == len(oracle.paths(edges)) ** 2


def test_words_end_where_no_token_spans(text: bytes, edges) -> None:
    n = len(text)
    spanned = {
        p
        for i in range(n)
        for e in range(edges.first[i], edges.first[i + 1])
        for p in range(i + 1, i + int(edges.step[e] >> 1))
    }
    cuts = [p for p in range(1, n + 1) if p not in spanned]
    assert counting.all_block_ends(edges.first, edges.step).tolist() == cuts
    ends = np.empty(n, np.int64)
    count = blocks.block_ends(VOCAB.trie, as_bytes(text), 0, n, ends)
    assert set(ends[:count].tolist()) <= set(cuts)  # short words are not searched for all cuts
    larger = toy([b"ab", b"ba", b"a", b"b", b"c"])  # every pair occurs, and cuts all the same
    long_text = b"abba" * 20
    long_edges = oracle.lattice(larger, long_text)
    ends = np.empty(len(long_text), np.int64)
    count = blocks.block_ends(larger.trie, as_bytes(long_text), 0, len(long_text), ends)
    expected = counting.all_block_ends(long_edges.first, long_edges.step).tolist()
    assert ends[:count].tolist() == expected


def test_weights_and_moments_are_those_of_all_paths(edges) -> None:
    for z in (0.2, 1.0, 3.0):
        weights = np.array([z**cost for _, cost in oracle.paths(edges)])
        costs = np.array([cost for _, cost in oracle.paths(edges)])
        mantissa, exponent = lattice.backward(edges, z)
        assert np.isclose(mantissa[0] * 2.0 ** exponent[0], weights.sum())
        mean, variance = lattice.moments(edges, z, mantissa, exponent)
        p = weights / weights.sum()
        assert np.isclose(mean, (p * costs).sum())
        assert np.isclose(variance, (p * (costs - mean) ** 2).sum())


def test_draws_are_paths_and_every_path_is_drawn(edges) -> None:
    expected = dict(oracle.paths(edges))
    mantissa, exponent = lattice.backward(edges, 1.0)
    out, state, drawn = np.empty(len(edges.first), np.int32), np.uint64(1), set()
    for _ in range(20 * len(expected)):
        end, cost, state = lattice.draw_long(edges, 1.0, mantissa, exponent, state, out, 0)
        path = tuple(out[:end].tolist())
        assert expected[path] == cost
        drawn.add(path)
        state = np.uint64(state)
    assert len(drawn) > 0.9 * len(expected)


def test_counts_by_cost_are_those_of_all_paths(edges) -> None:
    n, exact = len(edges.first) - 1, oracle.cost_counts(edges)
    ends = counting.all_block_ends(edges.first, edges.step)
    assert np.prod(counting.block_counts(edges.first, edges.step, ends)) == sum(exact)
    deficits = np.array([5, 27])
    rows = counting.residues(edges, n, deficits)
    for d in range(n + 1):
        number = exact[d] if d < len(exact) else 0
        assert rows[d].tolist() == [number % (2**56 - int(x)) for x in deficits]
    for k in range(n + 2):
        reached = max(d for d in range(min(k, len(exact) - 1) + 1) if exact[d])
        assert feasible.largest_feasible(edges, k) == reached
    low, high = lattice.extremes(edges)
    assert (low[0], high[0]) == (min(d for d in range(len(exact)) if exact[d]), len(exact) - 1)
    for d in range(1, len(exact)):
        expected = log(exact[d]) if exact[d] else -np.inf
        assert np.isclose(log_coefficient(edges, d, len(exact) - 1), expected)


def test_a_probability_by_angles_is_that_by_a_table(edges) -> None:
    mantissa, exponent = lattice.backward(edges, 0.7)
    probability = edge_probabilities(edges, 0.7, mantissa, exponent)
    for cost in range(len(oracle.cost_counts(edges))):
        by_table = _by_table(edges, probability, cost)
        assert np.isclose(_by_angles(edges, probability, cost, len(edges.first)), by_table)


def test_paths_at_a_distance_are_those_with_this_cost(edges) -> None:
    for k in range(len(oracle.cost_counts(edges)) + 1):
        ids, offsets, possible = at_distance(edges, k)
        listed = [tuple(ids[a:b].tolist()) for a, b in pairwise(offsets)]
        expected = [path for path, cost in oracle.paths(edges) if cost == k]
        assert possible
        assert listed == expected
        if expected:
            draws = Draws(
                np.arange(8, dtype=np.uint64), np.empty(8 * len(edges.first), np.int32),
                np.empty(8, np.int64),
            )  # fmt: skip
            assert draw_by_table(edges, k, draws, 0) == draws.ends[-1]
            bounds = [0, *draws.ends.tolist()]
            for a, b in pairwise(bounds):
                assert tuple(draws.ids[a:b].tolist()) in expected


def test_the_tail_has_the_distribution_of_its_distances() -> None:
    """600 bytes: one stage of 256 bytes."""
    vocab = toy([b"a", b"aa", b"aaa"])
    text = b"a" * 600
    reference = canonical(vocab, text)
    edges = oracle.lattice(vocab, text, reference)
    mantissa, exponent = lattice.backward(edges, 1.0)
    probability = edge_probabilities(edges, 1.0, mantissa, exponent)
    k = 250
    tail = build_tail(edges, probability, k)
    origin = int(tail.stages[0])
    rest = oracle.lattice(vocab, text[origin:])
    first = edges.first[origin:] - edges.first[origin]
    part = rest._replace(first=first, step=edges.step[edges.first[origin] :])
    counts = oracle.cost_counts(part)
    for d in range(0, min(k, len(counts) - 1), 7):
        assert np.isclose(chance(tail, origin, d), counts[d] / sum(counts), atol=1e-12)
    state, path = np.uint64(3), np.empty(len(text), np.int32)
    node, at, distance, state = draw_to(
        edges, probability, np.int64(0), tail.stages[0], state, path, np.int64(0)
    )
    wanted = int(tail.sums.low[node - origin] + tail.sums.high[node - origin]) // 2
    end, _ = draw_tail(edges, probability, tail, node, wanted, np.uint64(state), path, at)
    drawn = path[:end].tolist()
    assert vocab.decode_bytes(drawn) == text
    assert rt.distance(vocab, reference, drawn) == distance + wanted
