"""The batched engine against a slow reference; batches, and things by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.attack.conftest import TEXT, rugged, rugged_rows
from tests.oracles.attack import attack_slowly

from robustok import RobustokError
from robustok.attack import (
    Attack,
    AttackSettings,
    Prompt,
    TargetLikelihood,
    as_objective,
    attack_prompt,
    attack_prompts,
    run_suite,
    search,
)
from robustok.attack.objectives import OBJECTIVES
from robustok.attack.search import SEARCHES

PROMPTS = [Prompt(str(n), text) for n, text in enumerate(
    ("happen, glad", "glad rain", "happen rain", "straight garden", "half", "carry, baby up")
)]  # fmt: skip
SETTINGS = (
    {"steps": 4},
    {"distances": (1, 2, 4), "steps": 3},
    {"start": "uniform", "beam": 3, "max_neighbors": 7},
    {"restarts": 5, "max_neighbors": 9, "max_scored": 60},
    {"search": "random", "max_scored": 30},
    {"search": "annealing", "beam": 4, "max_scored": 50},
)


def plain(attack: Attack) -> dict[str, Any]:
    """The record without its rounding."""
    row = attack.as_row()
    for step in row["steps"]:
        step["score"] = round(step["score"], 3)
        step["log_probs"] = np.round(step["log_probs"], 3).tolist()
    return row | {name: round(row[name], 3) for name in ("score", "canonical_score")}


@pytest.mark.parametrize("changes", SETTINGS)
@pytest.mark.parametrize("seed", [0, 5])
def test_every_search_is_the_slow_one_step_by_step(vocab, changes, seed) -> None:
    settings = AttackSettings(**changes)
    objective = as_objective(rugged_rows, threshold=0.995)
    attacks = attack_prompts(vocab, PROMPTS, lambda _: objective, settings=settings, seed=seed)
    for prompt, attack in zip(PROMPTS, attacks, strict=True):
        steps = attack_slowly(vocab, prompt.text, rugged, settings, seed, 0.995)
        assert [(s.ids.tolist(), s.score, s.n_scored) for s in attack.steps] == steps
        assert attack.success == (steps[-1][1] > 0.995)
        assert attack.canonical_score == rugged(vocab.encode(prompt.text))


@pytest.mark.parametrize("changes", SETTINGS[:4])
def test_prompts_attacked_together_fare_as_alone(model, vocab, changes) -> None:
    def target(_: Prompt) -> TargetLikelihood:
        return TargetLikelihood(model, vocab, " rain", threshold=-6.0)

    together = attack_prompts(vocab, PROMPTS, target, seed=1, **changes)
    for prompt, attack in zip(PROMPTS, together, strict=True):
        (alone,) = attack_prompts(vocab, [prompt], target, seed=1, **changes)
        assert plain(attack) == plain(alone)


def test_the_batches_of_prompts_share_forward_passes(llama, vocab, monkeypatch) -> None:
    sizes: list[int] = []
    score_many = search.score_many

    def spy(model: Any, requests: Any, **settings: Any) -> Any:
        sizes.append(len(requests))
        return score_many(model, requests, **settings)

    monkeypatch.setattr(search, "score_many", spy)
    attack_prompts(vocab, PROMPTS, lambda _: TargetLikelihood(llama, vocab, " up"), steps=1, seed=0)
    assert sizes == [len(PROMPTS)] * 2


def test_a_suite_takes_any_iterable_of_prompts(vocab) -> None:
    objective = as_objective(rugged_rows, name="rugged", threshold=0.999)
    arguments: dict[str, Any] = {"max_scored": 20, "seed": 0}
    whole = run_suite(vocab, PROMPTS, lambda _: objective, **arguments)
    listed = run_suite(vocab, (p for p in PROMPTS), lambda _: objective, **arguments)
    for name, attacks in whole.parts.items():
        assert [a.as_row() for a in listed.parts[name]] == [a.as_row() for a in attacks]
    with pytest.raises(RobustokError, match="prompts: give a list"):
        run_suite(vocab, None, lambda _: objective, **arguments)  # type: ignore[arg-type]


def finest(trial: Any) -> Any:
    """A search of a user: the start, and the tokenization by characters."""
    yield [trial.text.start(trial.settings.start, trial.seed)]
    yield trial.text.draw("characters", trial.seed, 1, 0)


def test_a_search_of_a_user_has_the_name_of_its_function(vocab) -> None:
    longest = as_objective(lambda rows: rows.lengths, name="length")
    found = attack_prompt(vocab, TEXT, longest, search=f"{__name__}:finest", seed=0)
    assert found.score == len(TEXT)
    assert AttackSettings.parse(found.settings).search == f"{__name__}:finest"
    within = as_objective(lambda rows: np.where(rows.lengths < 8, rows.lengths, -np.inf))
    assert attack_prompt(vocab, TEXT, within, distances=(1, 2), seed=0).score == 7


def test_a_name_is_registered_once() -> None:
    with pytest.raises(RobustokError, match="'greedy' is already registered"):
        SEARCHES.register("greedy")(finest)
    assert set(OBJECTIVES) >= {"margin", "target", "refusal", "guard"}
