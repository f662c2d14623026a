"""Accuracy against scoring every draw alone, and perplexity against the model's own loss."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from tests.evaluation.conftest import draws_of
from tests.oracles.lattice import splits
from tests.oracles.models import tiny_model
from tests.oracles.scoring import score_naively
from tests.oracles.scripts import script

from robustok import Ragged, RobustokError, sampler
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
from robustok.evaluation.intervals import ratio_of_sums
from robustok.evaluation.questions import item_key
from robustok.models import small_model
from robustok.scoring.engine import text_losses
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


TEXTS = ["which word", "starts with s", "house, street or water? Answer: house"]


def loss_of(model, ids: list[int]) -> float:
    with torch.no_grad():
        return float(model(torch.tensor([[0, *ids]]), labels=torch.tensor([[0, *ids]])).loss)


def test_it_is_the_models_own_loss(model, vocab) -> None:
    result = perplexity(model, vocab, TEXTS, "canonical", seed=0)
    rows = vocab.encode_batch(TEXTS)
    nats = sum(loss_of(model, row.tolist()) * len(row) for row in rows)
    assert result.tokens == len(rows.values)
    assert math.log(result.perplexity) == pytest.approx(nats / result.tokens, rel=1e-5)
    assert result.bytes == sum(len(text.encode()) for text in TEXTS)
    assert result.bits_per_byte == pytest.approx(nats / math.log(2) / result.bytes, rel=1e-5)
    assert result.low < result.bits_per_byte < result.high
    bits = [loss_of(model, r.tolist()) * len(r) / math.log(2) for r in rows]
    wanted = ratio_of_sums(np.array(bits), np.array([len(text) for text in TEXTS], np.float64))
    assert (result.bits_per_byte, result.low, result.high) == pytest.approx(wanted, rel=1e-4)


def test_a_long_text_is_read_in_chunks_that_predict_each_id_once(model) -> None:
    ids = np.arange(1, 24, dtype=np.int32) % 200
    (loss,) = text_losses(model, Ragged.from_rows([ids]), max_length=8, start=0)
    whole = [0, *ids.tolist()]
    wanted = 0.0
    for begin in range(0, len(ids), 7):
        chunk = whole[begin : begin + 8]
        wanted -= score_naively(model, [chunk[:1]], [chunk[1:]], ())[0, 0]
    assert loss == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("tokens", [1, 20, 64])
@pytest.mark.parametrize("bound", ["tokens", "logits"])
def test_memory_of_a_pass_is_bounded(model, vocab, monkeypatch, tokens: int, bound: str) -> None:
    """No pass reads more, but one chunk is always read."""
    rows = vocab.encode_batch([*TEXTS, "a", "hello world, " * 9])
    most = 8192
    if bound == "tokens":
        most = tokens
    else:
        logits = tokens * model.get_input_embeddings().num_embeddings
        monkeypatch.setattr("robustok.scoring.engine._MOST_LOGITS", logits)
    # The modes of scoring are tested at these lengths before the passes are counted.
    text_losses(model, rows, max_length=16, start=0, max_batch_tokens=most)
    read: list[tuple[int, int]] = []
    forward = model.forward

    def record(*args, input_ids, **kwargs):
        read.append(tuple(input_ids.shape))
        return forward(*args, input_ids=input_ids, **kwargs)

    monkeypatch.setattr(model, "forward", record)
    losses = text_losses(model, rows, max_length=16, start=0, max_batch_tokens=most)
    monkeypatch.undo()
    assert all(count == 1 or count * length <= tokens for count, length in read)
    assert tokens < 64 or max(count for count, _ in read) > 1
    singly = [text_losses(model, Ragged.from_rows([r]), max_length=16, start=0)[0] for r in rows]
    assert losses == pytest.approx(singly, rel=1e-5)


def test_the_example_that_generates_by_a_mean_reads_separate_prompts(model, vocab) -> None:
    text, written = "the rest is there", []
    rows = sampler("uniform", vocab).sample_batch([text], seed=0, draws=4)
    with torch.inference_mode():
        for _ in range(6):
            prompts = [torch.tensor([[*row.tolist(), *written]]) for row in rows]
            logits = torch.cat([model(prompt).logits[:, -1] for prompt in prompts])
            written.append(int(logits.double().softmax(-1).mean(0).argmax()))
    generate = script("examples/many_tokenizations.py").generate
    assert generate(model, vocab, text, draws=4, seed=0, max_new_tokens=6) == written


def test_sentences_without_a_question_are_scored_whole(model, vocab) -> None:
    item = Item("a", "", ("which word starts", "word which starts"), 0)
    (outcome,) = evaluate(model, vocab, [item], "uniform", draws=4, seed=3).outcomes
    uniform = sampler("uniform", vocab)
    keys = np.array([item_key("a/0"), item_key("a/1")])
    rows = uniform.sample_batch(list(item.choices), seed=3, draws=4, keys=keys)
    for draw in range(4):
        good, bad = (
            score_naively(model, [[0]], [rows[c * 4 + draw].tolist()], ())[0, 0] for c in (0, 1)
        )
        assert outcome.margins[draw] == pytest.approx(bad - good, abs=1e-3)
