from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom, binomtest

from robustok import RobustokError
from robustok.evaluation import clustered, wilson
from robustok.evaluation.intervals import clopper_pearson_upper, exact_mcnemar


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


def test_mistakes_are_errors() -> None:
    with pytest.raises(RobustokError, match="no items"):
        clustered([])
    with pytest.raises(RobustokError, match="no interval"):
        wilson(3, 2)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.integers(1, 5000), st.floats(0, 1), st.sampled_from([0.5, 0.9, 0.95, 0.99, 0.999999]))
def test_clopper_pearson_is_the_beta_quantile(trials: int, share: float, confidence: float) -> None:
    successes = min(int(share * (trials + 1)), trials)
    wanted = 1.0 if successes == trials else beta.ppf(confidence, successes + 1, trials - successes)
    assert clopper_pearson_upper(successes, trials, confidence) == pytest.approx(wanted, rel=1e-9)


def test_a_true_share_is_above_the_bound_no_more_often_than_promised() -> None:
    share, trials = 0.03, 200
    successes = np.arange(trials + 1)
    missed = [f for f in successes if clopper_pearson_upper(int(f), trials, 0.9) < share]
    chance = binom.pmf(missed, trials, share).sum()
    assert 0 < chance <= 0.1


@pytest.mark.parametrize(
    ("successes", "trials", "confidence"), [(1, 0, 0.9), (3, 2, 0.9), (-1, 2, 0.9), (0, 2, 1)]
)
def test_impossible_counts_are_errors(successes: int, trials: int, confidence: float) -> None:
    with pytest.raises(RobustokError, match="no bound"):
        clopper_pearson_upper(successes, trials, confidence)


@pytest.mark.parametrize(("lost", "won"), [(0, 0), (3, 0), (1, 9), (40, 60), (500, 501)])
def test_exact_mcnemar_doubles_the_smaller_tail(lost: int, won: int) -> None:
    tail = binom.cdf(min(lost, won), lost + won, 0.5)
    assert exact_mcnemar(lost, won) == pytest.approx(min(1.0, 2 * tail), rel=1e-9)
