from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from tests.evaluation.conftest import draws_of
from tests.oracles.lattice import splits
from tests.oracles.models import tiny_model
from tests.oracles.scoring import score_naively

from robustok import Ragged, RobustokError
from robustok.attack import attack_items, greedy_answer
from robustok.evaluation import (
    embedding_distances,
    evaluate,
    lipschitz_bound,
    lipschitz_ratios,
    perplexity,
    solved_examples,
)
from robustok.evaluation.embeddings import last_states
from robustok.models import small_model
from robustok.tasks import Item

NO_IDS: Any = [5.5]


@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize("prefix", [None, [0, 7, 9]])
def test_accuracy_is_that_of_scoring_every_draw_alone(
    model, vocab, items, prefix, ensemble
) -> None:
    settings: Any = {"draws": 3, "seed": 5, "prefix": prefix, "ensemble": ensemble}
    result = evaluate(model, vocab, items, "uniform", **settings)
    right = []
    for item, outcome in zip(items, result.outcomes, strict=True):
        options = [vocab.encode(c).tolist() for c in item.choices]
        wanted = score_naively(model, list(draws_of(vocab, item, 3, 5)), options, prefix or ())
        if ensemble:  # one answer, by the mean probability
            wanted = np.log(np.exp(wanted).mean(axis=0))[None]
        assert list(outcome.predictions) == wanted.argmax(axis=1).tolist()
        others = np.delete(wanted, item.label, axis=1).max(axis=1)
        assert outcome.margins == pytest.approx(others - wanted[:, item.label], abs=1e-3)
        right.append((wanted.argmax(axis=1) == item.label).mean())
    assert result.accuracy == pytest.approx(np.mean(right))
    assert result.low < result.accuracy < result.high
    assert (result.n, result.draws, result.seed, result.eval_scheme) == (12, 3, 5, "uniform")
    assert result.mode == "tree"
    assert 0 < result.tokens_computed < result.tokens_naive


def test_the_strength_is_that_of_the_draws_that_are_scored(model, vocab, items) -> None:
    n_splits, tokens = 0, 0
    for item in items:
        canonical = vocab.encode(item.question)
        for row in draws_of(vocab, item, 3, 5):
            n_splits += splits(vocab, canonical, row)
            tokens += len(canonical)
    strength = evaluate(model, vocab, items, "uniform", draws=3, seed=5).strength
    assert strength["splits"] == pytest.approx(n_splits / tokens)
    assert strength["length_ratio"] > 1
    none = evaluate(model, vocab, items, "canonical", seed=0).strength
    assert none == {"splits": 0.0, "distance": 0.0, "length_ratio": 1.0}


def test_the_strength_of_sentences_is_measured_over_both(model, vocab) -> None:
    pair = Item("pair", "", ("the cat sits here", "the cat sit here"), 0)
    result = evaluate(model, vocab, [pair], "uniform-k(k=2)", draws=4, seed=0, prefix=[0])
    tokens = sum(len(vocab.encode(sentence)) for sentence in pair.choices)
    assert result.strength["distance"] == pytest.approx((2 + 2) / tokens)


def test_a_draw_depends_on_seed_and_key_alone(model, vocab, items) -> None:
    calls = []
    whole = evaluate(
        model, vocab, items, "uniform", draws=3, seed=5, progress=lambda *d: calls.append(d)
    )
    assert calls[-1] == (12, 12)
    assert pickle.loads(pickle.dumps(whole)) == whole
    assert [row["correct"] for row in whole.table()] == [o.correct for o in whole.outcomes]
    part = evaluate(model, vocab, items[::-3], "uniform", draws=3, seed=5)
    of_key = {o.item.key: o for o in whole.outcomes}
    for outcome in part.outcomes:
        assert outcome.margins == pytest.approx(of_key[outcome.item.key].margins, abs=1e-4)
    other = evaluate(model, vocab, items, "uniform", draws=3, seed=6)
    assert other.outcomes[0].margins != pytest.approx(whole.outcomes[0].margins, abs=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, v, i: evaluate(m, v, [], "uniform", seed=0), "no items"),
        (lambda m, v, i: evaluate(m, v, i, "uniform", draws=0, seed=0), "1 or more"),
        (lambda m, v, i: evaluate(m, v, [i[0], i[0]], "uniform", seed=0), "have the key"),
        (lambda m, v, i: solved_examples(v, "glad", seed=0), "give a list"),  # type: ignore
        (lambda m, v, i: perplexity(m, v, "which word", "canonical", seed=0), "list"),
        (lambda m, v, i: perplexity(m, v, b"which", "canonical", seed=0), "list"),  # type: ignore
        (lambda m, v, i: perplexity(m, v, [""], "canonical", seed=0), "no text"),
        (
            lambda m, v, i: perplexity(
                small_model(20, seed=0), v, ["which"], "canonical", seed=0, start=0
            ),
            "own vocabulary",
        ),
        (lambda m, v, i: embedding_distances(m, v, [], seed=0), "no words"),
        (lambda m, v, i: embedding_distances(m, v, "rain", seed=0), "words: give a list"),
        (lambda m, v, i: embedding_distances(m, v, ["rain"], draws=0, seed=0), "1 or more"),
        (
            lambda m, v, i: embedding_distances(m, v, ["rain"], sentence="no place", seed=0),
            "{word} once",
        ),
        (lambda m, v, i: embedding_distances(m, v, ["r"], seed=0).table(), "longer words"),
        (lambda m, v, i: last_states(m, Ragged.from_rows([[1], []])), "at least one id"),
        (lambda m, v, i: last_states(m, Ragged.from_rows([])), "at least one"),
        (lambda m, v, i: last_states(m, Ragged.from_rows([[v.size]])), "own"),
        (lambda m, v, i: lipschitz_ratios(m, v, i, sampler="canonical", seed=0), "stronger"),
        (lambda m, v, i: lipschitz_ratios(m, v, i, attacked=[[5]], seed=0), "1 attacks for 12"),
        (lambda m, v, i: lipschitz_ratios(m, v, i, draws=0, seed=0), "1 or more"),
        (lambda m, v, i: evaluate(m, v, i, "uniform", seed=0, prefix=NO_IDS), "integers"),
        (lambda m, v, i: solved_examples(v, i[:1], seed=0, start=NO_IDS), "integers"),
        (lambda m, v, i: last_states(m, Ragged.from_rows([[1]]), prefix=NO_IDS), "integers"),
        (lambda m, v, i: lipschitz_ratios(m, v, i[:1], seed=0, attacked=[NO_IDS]), "integers"),
        (lambda m, v, i: attack_items(m, v, i, seed=0, prefix=NO_IDS), "integers"),
        (lambda m, v, i: attack_items(m, v, i, seed=0, suffix=NO_IDS), "integers"),
        (lambda m, v, i: greedy_answer(m, v, NO_IDS), "integers"),
        (lambda m, v, i: lipschitz_bound(tiny_model("bloom")), "other names"),
        (lambda m, v, i: lipschitz_bound(m).c1(0, tokens=0), "tokens=0"),
        (lambda m, v, i: lipschitz_bound(m).log10_gamma(0), "from 1 on"),
    ],
)
def test_a_mistake_is_one_line(model, vocab, items, call, message) -> None:
    with pytest.raises(RobustokError, match=message) as error:
        call(model, vocab, items)
    assert "\n" not in str(error.value)


def test_what_is_asked_is_not_drawn_as_it_stands_among_the_examples(vocab, items) -> None:
    perturbed = solved_examples(vocab, items[:3], "uniform", seed=0, start=[0])
    assert perturbed[0] == 0
    question = draws_of(vocab, items[0], 1, 0)[0]
    assert question.tobytes() not in perturbed.tobytes()


def test_consistency_counts_questions_with_one_answer_in_all_draws(model, vocab, items) -> None:
    result = evaluate(model, vocab, items, "uniform", draws=4, seed=5)
    same = [len(set(one.predictions)) == 1 for one in result.outcomes]
    assert 0 < sum(same) < len(same)
    assert result.consistency == pytest.approx(np.mean(same))
    assert f"consistency {result.consistency:.3f}" in str(result)
    for one_answer in (
        evaluate(model, vocab, items, "canonical", draws=4, seed=5),
        evaluate(model, vocab, items, "uniform", draws=4, seed=5, ensemble=True),
    ):
        assert one_answer.consistency is None
        assert all(len(o.predictions) == 1 for o in one_answer.outcomes)
        assert "consistency" not in str(one_answer)
