from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from robustok import RobustokError
from robustok.evaluation import clustered, wilson


@pytest.mark.parametrize(("correct", "n"), [(0, 5), (1, 1), (8, 10), (431, 500), (500, 500)])
def test_wilson_is_scipys(correct: int, n: int) -> None:
    known = binomtest(correct, n).proportion_ci(0.95, method="wilson")
    assert wilson(correct, n) == pytest.approx((known.low, known.high), abs=1e-12)


def test_one_draw_is_plain_wilson() -> None:
    assert clustered([1, 0, 1, 1]) == (0.75, *wilson(3, 4))


def test_repeating_the_same_answer_adds_nothing() -> None:
    fractions = np.array([1.0, 0.0, 1.0, 1.0, 0.0] * 20)
    _, low, high = clustered(fractions, draws=10)
    assert (low, high) == pytest.approx(wilson(60, 100), abs=1e-9)


def test_independent_draws_count_as_items() -> None:
    rng = np.random.default_rng(0)
    fractions = rng.binomial(10, 0.6, size=4000) / 10
    mean, low, high = clustered(fractions, draws=10)
    independent = wilson(mean * 40_000, 40_000)
    assert high - low == pytest.approx(independent[1] - independent[0], rel=0.05)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(1500):
        chances = rng.beta(1.5, 1.0, size=120)  # mean 0.6, items differ a lot
        _, low, high = clustered(rng.binomial(10, chances) / 10, draws=10)
        covered += low <= 0.6 <= high
    assert 0.93 <= covered / 1500 <= 0.97


def test_mistakes_are_told() -> None:
    with pytest.raises(RobustokError, match="no items"):
        clustered([])
    with pytest.raises(RobustokError, match="no interval"):
        wilson(3, 2)
