"""Intervals against scipy and simulations; rows of command, report and cards compare alike."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binomtest, t
from tests.evaluation.conftest import evaluation_of

from robustok import RobustokError
from robustok.cli.measuring import change_text
from robustok.evaluation import clustered, paired, wilson
from robustok.evaluation.comparison import Difference, Evaluation, clear_differences, difference
from robustok.evaluation.intervals import (
    LEVEL,
    clopper_pearson_upper,
    compare_answers,
    effective_answers,
    interval,
    mean_of,
    over_seeds,
    ratio_of_sums,
)
from robustok.report import Results


@pytest.mark.parametrize(
    ("right", "n"), [(0, 1), (1, 1), (0, 5), (3, 4), (8, 10), (431, 500), (500, 500)]
)
def test_intervals_of_single_draws_are_scipys(right: int, n: int) -> None:
    own = clustered([1.0] * right + [0.0] * (n - right))[1:]
    for bounds, method in ((wilson(right, n), "wilson"), (own, "exact")):
        known = binomtest(right, n).proportion_ci(0.95, method=method)
        assert bounds == pytest.approx((known.low, known.high), abs=1e-12)


def test_repeating_the_same_answer_adds_nothing() -> None:
    fractions = np.array([1.0, 0.0, 1.0, 1.0, 0.0] * 20)
    assert clustered(fractions, draws=10) == clustered(fractions, draws=1)


def test_independent_draws_count_as_items() -> None:
    rng = np.random.default_rng(0)
    fractions = rng.binomial(10, 0.6, size=4000) / 10
    mean, low, high = clustered(fractions, draws=10)
    independent = wilson(mean * 40_000, 40_000)
    assert high - low == pytest.approx(independent[1] - independent[0], rel=0.05)


@settings(max_examples=500)
@given(st.data(), st.integers(1, 9) | st.integers(1, 300), st.integers(1, 20))
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


@pytest.mark.parametrize("n", [4, 10, 20, 50, 100, 120])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(n: int) -> None:
    """Of 1,000 evaluations with 10 draws; a few items are always wrong, or items differ a lot."""
    rng, covered, never = np.random.default_rng(n), 0, 0.8 / n
    truth = 0.6 if n == 120 else (1 - never) * 0.97
    for _ in range(1000):
        some_wrong = np.where(rng.random(n) < never, 0.0, 0.97)
        chances = rng.beta(1.5, 1.0, size=n) if n == 120 else some_wrong  # mean 0.6
        _, low, high = clustered(rng.binomial(10, chances) / 10, draws=10)
        covered += low <= truth <= high
    assert covered / 1000 >= 0.93 - 3 * math.sqrt(0.93 * 0.07 / 1000)
    assert n < 120 or covered / 1000 <= 0.985


@settings(max_examples=60)
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
    last = second.outcomes[-1]
    for change in ({"label": 0}, {"kind": "ends"}, {"question": "b?"}, {"choices": ("b", "c")}):
        other = (*second.outcomes[:-1], replace(last, item=replace(last.item, **change)))
        with pytest.raises(RobustokError, match="different items"):
            paired(first, replace(second, outcomes=other))


@pytest.mark.parametrize(
    ("lost", "won", "n", "wanted"),
    [(7, 1, 50, (-0.233, 0.003, 0.055)), (12, 4, 200, (-0.081, 0.001, 0.059))],
)
def test_known_differences_of_single_draws(
    lost: int, won: int, n: int, wanted: tuple[float, float, float]
) -> None:
    change = np.repeat([-1.0, 1.0, 0.0], [lost, won, n - lost - won])[None]
    assert compare_answers(0 * change, change) == pytest.approx(wanted, abs=1e-3)


@settings(max_examples=300)
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


@pytest.mark.parametrize(
    "parts", [[(0.04, 1)], [(0.04, 2)], [(0.04, 299)], [(0.01, 2.0), (0.0004, 299.0)]]
)
def test_an_interval_and_its_p_add_up_the_squares_of_students_quantiles(parts: Any) -> None:
    low, high, p = interval(0.3, parts)
    for level, half in ((LEVEL, (high - low) / 2), (p, 0.3)):  # at the level p it ends at zero
        squares = (part * t.isf(level / 2, degrees) ** 2 for part, degrees in parts)
        assert half == pytest.approx(math.sqrt(sum(squares)))


@pytest.mark.parametrize("n", [2, 3, 10])
def test_means_and_ratios_of_equal_wholes_have_scipys_interval(n: int) -> None:
    values = np.random.default_rng(n).normal(5, 1, n)
    low, high = t.interval(0.95, n - 1, values.mean(), values.std(ddof=1) / math.sqrt(n))
    mean, half = mean_of(values[:, None])
    assert (mean[0] - half[0], mean[0] + half[0]) == pytest.approx((low, high))
    wanted = (values.mean(), max(low, 0), high)
    assert ratio_of_sums(3 * values, np.full(n, 3.0)) == pytest.approx(wanted)


def test_a_ratio_counts_no_empty_whole_and_has_no_upper_bound_from_one() -> None:
    parts, wholes = np.array([4.0, 0.0, 9.0]), np.array([3.0, 0.0, 8.0])
    assert ratio_of_sums(parts, wholes) == ratio_of_sums(parts[[0, 2]], wholes[[0, 2]])
    assert ratio_of_sums(parts[:2], wholes[:2]) == (4 / 3, 0.0, math.inf)


@pytest.mark.parametrize("spread", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("n", [2, 5, 20])
def test_the_interval_of_a_ratio_holds_it_for_few_wholes_of_unequal_size(
    n: int, spread: float
) -> None:
    rng = np.random.default_rng(n)
    held = 0
    for _ in range(400):
        wholes = np.exp(rng.normal(6, spread, n))
        _, low, high = ratio_of_sums(wholes * rng.normal(1.2, 0.25, n), wholes)
        held += low <= 1.2 <= high
    assert held >= 0.92 * 400


@pytest.mark.parametrize("seeds", [1, 3])
def test_false_alarms_are_as_rare_as_the_level_says(seeds: int) -> None:
    """Seeds that vary are the case in which one quantile for both variances gives 7%."""
    rng = np.random.default_rng(0)
    ps = []
    for _ in range(500):
        logit = rng.normal(0, 1.5, 100) + rng.normal(0, 0.6 * (seeds > 1), (2, seeds, 1))
        first, second = rng.binomial(3, 1 / (1 + np.exp(-logit))) / 3
        ps.append(compare_answers(first, second)[2])
    for level in (LEVEL, 0.5):
        below = int(np.sum(np.array(ps) < level))
        assert binomtest(below, 500, level, alternative="greater").pvalue > 0.01
        assert seeds > 1 or below / 500 > level - 4 * np.sqrt(level * (1 - level) / 500)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: clustered([]), "no items"),
        (lambda: clustered([1.0, 0.0], 0), "draws"),
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
    if isinstance(wrong, float) and wrong != -0.1:
        with pytest.raises(RobustokError, match="changes: number 1"):
            compare_answers(np.zeros((1, 2)), np.array([[1.0, -wrong]]))
    with pytest.raises(RobustokError, match="draws"):
        clustered([1.0, 0.0], wrong)  # type: ignore[arg-type]


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
        assert after == 0.5 or after in (low, high)


def report_row(evaluation: Evaluation) -> dict[str, Any]:
    """The row of results.jsonl of an evaluation, with the answers that a report reads."""
    return {
        "train_scheme": "canonical", "eval_scheme": evaluation.eval_scheme, "seed": 0,
        "accuracy": evaluation.accuracy, "low": 0.0, "high": 1.0, "n": evaluation.n,
        "draws": evaluation.draws,
        "answers": {row["key"]: row["correct"] for row in evaluation.table()},
    }  # fmt: skip


@settings(max_examples=60)
@given(st.integers(5, 60), st.integers(1, 5), st.floats(-2, 2), st.integers(0, 10**6))
def test_command_and_report_have_one_interval_and_one_p(
    n: int, draws: int, shift: float, stream: int
) -> None:
    rng = np.random.default_rng(stream)
    chances = 1 / (1 + np.exp(-rng.normal(0.5, 1.5, (n, 1)) - [[[0.0]], [[shift]]]))
    schemes = ("canonical", "uniform")
    first, second = (
        evaluation_of(rng.random((n, draws)) < own, scheme)
        for own, scheme in zip(chances, schemes, strict=True)
    )
    by_command = paired(first, second)
    by_report = Results([report_row(one) for one in (first, second)]).change("canonical", "uniform")
    assert by_report == by_command
    assert by_command.is_clear == (by_command.p < LEVEL)
    assert bool(clear_differences({0: (_row(first), _row(second))})) == by_command.is_clear
    printed = change_text(by_command)  # what `robustok evaluate` prints
    low, high, p = numbers_in(printed)
    assert (low > 0 or high < 0) == (p < LEVEL) == by_command.is_clear
    assert (low, high) == pytest.approx((by_command.low, by_command.high), abs=5e-4)


def numbers_in(printed: str) -> list[float]:
    """The bounds and the p of a printed comparison."""
    interval, p = re.findall(r"\[(.*)\], p = (.*)", printed)[0]
    return [*map(float, interval.split(", ")), float(p)]


@pytest.mark.parametrize(("low", "high", "p"), [
    (0.0002, 0.4, 0.0498), (-0.0002, 0.4, 0.0502), (-0.4, -0.00001, 0.04999), (-0.4, 0.0, 0.05),
    (-0.4, 1e-9, 0.0500001), (0.1, 0.4, 1e-30), (-1.0, 1.0, 1.0),
])  # fmt: skip
def test_rounding_leaves_an_interval_on_its_side_of_zero(low: float, high: float, p: float) -> None:
    change = Difference(before=0.5, after=0.6, low=low, high=high, p=p, n=9)
    low, high, p = numbers_in(change_text(change))
    assert (low > 0 or high < 0) == (p < LEVEL) == change.is_clear


def _row(evaluation: Evaluation) -> dict[str, Any]:
    return {"answers": {0: report_row(evaluation)["answers"]}}


def test_rows_are_compared_over_the_seeds_and_questions_that_both_have() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.binomial(3, 0.6, (2, 3, 20)) / 3
    rows = [
        {"answers": {seed: dict(zip(map(str, range(20)), own, strict=True))
                     for seed, own in enumerate(answers.tolist())}}
        for answers in (before, after)
    ]  # fmt: skip
    change = difference(*rows)
    assert (change.low, change.high, change.p) == compare_answers(before, after)
    assert (change.seeds, change.n) == (3, 20)
    changes = (after - before).mean(0)
    assert (change.lost, change.won) == ((changes < 0).sum(), (changes > 0).sum())
    del rows[1]["answers"][0], rows[0]["answers"][2]["5"]
    fewer = difference(*rows)
    kept = [i for i in range(20) if i != 5]
    assert (fewer.seeds, fewer.n) == (2, 19)
    assert fewer.low == compare_answers(before[1:, kept], after[1:, kept])[0]


@pytest.mark.parametrize("answers", [{}, None, {1: {"a": 1.0}}, {0: {"b": 1.0}}])
def test_rows_without_common_answers_count_as_independent(answers: Any) -> None:
    first = {"accuracy": 0.5, "low": 0.4, "high": 0.6, "n": 100, "answers": {0: {"a": 1.0}}}
    second = first | {"accuracy": 0.9, "low": 0.8, "high": 1.0, "answers": answers}
    change = difference(first, second)
    assert change.is_clear and (change.lost, change.won) == (None, None)
    assert change.mean == pytest.approx(0.4)
