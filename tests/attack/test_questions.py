from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.attack.conftest import OPTIONS
from tests.oracles.scoring import score_naively

from robustok import RobustokError
from robustok.attack import (
    attack,
    attack_items,
    certify_items,
    search,
)
from robustok.attack.search import choose

LONG = "Which baby starts with glad rain: happen? Answer:"


def test_items_attacked_together_fare_as_alone(model, vocab, items) -> None:
    settings: dict[str, Any] = {"seed": 3, "steps": 2, "start": "uniform"}
    together = attack_items(model, vocab, items[:4], **settings)
    for item, result in zip(items, together.attacks, strict=False):
        (alone,) = attack_items(model, vocab, [item], **settings).attacks
        assert result.ids.tolist() == alone.ids.tolist()
        assert result.start.tolist() == alone.start.tolist()
        assert result.margins == pytest.approx(alone.margins, abs=1e-5)
        assert result.n_scored == alone.n_scored
    assert together.accuracy == np.mean([not a.success for a in together.attacks])
    assert together.n_scored == sum(a.n_scored for a in together.attacks)
    assert together.tokens_computed < together.tokens_naive


def test_the_result_is_consistent(model, vocab, items) -> None:
    result = attack_items(model, vocab, items, seed=0)
    assert result.accuracy <= result.start_accuracy
    assert result.accuracy < 1
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
    assert [row["n_scored"] for row in result.curve([1, 5])] == [1, 5]


def test_context_and_suffix_surround_the_text_and_options_may_be_ids(model, vocab) -> None:
    prefix, suffix = [0, 5], vocab.encode(" Answer:").tolist()
    options = [vocab.encode(o).tolist() for o in OPTIONS]
    result = attack(model, vocab, "up, baby?", options, 0, prefix=prefix, suffix=suffix, steps=2)
    for step in (result.steps[0], result.steps[-1]):
        wanted = score_naively(model, [[*step.ids.tolist(), *suffix]], options, prefix)
        assert step.log_probs == pytest.approx(wanted[0], abs=1e-4)
    assert vocab.decode_bytes(result.ids) == b"up, baby?"


def test_the_capped_choice_is_uniform(vocab) -> None:
    around = vocab.lattice(LONG).neighbors(vocab.encode(LONG), distance=2)
    known = [vocab.encode(LONG)]
    counts = dict.fromkeys((row.tobytes() for row in around), 0)
    rounds = 3000
    for seed in range(rounds):
        rng = np.random.default_rng(seed)
        chosen = choose([around], known, 4, None, rng)
        assert len({row.tobytes() for row in chosen}) == 4
        for row in chosen:
            counts[row.tobytes()] += 1
    expected = rounds * 4 / len(around)
    chi2 = sum((c - expected) ** 2 / expected for c in counts.values())
    assert chi2 < len(around) + 4 * np.sqrt(2 * len(around))


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


def test_random_search_scores_as_many_as_it_may(model, vocab, items) -> None:
    settings = {"search": "random", "max_scored": 30, "seed": 0}
    control = attack_items(model, vocab, items, **settings)
    assert {a.n_scored for a in control.attacks} == {30}
    for item, a in zip(items, control.attacks, strict=True):
        assert vocab.decode_bytes(a.ids) == item.question.encode()
        assert (a.reached_at is None) or 1 <= a.reached_at <= a.n_scored
        assert a.margins == sorted(a.margins)
    alone = attack_items(model, vocab, items[:1], **settings)
    assert alone.attacks[0].ids.tolist() == control.attacks[0].ids.tolist()


@pytest.mark.parametrize("seed", [-1, np.int64(3)])
def test_any_integer_is_a_seed(llama, vocab, items, seed: Any) -> None:
    result, again = (
        attack_items(llama, vocab, items[:2], steps=1, max_neighbors=3, seed=seed) for _ in range(2)
    )
    certified = certify_items(llama, vocab, items[:2], distances=(2,), limit=1, draws=5, seed=seed)
    assert json.loads(json.dumps(result.table()))[0]["seed"] == certified.seed == seed
    assert again.table() == result.table()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "probabilty"}, "did you mean 'probability'"),
        ({"search": "gredy"}, "did you mean 'greedy'"),
        ({"distances": ()}, "whole numbers"),
        ({"beam": 0}, "at least 1"),
        ({"max_neighbors": 0}, "at least 1"),
        ({"steps": -1}, "at least 0"),
        ({"start": "unifrom"}, "uniform"),
        ({"label": 3}, "label must be from 0 to 2"),
        ({"options": ["", " up"]}, "no tokens"),
        ({"options": "ab"}, "options: give a list"),
    ],
)
def test_mistakes_are_errors(llama, vocab, settings, message: str) -> None:
    with pytest.raises(RobustokError, match=message):
        attack(llama, vocab, LONG, **{"options": OPTIONS, "label": 1} | settings)
