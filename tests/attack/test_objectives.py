"""Objectives give the numbers of a loop over candidates; settings, and what is no attack."""

from typing import Any

import numpy as np
import pytest
from tests.attack.conftest import OPTIONS, TEXT, attack_prompt
from tests.oracles.models import tiny_model
from tests.oracles.scoring import score_naively

from robustok import Ragged, RobustokError, Vocabulary
from robustok.attack import (
    AttackSettings,
    LogOdds,
    Margin,
    NamedObjective,
    ObjectiveSettings,
    Prompt,
    TargetLikelihood,
    as_objective,
    attack,
    attack_prompts,
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
    assert target.max_length == 255
    result = attack_prompt(vocab, TEXT, target, seed=0, steps=2)
    assert result.overflowed > 0
    assert len(result.ids) <= len(canonical)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "adversarial(distances=(2), start=canonical, steps=10)"),
        (
            {"distances": (2, 4), "start": "uniform-k(alpha=0.5)", "objective": "log-probability"},
            "adversarial(distances=(2, 4), start=uniform-k(alpha=0.5), steps=10, "
            "objective=log-probability)",
        ),
        (
            {"search": "random", "max_scored": 7},
            "adversarial(distances=(2), start=canonical, steps=10, search=random, max_scored=7)",
        ),
        (
            {"beam": 2, "restarts": 3, "max_neighbors": 9, "steps": 0},
            "adversarial(distances=(2), start=canonical, steps=0, max_neighbors=9, beam=2, "
            "restarts=3)",
        ),
        (
            {"stop_when_wrong": True},
            "adversarial(distances=(2), start=canonical, steps=10, stop_when_wrong=True)",
        ),
    ],
)
def test_strings_are_read_back(settings: dict[str, Any], text: str) -> None:
    assert str(AttackSettings(**settings)) == text
    assert AttackSettings.parse(text) == AttackSettings(**settings)


def test_the_search_beam_is_the_greedy_one_that_keeps_four() -> None:
    beam = AttackSettings.parse("adversarial(distances=(2, 4), steps=10, search=beam)")
    assert beam == AttackSettings(distances=(2, 4), beam=4)
    assert AttackSettings.parse("adversarial(search=beam, beam=2)") == AttackSettings(beam=2)
    assert AttackSettings.parse("adversarial") == AttackSettings()


def attacked(model: Any, vocab: Vocabulary, **settings: Any) -> None:
    attack(model, vocab, TEXT, **{"options": OPTIONS, "label": 1} | settings)


def searched(vocab: Vocabulary, *prompts: Prompt, **settings: Any) -> None:
    longest = as_objective(lambda rows: rows.lengths, name="length")
    attack_prompts(vocab, prompts, lambda _: longest, seed=0, **settings)


def read(text: str) -> Any:
    """A call that reads the string form of an attack."""
    return lambda m, v: AttackSettings.parse(text)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (read("uniform"), "cannot read the attack 'uniform': write adversarial"),
        (read("adversarial(stepps=1)"), "did you mean 'steps'"),
        (read("adversarial(steps=few)"), "whole number"),
        (read("adversarial(steps=)"), "whole number"),
        (read("adversarial(stop_when_wrong=1)"), "give True or False"),
        (read("adversarial(search=random)"), "max_scored"),
        (read("adversarial(search=random, max_scored=9, steps=3)"), "leave steps out"),
        (read("adversarial(search=random, max_scored=9, second_ids=True)"), "leave second_ids out"),
        (read("adversarial(distances=(2, x))"), r"give whole numbers, as \(2, 4\)"),
        (read("adversarial(distances=())"), r"give whole numbers, as \(2, 4\)"),
        (read("adversarial(steps=2, steps=3)"), "give steps once"),
        (read("adversarial(steps)"), "write each parameter as name=value"),
        (read("adversarial(start=5)"), "give a word"),
        (read("adversarial(distances=(2)"), "parentheses do not match"),
        (lambda m, v: attacked(m, v, stepps=1), "did you mean 'steps'"),
        (lambda m, v: attacked(m, v, objective="probabilty"), "did you mean 'probability'"),
        (lambda m, v: attacked(m, v, search="gredy"), "did you mean 'greedy'"),
        (lambda m, v: attacked(m, v, distances=()), "whole numbers"),
        (lambda m, v: attacked(m, v, beam=0), "at least 1"),
        (lambda m, v: attacked(m, v, max_neighbors=0), "at least 1"),
        (lambda m, v: attacked(m, v, steps=-1), "at least 0"),
        (lambda m, v: attacked(m, v, start="unifrom"), "uniform"),
        (lambda m, v: attacked(m, v, label=3), "label must be from 0 to 2"),
        (lambda m, v: attacked(m, v, label=True), "label must be an integer"),
        (lambda m, v: attacked(m, v, options=["", " up"]), "no tokens"),
        (lambda m, v: attacked(m, v, options=[" up"]), "at least two options"),
        (lambda m, v: attacked(m, v, options="ab"), "options: give a list"),
        (lambda m, v: searched(v), "no prompts"),
        (lambda m, v: searched(v, Prompt("a", "")), "text is empty"),
        (lambda m, v: searched(v, Prompt("a", "x"), Prompt("a", "y")), "have the key 'a'"),
        (lambda m, v: searched(v, Prompt("a", "x"), search="random"), "max_scored"),
        (lambda m, v: TargetLikelihood(m, v, ""), "has no tokens"),
        (lambda m, v: LogOdds(m, v, [" up"], []), "needs an opening to avoid"),
        (lambda m, v: LogOdds(m, v, [" up"], [" up"]), "begins with the tokens of"),
        (lambda m, v: ObjectiveSettings("guard", flag_probability=1.0), "flag_probability is 1.0"),
    ],
)
def test_a_mistake_is_one_line(llama, vocab, call, message: str) -> None:
    with pytest.raises(RobustokError, match=message) as error:
        call(llama, vocab)
    assert "\n" not in str(error.value)
