"""Perplexity against the model's own loss, the marginal against summing every tokenization."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.oracles.scoring import score_naively

from robustok import Ragged, RobustokError, Sampler, sampler
from robustok.evaluation import evaluate, marginal, perplexity
from robustok.evaluation.questions import item_key
from robustok.models import small_model
from robustok.scoring.engine import text_losses
from robustok.tasks import Item

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


@pytest.mark.parametrize("texts", ["which word", b"which word", [""], ["a", ""]])
def test_texts_that_cannot_be_scored_are_one_line(model, vocab, texts) -> None:
    message = "empty: leave it out" if isinstance(texts, list) else "list"
    with pytest.raises(RobustokError, match=message):
        marginal(model, vocab, texts, seed=0)
    if texts != ["a", ""]:
        with pytest.raises(RobustokError, match=r"no text|list"):
            perplexity(model, vocab, texts, "canonical", seed=0)
    with pytest.raises(RobustokError, match="own vocabulary"):
        perplexity(small_model(20, seed=0), vocab, ["which"], "canonical", seed=0, start=0)


def test_without_a_draw_that_is_not_canonical_the_error_is_infinite(model, vocab) -> None:
    text = next(t for t in ("re", "st", "wh", "wo", "ap") if vocab.lattice(t).count() == 2)
    results = [marginal(model, vocab, [text], draws=1, seed=seed)[0] for seed in range(8)]
    assert {(one.error, one.effective) for one in results} == {(math.inf, 0.0), (math.inf, 1.0)}
    (certain,) = marginal(model, vocab, ["q"], draws=1, seed=0)
    assert (certain.tokenizations, certain.error) == (1, 0.0)


def summed(model, vocab, text: str) -> tuple[float, float]:
    """log p over every tokenization, and of the canonical one."""
    rows = [row.tolist() for row in vocab.lattice(text).enumerate()]
    logs = score_naively(model, [[0]], rows, ())[0]
    canonical = rows.index(vocab.encode(text).tolist())
    return float(np.logaddexp.reduce(logs)), float(logs[canonical])


def test_the_marginal_holds_the_draws_of_one_text(model, vocab, monkeypatch) -> None:
    drawn: list[int] = []
    sample_batch = Sampler.sample_batch

    def counted(self, texts, **arguments):
        rows = sample_batch(self, texts, **arguments)
        drawn.append(len(rows))
        return rows

    monkeypatch.setattr(Sampler, "sample_batch", counted)
    marginal(model, vocab, TEXTS, draws=5, seed=0)
    assert drawn == [5] * len(TEXTS)


@pytest.mark.parametrize("text", ["which", " words", "street"])
def test_the_marginal_is_the_sum_over_all_tokenizations(model, vocab, text) -> None:
    """Within 5 of its own standard errors, which 2,000 draws make small."""
    (result,) = marginal(model, vocab, [text], draws=2000, seed=0)
    total, canonical = summed(model, vocab, text)
    assert result.tokenizations == vocab.lattice(text).count()
    assert result.log_canonical == pytest.approx(canonical, abs=1e-4)
    assert abs(result.log_marginal - total) < max(5 * result.error, 1e-4)
    assert result.error < 0.1
    assert 1 <= result.effective <= 2000


def test_its_errors_are_as_large_as_it_says(model, vocab) -> None:
    """The estimate of the probability is unbiased: 60 of 16 draws average within 4 errors."""
    total, _ = summed(model, vocab, "which")
    results = [marginal(model, vocab, ["which"], draws=16, seed=s)[0] for s in range(60)]
    shares = np.exp([one.log_marginal - total for one in results])
    assert abs(shares.mean() - 1) < 4 * shares.std() / math.sqrt(len(shares))
    reported = np.median([one.error for one in results])
    assert 0.5 < reported / shares.std() < 2


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


def test_the_marginal_of_a_long_text_is_a_number(model, vocab) -> None:
    """The weights of its draws underflow relative to the canonical tokenization."""
    (result,) = marginal(model, vocab, ["straight garden happen differ " * 25], draws=4, seed=0)
    assert result.log_marginal >= result.log_canonical
    assert 0 <= result.error < math.inf
    assert 1 <= result.effective <= 4
