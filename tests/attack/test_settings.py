"""Attack settings and their string form, which results hold, and what is no attack."""

from __future__ import annotations

from typing import Any

import pytest
from tests.attack.conftest import OPTIONS, TEXT

from robustok import RobustokError, Vocabulary
from robustok.attack import (
    AttackSettings,
    LogOdds,
    ObjectiveSettings,
    Prompt,
    TargetLikelihood,
    as_objective,
    attack,
    attack_prompts,
)


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
