"""Perplexity against the model's own loss, and whole sentences against naive scores."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.oracles.scoring import score_naively
from tests.oracles.scripts import script

from robustok import Ragged, sampler
from robustok.evaluation import evaluate, perplexity
from robustok.evaluation.intervals import ratio_of_sums
from robustok.evaluation.questions import item_key
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
