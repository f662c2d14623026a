from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.attack.conftest import OPTIONS
from tests.oracles.scoring import score_naively

from robustok.attack import (
    attack,
    attack_items,
    search,
)


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
