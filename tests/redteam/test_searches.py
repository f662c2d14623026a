"""Searches against brute force and naive loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.redteam.conftest import TEXT

from robustok import RobustokError, Vocabulary
from robustok.redteam import (
    Prompt,
    TargetLikelihood,
    as_objective,
    attack_prompt,
    attack_prompts,
    success_curve,
)


def all_rows(vocab: Vocabulary) -> list[np.ndarray]:
    return list(vocab.lattice(TEXT).enumerate())


def hashed(rows: Any) -> np.ndarray:
    """A rugged objective that costs nothing: a number from the ids."""
    return np.array([np.sin(float((row.astype(float) * np.arange(7, 7 + len(row))).sum()))
                     for row in rows])  # fmt: skip


def best_of(vocab: Vocabulary, objective: Any) -> float:
    return float(objective(all_rows(vocab)).max())


def naive_greedy(vocab: Vocabulary, objective: Any, steps: int) -> tuple[list[int], float]:
    current = vocab.encode(TEXT)
    score = float(objective([current])[0])
    for _ in range(steps):
        near = list(vocab.lattice(TEXT).neighbors(current, distance=2))
        scores = objective(near)
        if scores.max() <= score:
            break
        current, score = near[int(scores.argmax())], float(scores.max())
    return current.tolist(), score


def test_greedy_follows_the_best_neighbor_of_a_target(model, vocab) -> None:
    objective = TargetLikelihood(model, vocab, " glad rain")
    attack = attack_prompt(vocab, TEXT, objective, steps=4, seed=0)

    def alone(rows: Any) -> np.ndarray:
        from robustok import Ragged

        return objective(Ragged.from_rows(list(rows)))

    ids, score = naive_greedy(vocab, alone, 4)
    assert attack.ids == ids
    assert attack.score == pytest.approx(score)
    assert attack.success is None


def test_greedy_on_a_rugged_objective_is_the_naive_loop(vocab) -> None:
    attack = attack_prompt(vocab, TEXT, as_objective(hashed), steps=10, seed=0)
    assert (attack.ids, attack.score) == naive_greedy(vocab, hashed, 10)


def test_a_step_over_all_distances_and_annealing_reach_the_best_of_all(vocab) -> None:
    best = best_of(vocab, hashed)
    size = len(all_rows(vocab))
    assert size > 50
    beam = attack_prompt(vocab, TEXT, as_objective(hashed), distances=range(1, 14), seed=0)
    annealed = attack_prompt(
        vocab, TEXT, as_objective(hashed), search="annealing", beam=8, max_scored=size * 8, seed=0
    )
    greedy = attack_prompt(vocab, TEXT, as_objective(hashed), seed=0)
    assert beam.score == pytest.approx(best)
    assert annealed.score >= greedy.score


@pytest.mark.parametrize("search", ["greedy", "random", "annealing"])
def test_no_search_exceeds_its_limit_or_leaves_the_text(vocab, search: str) -> None:
    seen: list[bytes] = []

    def counted(rows: Any) -> np.ndarray:
        seen.extend(row.tobytes() for row in rows)
        return hashed(rows)

    attack = attack_prompt(
        vocab, TEXT, as_objective(counted), search=search, max_scored=37, restarts=3, beam=3, seed=1
    )
    assert len(seen) == len(set(seen)) == attack.n_scored <= 37
    assert vocab.decode(attack.ids) == TEXT
    assert attack.score == pytest.approx(max(hashed([np.frombuffer(s, np.int32)])[0] for s in seen))


def test_random_search_keeps_the_best_of_its_draws(vocab) -> None:
    from robustok.evaluation.questions import item_key
    from robustok.samplers import sampler

    attack = attack_prompt(
        vocab, TEXT, as_objective(hashed), search="random", max_scored=30, seed=5
    )
    keys = np.array([item_key(TEXT)], np.int64)
    draws = sampler("uniform", vocab).sample_batch([TEXT], seed=5, draws=30, keys=keys, epoch=1)
    first = list({row.tobytes(): row for row in [vocab.encode(TEXT), *draws]}.values())[:30]
    assert attack.score == pytest.approx(float(hashed(first).max()))


def test_annealing_accepts_worse_neighbors_and_greedy_does_not(vocab) -> None:
    # Every neighbor of the start is worse; the best is behind them.
    start = vocab.encode(TEXT)
    near = {row.tobytes() for row in vocab.lattice(TEXT).neighbors(start, distance=2)}

    def valley(rows: Any) -> np.ndarray:
        return np.array([0.0 if row.tobytes() == start.tobytes() else
                         -1.0 if row.tobytes() in near else 5.0 for row in rows])  # fmt: skip

    objective = as_objective(valley, threshold=1)
    assert not attack_prompt(vocab, TEXT, objective, seed=0).success
    annealed = attack_prompt(
        vocab, TEXT, objective, search="annealing", beam=4, max_scored=200, seed=0
    )
    assert annealed.success
    assert annealed.reached_at is not None


def test_restarts_begin_where_no_step_leads(vocab) -> None:
    start = vocab.encode(TEXT).tobytes()
    objective = as_objective(lambda rows: [-len(r) if r.tobytes() != start else 0 for r in rows])
    alone = attack_prompt(vocab, TEXT, objective, seed=0)
    again = attack_prompt(vocab, TEXT, objective, seed=0, restarts=2)
    assert again.n_scored > alone.n_scored


def test_restarts_end_where_a_short_text_has_nothing_new(vocab, monkeypatch) -> None:
    from robustok.redteam import searches

    ascents: list[int] = []
    ascend = searches.ascend
    monkeypatch.setattr(searches, "ascend", lambda *args: (ascents.append(1), ascend(*args))[1])
    count = vocab.lattice("up").count()
    attack = attack_prompt(vocab, "up", as_objective(hashed), restarts=10_000, seed=0)
    assert attack.n_scored == count
    assert len(ascents) <= 30


def test_an_excluded_candidate_is_never_the_result(vocab) -> None:
    start = vocab.encode(TEXT)
    only = as_objective(lambda rows: [0.0 if np.array_equal(r, start) else -math.inf for r in rows])
    for search in ("greedy", "annealing"):
        attack = attack_prompt(vocab, TEXT, only, search=search, max_scored=50, seed=0)
        assert attack.ids == start.tolist()


def test_equal_seeds_give_equal_results(vocab) -> None:
    settings: dict[str, Any] = {"search": "annealing", "beam": 3, "max_scored": 60}
    one, two = (attack_prompt(vocab, TEXT, as_objective(hashed), seed=4, **settings)
                for _ in range(2))  # fmt: skip
    assert one.ids == two.ids
    assert one.steps == two.steps
    other = attack_prompt(vocab, TEXT, as_objective(hashed), seed=5, **settings)
    assert other.steps != one.steps


def test_the_curve_counts_prompts_broken_by_a_number(vocab) -> None:
    prompts = [Prompt(str(n), text) for n, text in enumerate(("happen", "glad rain", "straight"))]
    objective = as_objective(hashed, threshold=0.9)
    attacks = attack_prompts(vocab, prompts, lambda _: objective, seed=0)
    last = max(a.n_scored for a in attacks)
    rows = success_curve(attacks, [1, last])
    assert rows[1]["success"] == pytest.approx(np.mean([bool(a.success) for a in attacks]))
    assert rows[0]["success"] <= rows[1]["success"]


def test_errors_of_prompts_are_one_line(vocab) -> None:
    objective = as_objective(hashed)
    for call, message in (
        (lambda: attack_prompt(vocab, "", objective, seed=0), "prompt is empty"),
        (lambda: attack_prompts(vocab, [], lambda _: objective, seed=0), "no prompts"),
        (lambda: attack_prompts(vocab, [Prompt("a", "x"), Prompt("a", "y")],
                                lambda _: objective, seed=0), "have the key 'a'"),
        (lambda: attack_prompt(vocab, "a", objective, search="annealing", seed=0), "max_scored"),
        (lambda: success_curve([attack_prompt(vocab, "a", objective, seed=0)], [1]), "threshold"),
    ):  # fmt: skip
        with pytest.raises(RobustokError, match=message) as error:
            call()
        assert "\n" not in str(error.value)
