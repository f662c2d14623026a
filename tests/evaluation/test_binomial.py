"""The exact upper bound, against scipy's beta quantile and against its own definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom

from robustok import RobustokError
from robustok.evaluation.binomial import share_below


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.integers(1, 5000), st.floats(0, 1), st.sampled_from([0.5, 0.9, 0.95, 0.99, 0.999999]))
def test_it_is_the_beta_quantile(draws: int, share: float, confidence: float) -> None:
    found = min(int(share * (draws + 1)), draws)
    wanted = 1.0 if found == draws else beta.ppf(confidence, found + 1, draws - found)
    assert share_below(found, draws, confidence) == pytest.approx(wanted, rel=1e-9)


def test_a_true_share_is_above_the_bound_no_more_often_than_promised() -> None:
    share, draws = 0.03, 200
    found = np.arange(draws + 1)
    missed = [f for f in found if share_below(int(f), draws, 0.9) < share]
    chance = binom.pmf(missed, draws, share).sum()
    assert 0 < chance <= 0.1


@pytest.mark.parametrize(
    ("found", "draws", "confidence"), [(1, 0, 0.9), (3, 2, 0.9), (-1, 2, 0.9), (0, 2, 1)]
)
def test_impossible_counts_are_errors(found: int, draws: int, confidence: float) -> None:
    with pytest.raises(RobustokError, match="no bound"):
        share_below(found, draws, confidence)
