"""The paired test, and its p where nothing differs."""

from __future__ import annotations

import numpy as np
import pytest

from robustok.errors import RobustokError
from robustok.evaluation import Evaluation, Outcome, paired
from robustok.evaluation.intervals import exact_mcnemar


def evaluation_of(answers: np.ndarray) -> Evaluation:
    """Answers [items, draws], right or wrong, as an evaluation."""
    outcomes = tuple(
        Outcome(str(i), "", 1, tuple(int(a) for a in row), (0.0,) * len(row))
        for i, row in enumerate(answers)
    )
    draws = answers.shape[1]
    return Evaluation(float(answers.mean()), 0, 1, len(outcomes), draws, "", 0, 0.0, outcomes,
                      "tree", 0, 0)  # fmt: skip


def test_single_draws_are_tested_exactly() -> None:
    first = evaluation_of(np.array([[1], [1], [1], [1], [0], [0]]))
    second = evaluation_of(np.array([[0], [0], [1], [1], [0], [1]]))
    result = paired(first, second)
    assert (result.lost, result.won, result.n) == (2, 1, 6)
    assert result.difference == pytest.approx(-1 / 6)
    assert result.p == pytest.approx(exact_mcnemar(2, 1))


def test_where_nothing_differs_p_is_uniform() -> None:
    """Shares of p below 0.05 and 0.5 over 1,000 tries: within 4 standard errors."""
    rng = np.random.default_rng(0)
    ps = []
    for _ in range(1000):
        skill = rng.uniform(size=(150, 1))
        first, second = (rng.uniform(size=(150, 4)) < skill for _ in range(2))
        ps.append(paired(evaluation_of(first), evaluation_of(second)).p)
    for level in (0.05, 0.5):
        share = float(np.mean(np.array(ps) < level))
        assert abs(share - level) < 4 * np.sqrt(level * (1 - level) / 1000)


def test_other_items_are_refused() -> None:
    with pytest.raises(RobustokError, match="different items"):
        paired(evaluation_of(np.ones((3, 1))), evaluation_of(np.ones((4, 1))))
