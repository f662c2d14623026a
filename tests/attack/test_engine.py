"""The batched engine against a slow reference; limits of searches; attacks on questions."""

import json
import math
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.attack.conftest import OPTIONS, TEXT, attack_prompt, rugged, rugged_rows
from tests.oracles.attack import attack_slowly
from tests.oracles.scoring import score_naively

from robustok import RobustokError
from robustok.attack import (
    Attack,
    AttackSettings,
    Prompt,
    TargetLikelihood,
    as_objective,
    attack,
    attack_items,
    attack_prompts,
    search,
)
from robustok.attack.objectives import OBJECTIVES
from robustok.attack.search import SEARCHES, AttackedText, Scored, Trial
from robustok.scoring import score_many

PROMPTS = [Prompt(str(n), text) for n, text in enumerate(
    ("happen, glad", "glad rain", "happen rain", "straight garden", "half", "carry, baby up")
)]  # fmt: skip
SETTINGS = (
    {"steps": 4},
    {"distances": (1, 2, 4), "steps": 3},
    {"start": "uniform", "beam": 3, "max_neighbors": 7},
    {"restarts": 5, "max_neighbors": 9, "max_scored": 60},
    {"search": "random", "max_scored": 30},
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
    attacks = attack_prompts(vocab, PROMPTS, lambda _: objective, seed=seed, **changes)
    for prompt, found in zip(PROMPTS, attacks, strict=True):
        steps = attack_slowly(vocab, prompt.text, rugged, settings, seed, 0.995)
        assert [(s.ids.tolist(), s.score, s.n_scored) for s in found.steps] == steps
        assert found.success == (steps[-1][1] > 0.995)
        assert found.canonical_score == rugged(vocab.encode(prompt.text))


@pytest.mark.parametrize("changes", SETTINGS[:4])
def test_prompts_attacked_together_fare_as_alone(model, vocab, changes) -> None:
    def target(_: Prompt) -> TargetLikelihood:
        return TargetLikelihood(model, vocab, " rain", threshold=-6.0)

    together = attack_prompts(vocab, PROMPTS, target, seed=1, **changes)
    for prompt, found in zip(PROMPTS, together, strict=True):
        (alone,) = attack_prompts(vocab, [prompt], target, seed=1, **changes)
        assert plain(found) == plain(alone)


def test_the_batches_of_prompts_share_forward_passes(llama, vocab, monkeypatch) -> None:
    sizes: list[int] = []

    def spy(model: Any, requests: Any, **settings: Any) -> Any:
        sizes.append(len(requests))
        return score_many(model, requests, **settings)

    monkeypatch.setattr(search, "score_many", spy)
    attack_prompts(vocab, PROMPTS, lambda _: TargetLikelihood(llama, vocab, " up"), steps=1, seed=0)
    assert sizes == [len(PROMPTS)] * 2


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


@pytest.mark.parametrize(
    "changes",
    [{"restarts": 3, "beam": 3}, {"restarts": 3, "search": "beam"}, {"search": "random"}],
)
def test_no_search_exceeds_its_limit_or_leaves_the_text(vocab, changes) -> None:
    seen: list[bytes] = []

    def counted(rows: Any) -> np.ndarray:
        seen.extend(row.tobytes() for row in rows)
        return rugged_rows(rows)

    attack = attack_prompt(vocab, TEXT, as_objective(counted), max_scored=37, seed=1, **changes)
    assert len(seen) == len(set(seen)) == attack.n_scored <= 37
    assert vocab.decode(attack.ids) == TEXT
    assert attack.score == max(rugged(np.frombuffer(row, np.int32)) for row in seen)


def held_bytes(rows: Any) -> int:
    """Size of the memory that arrays keep alive."""
    roots = {}
    for root in rows:
        while isinstance(root.base, np.ndarray):
            root = root.base
        roots[id(root)] = root.nbytes
    return sum(roots.values())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"distances": (2, 4), "max_neighbors": 9, "beam": 2},
        {"search": "random", "max_scored": 40},
    ],
)
def test_neither_a_search_nor_its_result_keeps_neighborhoods(vocab, changes) -> None:
    text = AttackedText(vocab, Prompt("a", TEXT * 3), as_objective(rugged_rows))
    settings = AttackSettings(**changes)
    driver = Trial(text, settings, 0).drive()
    rows = next(driver)
    while True:
        if len(rows) in (settings.max_neighbors, settings.beam):
            assert held_bytes(rows) == sum(row.nbytes for row in rows)
        scores = rugged_rows(rows)
        try:
            rows = driver.send(Scored(scores, scores > np.inf, np.zeros((len(rows), 0))))
        except StopIteration as stop:
            attack = stop.value
            break
    assert len(attack.steps) > 1
    for step in attack.steps:
        assert held_bytes([step.ids]) == step.ids.nbytes


def test_restarts_end_where_a_short_text_has_nothing_new(vocab, monkeypatch) -> None:
    ascents: list[int] = []
    ascend = search.ascend
    monkeypatch.setattr(search, "ascend", lambda *args: (ascents.append(1), ascend(*args))[1])
    count = vocab.lattice("up").count()
    attack = attack_prompt(vocab, "up", as_objective(rugged_rows), restarts=10_000, seed=0)
    assert attack.n_scored == count
    assert len(ascents) <= 30


def test_an_excluded_candidate_is_never_the_result(vocab) -> None:
    start = vocab.encode(TEXT)
    only = as_objective(lambda rows: [0.0 if np.array_equal(r, start) else -math.inf for r in rows])
    for name in ("greedy", "beam"):
        attack = attack_prompt(vocab, TEXT, only, search=name, max_scored=50, seed=0)
        assert attack.ids.tolist() == start.tolist()


def test_the_result_is_consistent(model, vocab, items) -> None:
    result = attack_items(model, vocab, items, seed=0)
    assert result.accuracy <= result.start_accuracy
    assert result.accuracy == np.mean([not a.success for a in result.attacks]) < 1
    assert result.n_scored == sum(a.n_scored for a in result.attacks)
    assert result.tokens_computed < result.tokens_naive
    for item, a in zip(items, result.attacks, strict=True):
        assert a.margins == sorted(a.margins)
        assert len(a.moves) == len(a.margins) <= 11
        assert a.success == (int(np.argmax(a.log_probs)) != item.label)
        assert (a.reached_at is not None) == a.success
        assert vocab.decode_bytes(a.ids) == item.question.encode()
        for step, margin in zip(a.moves, a.margins, strict=True):
            z = np.exp(step.log_probs)
            assert margin == pytest.approx(np.delete(z, item.label).max() - z[item.label])
            assert vocab.decode(step.ids) == item.question
        assert a.moves[0].ids.tolist() == a.start.tolist()
        assert a.moves[-1].ids.tolist() == a.ids.tolist()
    assert len(pickle.loads(pickle.dumps(result)).attacks) == len(items)
    assert json.loads(json.dumps(result.table()))[0]["key"] == items[0].key
    accuracies = [row["accuracy"] for row in result.curve()]
    assert accuracies == sorted(accuracies, reverse=True)
    assert (accuracies[0], accuracies[-1]) == (result.start_accuracy, result.accuracy)


def test_context_and_suffix_surround_the_text_and_options_may_be_ids(model, vocab) -> None:
    prefix, suffix = [0, 5], vocab.encode(" Answer:").tolist()
    options = [vocab.encode(o).tolist() for o in OPTIONS]
    result = attack(model, vocab, "up, baby?", options, 0, prefix=prefix, suffix=suffix, steps=2)
    for step in (result.steps[0], result.steps[-1]):
        wanted = score_naively(model, [[*step.ids.tolist(), *suffix]], options, prefix)
        assert step.log_probs == pytest.approx(wanted[0], abs=1e-4)
    assert vocab.decode_bytes(result.ids) == b"up, baby?"


@pytest.mark.parametrize("changes", [{"max_neighbors": 1}, {"search": "random"}])
def test_an_attack_that_stops_when_wrong_has_the_same_accuracy(
    model, vocab, items, changes, monkeypatch
) -> None:
    monkeypatch.setattr(search, "_CHUNK", 1)
    changes = {**changes, "max_scored": 4}
    start = attack_items(model, vocab, items, seed=0, steps=0).attacks
    answers = [int(np.argmax(a.log_probs)) for a in start]
    right = [replace(item, label=one) for item, one in zip(items, answers, strict=True)]
    whole = attack_items(model, vocab, right, seed=0, **changes)
    short = attack_items(model, vocab, right, seed=0, stop_when_wrong=True, **changes)
    assert 0 < whole.accuracy < 1
    assert short.n_scored < whole.n_scored
    for a, b in zip(whole.attacks, short.attacks, strict=True):
        assert (a.success, a.reached_at) == (b.success, b.reached_at)
        np.testing.assert_allclose(b.margins, a.margins[: len(b.margins)], atol=1e-5)
        assert b.success or b.n_scored == a.n_scored


@pytest.mark.parametrize("seed", [-1, np.int64(3)])
def test_any_integer_is_a_seed(llama, vocab, items, seed: Any) -> None:
    result, again = (
        attack_items(llama, vocab, items[:2], steps=1, max_neighbors=3, seed=seed) for _ in range(2)
    )
    assert json.loads(json.dumps(result.table()))[0]["seed"] == seed
    assert again.table() == result.table()
