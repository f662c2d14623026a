"""What holds of every search: limits, starts, ends; test_engine compares each with a slow loop."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.attack.conftest import TEXT, rugged, rugged_rows

from robustok import RobustokError
from robustok.attack import (
    Prompt,
    as_objective,
    attack_prompt,
    attack_prompts,
    search,
)


@pytest.mark.parametrize("name", ["greedy", "random", "annealing"])
def test_no_search_exceeds_its_limit_or_leaves_the_text(vocab, name: str) -> None:
    seen: list[bytes] = []

    def counted(rows: Any) -> np.ndarray:
        seen.extend(row.tobytes() for row in rows)
        return rugged_rows(rows)

    attack = attack_prompt(
        vocab, TEXT, as_objective(counted), search=name, max_scored=37, restarts=3, beam=3, seed=1
    )
    assert len(seen) == len(set(seen)) == attack.n_scored <= 37
    assert vocab.decode(attack.ids) == TEXT
    assert attack.score == max(rugged(np.frombuffer(row, np.int32)) for row in seen)


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
    for name in ("greedy", "annealing"):
        attack = attack_prompt(vocab, TEXT, only, search=name, max_scored=50, seed=0)
        assert attack.ids.tolist() == start.tolist()


def test_errors_of_prompts_are_one_line(vocab) -> None:
    objective = as_objective(rugged_rows)
    for call, message in (
        (lambda: attack_prompt(vocab, "", objective, seed=0), "text is empty"),
        (lambda: attack_prompts(vocab, [], lambda _: objective, seed=0), "no prompts"),
        (lambda: attack_prompts(vocab, [Prompt("a", "x"), Prompt("a", "y")],
                                lambda _: objective, seed=0), "have the key 'a'"),
        (lambda: attack_prompt(vocab, "a", objective, search="annealing", seed=0), "max_scored"),
    ):  # fmt: skip
        with pytest.raises(RobustokError, match=message) as error:
            call()
        assert "\n" not in str(error.value)
