"""Intervals against scipy and simulations; rows of command, report and cards compare alike."""

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import binomtest, multinomial, t
from tests.evaluation.conftest import evaluation_of

from robustok import RobustokError
from robustok.cli.evaluate import change_text
from robustok.evaluation import clustered, paired, wilson
from robustok.evaluation.comparison import Difference, Evaluation, clear_differences, difference
from robustok.evaluation.intervals import (
    LEVEL,
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
    [(7, 1, 50, (-0.270, 0.003, 0.055)), (12, 4, 200, (-0.087, 0.001, 0.059))],
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


def parts_of(values: np.ndarray) -> tuple[float, float]:
    """The variances of the mean from seeds and from both, by a table of analysis of variance."""
    seeds, n = values.shape
    of_seeds = sum((row.mean() - values.mean()) ** 2 for row in values) / (seeds - 1) / seeds
    squares = sum(
        (values[s, i] - values[s].mean() - values[:, i].mean() + values.mean()) ** 2
        for s in range(seeds)
        for i in range(n)
    )
    return of_seeds, squares / (seeds - 1) / seeds / n**2


def crossed(of_questions: float, of_both: float, of_seeds: float, n: int, seeds: int) -> Any:
    """The half-width by level."""

    def half_width(level: float) -> float:
        least, apart = (t.isf(level / 2, n - 1) ** 2 * of for of in
                        (of_questions, max(of_questions - of_both, 0)))  # fmt: skip
        return math.sqrt(max(least, apart + t.isf(level / 2, seeds - 1) ** 2 * of_seeds))

    return half_width


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("low", [0.4, 0.79])
def test_an_accuracy_over_seeds_is_wilsons_at_the_worth_of_all_parts(
    seeds: int, low: float
) -> None:
    rng = np.random.default_rng(seeds)
    answers = rng.binomial(3, rng.uniform(low, low + 0.2, (seeds, 1)), (seeds, 60)) / 3
    mean, *bounds = over_seeds(answers, draws=3)
    assert mean == pytest.approx(answers.mean())
    inner = (60 * mean + 1) / 62
    of_seeds, of_both = (part / inner / (1 - inner) for part in parts_of(answers))
    of_questions = 1 / effective_answers(answers.mean(0), 3 * seeds)
    worth = (t.ppf(0.975, np.inf) / crossed(of_questions, of_both, of_seeds, 60, seeds)(LEVEL)) ** 2
    assert bounds == pytest.approx(wilson(mean * worth, worth), abs=1e-9)


@settings(max_examples=60)
@given(st.integers(2, 8), st.integers(2, 80), st.integers(1, 10), st.integers(0, 10**6))
def test_a_difference_counts_what_seeds_and_questions_share_once(
    seeds: int, n: int, draws: int, stream: int
) -> None:
    rng = np.random.default_rng(stream)
    chances = rng.beta(1, 1, (2, 1, n)) * rng.uniform(0.3, 1, (2, seeds, 1))
    before, after = rng.binomial(draws, chances, (2, seeds, n)) / draws
    changes = after - before
    of_seeds, of_both = parts_of(changes)
    lost_and_won = np.append(changes.mean(0), [-1, 1])
    variance = lost_and_won.var() / (n + 2)
    half_width = crossed(variance, of_both, of_seeds, n, seeds)
    low, high, p = compare_answers(before, after)
    center = abs(lost_and_won.mean())
    if 1e-90 < p < 1:  # at the level p the interval ends at zero
        assert half_width(p) == pytest.approx(center, rel=1e-6)
    assert (low > 0 or high < 0) == (center > half_width(LEVEL))
    former = math.sqrt(sum(
        part * t.isf(LEVEL / 2, degrees) ** 2
        for part, degrees in ((variance, n - 1), (of_seeds, seeds - 1))
    ))  # fmt: skip
    assert half_width(LEVEL) <= former


def likeliest_variance(lost: int, won: int, n: int, delta: float) -> float:
    """Of the sum of changes of one draw where their mean is ``delta``: the likelihood's maximum."""
    same = n - lost - won

    def minus_log(chance: float) -> float:
        chances = (chance, chance - delta, 1 - 2 * chance + delta)
        return -sum(
            k * math.log(max(c, 1e-300)) for k, c in zip((won, lost, same), chances, strict=True)
        )

    ends = (max(delta, 0.0), (1 + delta) / 2)
    chance = minimize_scalar(minus_log, bounds=ends, method="bounded", options={"xatol": 1e-12}).x
    return n * (2 * chance - delta)


@pytest.mark.parametrize(
    ("lost", "won", "n"),
    [(7, 1, 50), (0, 0, 30), (0, 3, 30), (30, 0, 30), (40, 55, 200), (2, 0, 9)],
)
def test_a_bound_is_the_difference_that_the_score_test_just_rejects(
    lost: int, won: int, n: int
) -> None:
    change = np.repeat([-1.0, 1.0, 0.0], [lost, won, n - lost - won])[None]
    for level in (LEVEL, 0.1):
        low, high, _ = compare_answers(0 * change, change, level=level)
        assert low < (won - lost) / n < high or abs(won - lost) == n
        for bound in (low, high):
            if abs(bound) < 1:
                squares = max(lost + won + 2, likeliest_variance(lost, won, n, bound))
                variance = squares - (won - lost) ** 2 / (n + 2)
                distance = abs(won - lost - n * bound)
                assert distance == pytest.approx(
                    t.isf(level / 2, n - 1) * math.sqrt(variance), rel=1e-4
                )


@pytest.mark.parametrize("n", [20, 50])
@pytest.mark.parametrize("loss", [0.02, 0.1, 0.2])
def test_no_loss_larger_than_the_true_one_is_said_as_rarely_as_the_level_says(
    n: int, loss: float
) -> None:
    """Exact, of one draw: the 90% interval ends above the true loss in 5%, allowed are 5.5%."""
    for won in (0.0, 0.01, 0.05):
        false = 0.0
        for i in range(min(n, 30) + 1):
            for j in range(min(n - i, 12) + 1):
                chances = [loss + won, won, 1 - loss - 2 * won]
                chance = multinomial.pmf([i, j, n - i - j], n, chances)
                if chance > 1e-7:
                    change = np.repeat([-1.0, 1.0, 0.0], [i, j, n - i - j])[None]
                    false += chance * (compare_answers(0 * change, change, level=0.1)[0] > -loss)
        assert false <= 0.055


@pytest.mark.parametrize("seeds", [2, 3, 8])
def test_seeds_without_variance_have_an_interval_and_a_p(seeds: int) -> None:
    """Seeds that are identical, and questions that all change by as much."""
    one = np.repeat([-1.0, 1.0, 0.0], [2, 9, 40])[None]
    many = np.repeat(one, seeds, 0)
    assert compare_answers(0 * many, many) == pytest.approx(compare_answers(0 * one, one))
    certain = np.ones((seeds, 3000))
    low, _, p = compare_answers(0 * certain, certain)
    assert low < 1 and p > 0
    for rounding in (0.0, 1e-34):  # 0.3 - 0.1 and 0.2 - 0.0 differ by as much
        assert interval(0.2, [(rounding, seeds - 1)]) == (-math.inf, math.inf, 1.0)


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: clustered([]), "no items"),
        (lambda: clustered([1.0, 0.0], 0), "draws"),
        (lambda: wilson(3, 2), "no interval"),
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
