"""Draws by the tail of a long block: where it fails, a table draws the same and takes longer."""

from __future__ import annotations

import numpy as np
from tests.oracles.vocabulary import toy

import robustok as rt
from robustok.kernels.conditional import build_tail, chance, draw_tail, draw_to
from robustok.kernels.lattice import backward, edge_probabilities


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
