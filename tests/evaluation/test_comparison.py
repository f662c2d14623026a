"""The paired test, and its p where nothing differs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest, t

from robustok.errors import RobustokError
from robustok.evaluation import Evaluation, Outcome, paired
from robustok.evaluation.intervals import LEVEL, compare_answers, exact_mcnemar, interval


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
    """Shares of p below 0.05 and 0.5 over 300 tries: within 4 standard errors."""
    rng = np.random.default_rng(0)
    ps = []
    for _ in range(300):
        skill = rng.uniform(size=(150, 1))
        first, second = (rng.uniform(size=(150, 4)) < skill for _ in range(2))
        ps.append(paired(evaluation_of(first), evaluation_of(second)).p)
    for level in (0.05, 0.5):
        share = float(np.mean(np.array(ps) < level))
        assert abs(share - level) < 4 * np.sqrt(level * (1 - level) / 300)


def test_other_items_are_refused() -> None:
    with pytest.raises(RobustokError, match="different items"):
        paired(evaluation_of(np.ones((3, 1))), evaluation_of(np.ones((4, 1))))


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
