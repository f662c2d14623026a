from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binomtest, t
from tests.evaluation.conftest import evaluation_of

from robustok import RobustokError
from robustok.evaluation import clustered, paired, wilson
from robustok.evaluation.intervals import (
    LEVEL,
    clopper_pearson_upper,
    compare_answers,
    effective_answers,
    interval,
    over_seeds,
)


@pytest.mark.parametrize(("correct", "n"), [(0, 5), (1, 1), (8, 10), (431, 500), (500, 500)])
def test_wilson_is_scipys(correct: int, n: int) -> None:
    known = binomtest(correct, n).proportion_ci(0.95, method="wilson")
    assert wilson(correct, n) == pytest.approx((known.low, known.high), abs=1e-12)


@pytest.mark.parametrize(("right", "n"), [(0, 1), (1, 1), (0, 5), (3, 4), (431, 500), (500, 500)])
def test_one_draw_is_scipys_clopper_pearson(right: int, n: int) -> None:
    known = binomtest(right, n).proportion_ci(0.95, method="exact")
    _, low, high = clustered([1.0] * right + [0.0] * (n - right))
    assert (low, high) == pytest.approx((known.low, known.high), abs=1e-12)


def test_repeating_the_same_answer_adds_nothing() -> None:
    fractions = np.array([1.0, 0.0, 1.0, 1.0, 0.0] * 20)
    assert clustered(fractions, draws=10) == clustered(fractions, draws=1)


def test_independent_draws_count_as_items() -> None:
    rng = np.random.default_rng(0)
    fractions = rng.binomial(10, 0.6, size=4000) / 10
    mean, low, high = clustered(fractions, draws=10)
    independent = wilson(mean * 40_000, 40_000)
    assert high - low == pytest.approx(independent[1] - independent[0], rel=0.05)


@pytest.mark.parametrize(("n", "draws"), [(1, 20), (2, 12), (3, 8), (4, 6), (5, 4), (7, 2)])
def test_a_draw_that_turns_wrong_never_raises_a_bound(n: int, draws: int) -> None:
    """All results of n items: each item loses one of its right draws in turn."""
    for counts in combinations_with_replacement(range(draws + 1), n):
        _, *bounds = clustered(np.array(counts) / draws, draws)
        for item in range(n):
            if counts[item]:
                worse = np.array(counts) - np.eye(n, dtype=int)[item]
                _, *after = clustered(worse / draws, draws)
                assert after[0] <= bounds[0] + 1e-12 and after[1] <= bounds[1] + 1e-12, counts


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.data(), st.integers(1, 300), st.integers(1, 20))
def test_bounds_are_around_the_mean_and_fall_with_a_wrong_draw(
    data: st.DataObject, n: int, draws: int
) -> None:
    rare = data.draw(st.sampled_from([0.0, 0.02, 0.5, 1.0]))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    chances = np.where(rng.random(n) < rare, rng.random(n), data.draw(st.floats(0, 1)))
    counts = rng.binomial(draws, chances)
    mean, low, high = clustered(counts / draws, draws)
    assert 0 <= low <= mean <= high <= 1
    assert n <= effective_answers(counts / draws, draws) <= n * draws
    for item in np.flatnonzero(counts)[:5]:
        counts[item] -= 1
        _, *after = clustered(counts / draws, draws)
        assert after[0] <= low + 1e-12 and after[1] <= high + 1e-12
        counts[item] += 1


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(1500):
        chances = rng.beta(1.5, 1.0, size=120)  # mean 0.6, items differ a lot
        _, low, high = clustered(rng.binomial(10, chances) / 10, draws=10)
        covered += low <= 0.6 <= high
    assert 0.93 <= covered / 1500 <= 0.98


@pytest.mark.parametrize("n", [4, 10, 20, 50, 100])
def test_the_interval_covers_where_a_few_items_are_always_wrong(n: int) -> None:
    """Of 1,000 evaluations with 10 draws, at least 93% and 3 standard errors less."""
    rng, covered, never = np.random.default_rng(n), 0, 0.8 / n
    for _ in range(1000):
        chances = np.where(rng.random(n) < never, 0.0, 0.97)
        _, low, high = clustered(rng.binomial(10, chances) / 10, draws=10)
        covered += low <= (1 - never) * 0.97 <= high
    assert covered / 1000 >= 0.93 - 3 * math.sqrt(0.93 * 0.07 / 1000)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.integers(1, 5000), st.floats(0, 1), st.sampled_from([0.5, 0.9, 0.95, 0.99, 0.999999]))
def test_clopper_pearson_is_the_beta_quantile(trials: int, share: float, confidence: float) -> None:
    successes = min(int(share * (trials + 1)), trials)
    wanted = 1.0 if successes == trials else beta.ppf(confidence, successes + 1, trials - successes)
    assert clopper_pearson_upper(successes, trials, confidence) == pytest.approx(wanted, rel=1e-9)


def test_items_are_paired_by_their_key_in_any_order() -> None:
    first = evaluation_of(np.array([[1], [1], [1], [1], [0], [0]]))
    second = evaluation_of(np.array([[0], [0], [1], [1], [0], [1]]))
    mixed = replace(second, outcomes=second.outcomes[::-1], seed=7)
    result = paired(first, mixed)
    assert (result.lost, result.won, result.n, result.seeds) == (2, 1, 6, 1)
    assert result.mean == pytest.approx(-1 / 6)
    assert result == paired(first, second)


@pytest.mark.parametrize(
    ("lost", "won", "n", "wanted"),
    [(7, 1, 50, (-0.233, 0.003, 0.055)), (12, 4, 200, (-0.081, 0.001, 0.059))],
)
def test_known_differences_of_single_draws(
    lost: int, won: int, n: int, wanted: tuple[float, float, float]
) -> None:
    change = np.repeat([-1.0, 1.0, 0.0], [lost, won, n - lost - won])[None]
    assert compare_answers(0 * change, change) == pytest.approx(wanted, abs=1e-3)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 200), st.integers(1, 10), st.floats(-1, 1),
    st.integers(0, 10**6),
)  # fmt: skip
def test_an_interval_excludes_zero_exactly_where_p_is_below_the_level(
    seeds: int, n: int, draws: int, shift: float, stream: int
) -> None:
    rng = np.random.default_rng(stream)
    skill = rng.normal(0, 1.5, n) + rng.normal(0, 0.3, (2, seeds, 1))
    chances = 1 / (1 + np.exp(-skill - np.array([0, shift])[:, None, None]))
    before, after = rng.binomial(draws, chances) / draws
    for level in (0.1, LEVEL, LEVEL / 5):
        low, high, p = compare_answers(before, after, level=level)
        assert (low > 0 or high < 0) == (p < level)
        assert low - 1e-12 <= (after - before).mean() <= high + 1e-12
    if seeds == 1:
        one, other = (evaluation_of(rng.random((n, draws)) < own[0][:, None]) for own in chances)
        result = paired(one, other)
        assert result.is_clear == (result.p < LEVEL)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_an_accuracy_over_seeds_is_wilsons_at_the_worth_of_both_parts(seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    answers = rng.binomial(3, rng.uniform(0.4, 0.9, (seeds, 1)), (seeds, 60)) / 3
    mean, low, high = over_seeds(answers, draws=3)
    assert mean == pytest.approx(answers.mean())
    z, inner = t.ppf(0.975, np.inf), (60 * mean + 1) / 62
    worth = (t.ppf(0.975, 59) / z) ** 2 / effective_answers(answers.mean(0), 3 * seeds)
    between = answers.mean(1).var(ddof=1) / seeds / (inner * (1 - inner))
    worth = 1 / (worth + (t.ppf(0.975, seeds - 1) / z) ** 2 * between)
    assert (low, high) == pytest.approx(wilson(mean * worth, worth), abs=1e-9)


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_seeds_that_are_all_right_or_all_wrong_have_one_end_at_the_mean(right: float) -> None:
    mean, low, high = over_seeds(np.full((3, 100), right))
    assert mean == right and right in (low, high)
    assert 0.03 < high - low < 0.05


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


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -0.1, 1.1, "a", None, [1.0]])
def test_a_share_is_a_number_from_0_to_1(wrong: Any) -> None:
    with pytest.raises(RobustokError, match="fractions"):
        clustered([1.0, wrong])
    for answers in ([[1.0, wrong]] * 2, [1.0, wrong]):
        with pytest.raises(RobustokError, match="answers"):
            over_seeds(answers)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.1])
def test_answers_that_are_no_numbers_are_not_compared(wrong: float) -> None:
    with pytest.raises(RobustokError, match="changes: number 1"):
        compare_answers(np.zeros((1, 2)), np.array([[1.0, wrong]]))


@pytest.mark.parametrize("draws", [0, -1, 1.5, True, math.nan])
def test_draws_are_a_positive_integer(draws: Any) -> None:
    with pytest.raises(RobustokError, match="draws"):
        clustered([1.0, 0.0], draws)


@pytest.mark.parametrize("before", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("after", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (3, 1), (2, 10)])
def test_answers_without_variance_have_an_interval(
    before: float, after: float, shape: tuple[int, int]
) -> None:
    low, high, p = compare_answers(np.full(shape, before), np.full(shape, after))
    assert -1 <= low <= high <= 1 and 0 <= p <= 1
    assert (low > 0 or high < 0) == (p < LEVEL)
    if shape[0] > 1:
        mean, low, high = over_seeds(np.full(shape, after))
        assert 0 <= low <= mean <= high <= 1 and low < high
