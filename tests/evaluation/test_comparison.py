"""One comparison has one test: rows of the command, of the report and of cards give the same."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.evaluation.conftest import evaluation_of

from robustok.cli.measuring import change_text
from robustok.evaluation.comparison import (
    Difference,
    Evaluation,
    clear_differences,
    difference,
    paired,
)
from robustok.evaluation.intervals import LEVEL, compare_answers
from robustok.report import Results


def report_row(evaluation: Evaluation) -> dict[str, Any]:
    """The row of results.jsonl of an evaluation, with the answers that a report reads."""
    return {
        "train_scheme": "canonical", "eval_scheme": evaluation.eval_scheme, "seed": 0,
        "accuracy": evaluation.accuracy, "low": 0.0, "high": 1.0, "n": evaluation.n,
        "draws": evaluation.draws,
        "answers": {row["key"]: row["correct"] for row in evaluation.table()},
    }  # fmt: skip


@settings(max_examples=60, derandomize=True, deadline=None)
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
