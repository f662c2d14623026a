from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom, binomtest, t

from robustok import RobustokError
from robustok.evaluation import Evaluation, Outcome, clustered, paired, wilson
from robustok.evaluation.intervals import (
    LEVEL,
    clopper_pearson_upper,
    compare_answers,
    exact_mcnemar,
    interval,
)


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


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.integers(1, 5000), st.floats(0, 1), st.sampled_from([0.5, 0.9, 0.95, 0.99, 0.999999]))
def test_clopper_pearson_is_the_beta_quantile(trials: int, share: float, confidence: float) -> None:
    successes = min(int(share * (trials + 1)), trials)
    wanted = 1.0 if successes == trials else beta.ppf(confidence, successes + 1, trials - successes)
    assert clopper_pearson_upper(successes, trials, confidence) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize(("lost", "won"), [(0, 0), (3, 0), (1, 9), (40, 60), (500, 501)])
def test_exact_mcnemar_doubles_the_smaller_tail(lost: int, won: int) -> None:
    tail = binom.cdf(min(lost, won), lost + won, 0.5)
    assert exact_mcnemar(lost, won) == pytest.approx(min(1.0, 2 * tail), rel=1e-9)


def evaluation_of(answers: np.ndarray) -> Evaluation:
    """Answers [items, draws], right or wrong, as an evaluation."""
    outcomes = tuple(
        Outcome(str(i), "", 1, tuple(map(int, row)), (0.0,) * len(row), tuple(map(int, row)))
        for i, row in enumerate(answers)
    )
    draws = answers.shape[1]
    return Evaluation(
        accuracy=float(answers.mean()), low=0, high=1, acc_norm=float(answers.mean()),
        acc_norm_low=0, acc_norm_high=1, n=len(outcomes), draws=draws,
        eval_scheme="", seed=0, seconds=0.0, outcomes=outcomes, mode="tree", tokens_computed=0,
        tokens_naive=0,
    )  # fmt: skip


def test_single_draws_are_tested_exactly() -> None:
    first = evaluation_of(np.array([[1], [1], [1], [1], [0], [0]]))
    second = evaluation_of(np.array([[0], [0], [1], [1], [0], [1]]))
    result = paired(first, second)
    assert (result.lost, result.won, result.n) == (2, 1, 6)
    assert result.difference == pytest.approx(-1 / 6)
    assert result.p == pytest.approx(exact_mcnemar(2, 1))


def test_where_nothing_differs_p_is_uniform() -> None:
    """Shares of p below 0.05 and 0.5 over 200 tries: within 4 standard errors."""
    rng = np.random.default_rng(0)
    ps = []
    for _ in range(200):
        skill = rng.uniform(size=(100, 1))
        first, second = (rng.uniform(size=(100, 4)) < skill for _ in range(2))
        ps.append(paired(evaluation_of(first), evaluation_of(second)).p)
    for level in (0.05, 0.5):
        share = float(np.mean(np.array(ps) < level))
        assert abs(share - level) < 4 * np.sqrt(level * (1 - level) / 200)


def test_an_interval_ends_at_zero_at_the_level_of_its_p() -> None:
    parts = [(0.01, 2.0), (0.0004, 299.0)]
    *_, p = interval(0.3, parts)
    assert LEVEL < p < 1
    half = math.sqrt(sum(part * t.isf(p / 2, degrees) ** 2 for part, degrees in parts))
    assert half == pytest.approx(0.3)


@pytest.mark.parametrize("degrees", [1, 2, 299])
def test_an_interval_of_one_source_of_error_is_students(degrees: int) -> None:
    low, high, p = interval(0.5, [(0.04, degrees)])
    assert (high - low) / 2 == pytest.approx(0.2 * t.ppf(0.975, degrees))
    assert p == pytest.approx(2 * t.sf(2.5, degrees))


def test_false_alarms_are_as_rare_as_the_level_says() -> None:
    """Three seeds that vary, the case in which one quantile for both variances gives 7%."""
    rng = np.random.default_rng(0)
    clear = 0
    for _ in range(500):
        question = rng.normal(0, 1.5, 100)
        logit = question + rng.normal(0, 0.6, (2, 3, 1))
        first, second = rng.binomial(3, 1 / (1 + np.exp(-logit))) / 3
        low, high, _ = compare_answers(first, second)
        clear += low > 0 or high < 0
    assert binomtest(clear, 500, LEVEL, alternative="greater").pvalue > 0.01


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: clustered([]), "no items"),
        (lambda: wilson(3, 2), "no interval"),
        (lambda: clopper_pearson_upper(1, 0, 0.9), "no bound"),
        (lambda: clopper_pearson_upper(3, 2, 0.9), "no bound"),
        (lambda: clopper_pearson_upper(-1, 2, 0.9), "no bound"),
        (lambda: clopper_pearson_upper(0, 2, 1), "no bound"),
        (lambda: paired(evaluation_of(np.ones((3, 1))), evaluation_of(np.ones((4, 1)))),
         "different items"),
    ],
)  # fmt: skip
def test_mistakes_are_errors(call: Any, message: str) -> None:
    with pytest.raises(RobustokError, match=message):
        call()
