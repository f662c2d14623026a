"""`stochastok-uniform(support=pairwise)` where two-way splits reach hardly any segmentation."""

from __future__ import annotations

import pytest
from tests.oracles.vocabulary import toy

import robustok as rt


def test_a_segmentation_too_rare_to_be_drawn_ends_in_an_error() -> None:
    """Two-way splits of 2**k bytes cut aligned halves only: 1 in 10**6 of 20 segments of 128."""
    vocab = toy([b"a" * 2**k for k in range(8)])
    scheme = rt.sampler("stochastok-uniform(alpha=19, support=pairwise)", vocab)
    with pytest.raises(rt.RobustokError, match="come from two-way splits: use support='all'"):
        scheme.sample([7], seed=0)
