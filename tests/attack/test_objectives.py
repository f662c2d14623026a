"""Every objective gives the numbers of a loop that scores one candidate at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.attack.conftest import OPTIONS, TEXT, attack_prompt
from tests.oracles.models import tiny_model
from tests.oracles.scoring import score_naively

from robustok import Ragged, RobustokError, Vocabulary
from robustok.attack import (
    Margin,
    NamedObjective,
    ObjectiveSettings,
    Prompt,
    TargetLikelihood,
)

PREFIX, SUFFIX = [5, 9, 11], [7, 4]


@pytest.fixture(scope="module")
def rows(vocab: Vocabulary) -> Ragged:
    return Ragged.from_rows(list(vocab.lattice(TEXT).enumerate(limit=25)))


def lengths(rows: Ragged, prompt: Any, model: Any, vocab: Vocabulary) -> np.ndarray:
    """An objective of one's own."""
    return -rows.lengths


def naive(model: Any, vocab: Vocabulary, rows: Ragged, continuations: list[str]) -> np.ndarray:
    questions = [[*row.tolist(), *SUFFIX] for row in rows]
    return score_naively(model, questions, [vocab.encode(c) for c in continuations], PREFIX)


def test_target_likelihood_is_the_log_probability_of_the_response(model, vocab, rows) -> None:
    objective = TargetLikelihood(model, vocab, " glad rain", prefix=PREFIX, suffix=SUFFIX)
    wanted = naive(model, vocab, rows, [" glad rain"])[:, 0]
    assert objective(rows) == pytest.approx(wanted, abs=2e-4)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (ObjectiveSettings("refusal", threshold=2.0), "threshold"),
        (ObjectiveSettings("guard", target=" rain"), "target"),
        (ObjectiveSettings("margin", unwanted=("unsafe",)), "unwanted"),
        (ObjectiveSettings(f"{__name__}:lengths", flag_probability=0.2), "flag_probability"),
    ],
)
def test_a_setting_that_the_objective_does_not_read_is_refused(model, vocab, settings, name):
    with pytest.raises(RobustokError, match=f"does not read {name}:"):
        NamedObjective(model, vocab, settings)


@pytest.mark.parametrize("scale", ["probability", "log-probability"])
def test_the_margin_is_of_the_best_wrong_option(model, vocab, rows, scale: str) -> None:
    objective = Margin(model, vocab, OPTIONS, 1, scale=scale, prefix=PREFIX, suffix=SUFFIX)
    z = naive(model, vocab, rows, OPTIONS)
    z = np.exp(z) if scale == "probability" else z
    wanted = np.maximum(z[:, 0], z[:, 2]) - z[:, 1]
    assert objective(rows) == pytest.approx(wanted, abs=2e-4)
    assert objective.threshold == 0


def named(model: Any, vocab: Vocabulary, name: str, **settings: Any) -> Any:
    """The objective of a prompt, by its name."""
    objective = NamedObjective(
        model, vocab, ObjectiveSettings(name, **settings), prefix=PREFIX, suffix=SUFFIX
    )
    return objective(Prompt("a", TEXT))


def test_probabilities_that_underflow_are_warned_of(model, vocab) -> None:
    margin = Margin(model, vocab, OPTIONS, 0)
    far = np.full((2, len(OPTIONS)), -800.0)
    with pytest.warns(UserWarning, match="give shorter options, or the objective log-probability"):
        assert margin.read(far).tolist() == [0.0, 0.0]
    far[:, 1] = -700.0
    assert (margin.read(far) > 0).all()  # and no warning, which would be an error here


def test_refusals_are_summed_and_compared_with_answers(model, vocab, rows) -> None:
    refusals, answers = [" up", " half rain"], [" glad", " baby carry"]
    z = np.exp(naive(model, vocab, rows, [*answers, *refusals]))
    against = named(model, vocab, "refusal", wanted=tuple(answers), unwanted=tuple(refusals))
    wanted = np.log(z[:, :2].sum(1)) - np.log(z[:, 2:].sum(1))
    assert against(rows) == pytest.approx(wanted, abs=2e-4)
    alone = named(model, vocab, "refusal", unwanted=tuple(refusals))
    total = z[:, 2:].sum(1)
    assert alone(rows) == pytest.approx(np.log((1 - total) / total), abs=2e-4)


def test_a_guard_passes_below_its_threshold(model, vocab, rows) -> None:
    guard = named(model, vocab, "guard", wanted=(" up",), unwanted=(" rain",), flag_probability=0.2)
    z = np.exp(naive(model, vocab, rows, [" up", " rain"]))
    unsafe = z[:, 1] / z.sum(1)
    assert ((guard(rows) > guard.threshold) == (unsafe < 0.2)).all()
    assert guard(rows) == pytest.approx(np.log(z[:, 0] / z[:, 1]), abs=2e-4)


def test_a_prompt_longer_than_the_context_is_one_line(vocab) -> None:
    model = tiny_model("gpt2", vocab.size)  # 256 positions
    target = TargetLikelihood(model, vocab, " up", prefix=[5] * 100, suffix=[6] * 50)
    with pytest.raises(RobustokError, match=r"the prompt has \d+ tokens, .* leaves 105 to it"):
        attack_prompt(vocab, "happen, glad " * 60, target, seed=0)
    with pytest.raises(RobustokError, match="alone fill the model's 256 positions"):
        TargetLikelihood(model, vocab, " up", prefix=[5] * 256)


def test_candidates_longer_than_the_context_are_left_out(vocab) -> None:
    model = tiny_model("gpt2", vocab.size)
    canonical = vocab.encode(TEXT)
    target = TargetLikelihood(model, vocab, " up", prefix=[5] * (255 - len(canonical)))
    assert target.max_length == len(canonical)
    result = attack_prompt(vocab, TEXT, target, seed=0, steps=2)
    assert result.overflowed > 0
    assert len(result.ids) <= len(canonical)
