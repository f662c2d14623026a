"""BPE-dropout follows each of its three originals."""

from __future__ import annotations

import json
import multiprocessing
import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.oracles import dropout
from tests.oracles.chi_square import assert_distribution
from tests.oracles.data import TOKENIZERS, hard_texts, real
from tests.oracles.draws import DRAWS
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import robustok as rt
from robustok.tokenizer.data import byte_alphabet

RULES = ["provilkov", "hf", "sentencepiece"]
LIST = ["a b", "b c", "ab c", "a bc", "c a", "ca b", "abc a", "Ġ a", "Ġ ab", "bc a", "abc abc"]


def tokenizer(ignore_merges: bool = False) -> Tokenizer:
    """A byte-level BPE whose merges overlap, tie and make one token in two ways."""
    pairs = [(merge.split()[0], merge.split()[1]) for merge in LIST]
    names = [*byte_alphabet(), *dict.fromkeys(a + b for a, b in pairs)]
    vocab = {name: i for i, name in enumerate(names)}
    built = Tokenizer(models.BPE(vocab=vocab, merges=pairs, ignore_merges=ignore_merges))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    return built


def merges_of(vocab: rt.Vocabulary) -> dropout.Merges:
    ids = {t: i for i, t in enumerate(vocab.tokens)}
    pairs = [] if vocab.data.merges is None else vocab.data.merges.tolist()
    return {(a, b): (r, ids[vocab.tokens[a] + vocab.tokens[b]]) for r, (a, b) in enumerate(pairs)}


TOY = rt.Vocabulary.load(tokenizer())


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("p", [0.1, 0.4, 0.8])
@pytest.mark.parametrize("text", ["abc", "abcab", "cabca", "bcabca"])
def test_draws_follow_the_distribution(rule: str, p: float, text: str) -> None:
    symbols = tuple(TOY.tokens.index(bytes([b])) for b in text.encode())
    distribution = getattr(dropout, rule)(merges_of(TOY), symbols, p)
    rows = rt.BpeDropout(TOY, p=p, rule=rule).sample_batch([text], seed=3, draws=DRAWS)
    assert_distribution(rows, distribution)


@pytest.mark.parametrize("p", [0.2, 0.6])
def test_the_oracle_and_tokenizers_agree(p: float) -> None:
    """Draws of `tokenizers` itself against the exact law that ours are held to.

    They have no seed: the test fails once in 100,000 runs on its own account.
    """
    source = tokenizer()
    source.model.dropout = p
    rows = [source.encode("abcabca").ids for _ in range(DRAWS // 2)]
    symbols = tuple(TOY.tokens.index(bytes([b])) for b in b"abcabca")
    distribution = dropout.hf(merges_of(TOY), symbols, float(np.float32(p)))
    assert_distribution(rows, distribution)
    ours = rt.BpeDropout(TOY, p=p, rule="hf").sample_batch(["abcabca"], seed=1, draws=DRAWS // 2)
    assert_distribution(ours, distribution)


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_the_sentencepiece_rule_is_sentencepiece(p: float) -> None:
    spm = pytest.importorskip("sentencepiece")
    import io

    words = ["banana", "bandana", "cabana", "canal", "anagram", "nab", "lab", "cab"]
    rng = np.random.default_rng(0)
    lines = (" ".join(rng.choice(words, 8)) for _ in range(300))
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=60, model_type="bpe",
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    processor = spm.SentencePieceProcessor(model_proto=model.getvalue())
    vocab = rt.Vocabulary.load(processor)
    scheme = rt.BpeDropout(vocab, p=p, rule="sentencepiece")
    left, right, result = _merges(vocab)
    merges = {
        (int(a), int(b)): (r, int(c))
        for r, (a, b, c) in enumerate(zip(left, right, result, strict=True))
    }
    symbols = tuple(processor.piece_to_id(c) for c in "▁banana")
    distribution = dropout.sentencepiece(merges, symbols, p)
    spm.set_random_generator_seed(5)
    theirs = [
        processor.encode("banana", enable_sampling=True, alpha=p, nbest_size=-1)
        for _ in range(DRAWS // 2)
    ]
    assert_distribution(theirs, distribution)
    assert_distribution(scheme.sample_batch(["banana"], seed=2, draws=DRAWS // 2), distribution)


def _merges(vocab: rt.Vocabulary) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    from robustok.samplers.bpe_dropout import _merge_list

    return _merge_list(vocab)


@pytest.mark.parametrize("rule", RULES)
def test_the_ends_of_the_scale(rule: str) -> None:
    ids = TOY.encode("abc abcabca")
    assert np.array_equal(rt.BpeDropout(TOY, p=0, rule=rule).sample(ids, seed=1), ids)
    assert np.array_equal(rt.BpeDropout(TOY, p=1e-15, rule=rule).sample(ids, seed=1), ids)
    assert len(rt.BpeDropout(TOY, p=1, rule=rule).sample(ids, seed=1)) == len("abc abcabca")


def test_ignore_merges_holds_at_zero_only() -> None:
    """A word that is a token stays one at p = 0; with dropout `tokenizers` merges all the same."""
    record = json.loads(tokenizer(ignore_merges=True).to_str())
    record["model"]["vocab"]["bbb"] = 1 + max(record["model"]["vocab"].values())
    vocab = rt.Vocabulary.load(Tokenizer.from_str(json.dumps(record)))
    assert len(vocab.encode("bbb")) == 1
    assert len(rt.BpeDropout(vocab, p=0).sample("bbb", seed=0)) == 1
    assert len(rt.BpeDropout(vocab, p=1e-15).sample("bbb", seed=0)) == 3


def test_merges_stay_within_pre_tokens() -> None:
    for row in rt.BpeDropout(TOY, p=0.3).sample_batch(["abc abc"], seed=0, draws=50):
        ends = np.cumsum([len(TOY.tokens[i]) for i in row])
        assert 3 in ends


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_dropout_of_almost_zero_is_that_of_tokenizers(name: str) -> None:
    vocab = real(name)
    texts = hard_texts()
    canonical = vocab.encode_batch(texts)
    rows = rt.BpeDropout(vocab, p=1e-15, rule="hf").sample_batch(canonical, seed=1)
    source = Tokenizer.from_str(vocab.data.source.to_str())
    source.model.dropout = 1e-30
    source.encode_special_tokens = True
    added = set(source.get_added_tokens_decoder())
    for text, drawn, ids in zip(texts, rows, canonical, strict=True):
        if isinstance(text, str) and added.isdisjoint(ids.tolist()):
            assert source.encode(text, add_special_tokens=False).ids == drawn.tolist()


@pytest.mark.parametrize("name", ["gpt2", "llama3"])
def test_a_real_word_follows_tokenizers(name: str) -> None:
    vocab = real(name)
    ids = {t: i for i, t in enumerate(vocab.tokens)}
    symbols = tuple(ids[bytes([b])] for b in b" cats")
    distribution = dropout.hf(merges_of(vocab), symbols, 0.25)
    assert_distribution(
        rt.BpeDropout(vocab, p=0.25, rule="hf").sample_batch([" cats"], seed=4, draws=DRAWS),
        distribution,
    )


def test_tiktoken_draws_by_its_ranks() -> None:
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([b]): b for b in range(256)} | {b"ab": 256, b"bc": 257, b"abc": 258}
    pattern = r"\p{L}+|[^\p{L}]+"
    vocab = rt.Vocabulary.load(
        tiktoken.Encoding("toy", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    )
    merges = {(97, 98): (0, 256), (98, 99): (1, 257), (256, 99): (2, 258), (97, 257): (3, 258)}
    distribution = dropout.sentencepiece(merges, tuple(b"abcab"), 0.4)
    scheme = rt.BpeDropout(vocab, p=0.4, rule="sentencepiece")
    assert_distribution(scheme.sample_batch(["abcab"], seed=1, draws=DRAWS // 2), distribution)


@pytest.mark.parametrize("rule", RULES)
def test_a_merge_that_makes_no_token_of_text_is_left_out(rule: str) -> None:
    data = TOY.data
    result_id = TOY.tokens.index(b"abc")
    vocab = rt.Vocabulary(replace(data, ordinary=data.ordinary - {result_id}))
    row = [TOY.tokens.index(letter) for letter in (b"a", b"b", b"c")]
    drawn = rt.BpeDropout(vocab, p=0.3, rule=rule).sample_batch([row], seed=0, draws=200)
    assert not (drawn.values == result_id).any()
    assert all(vocab.decode_bytes(ids) == b"abc" for ids in drawn)


@pytest.mark.parametrize("rule", RULES)
def test_a_token_without_bytes_stays(rule: str) -> None:
    names = {**byte_alphabet(), "ab": 256, "": 257}
    vocab = rt.Vocabulary.load(Tokenizer(models.BPE(names, [("a", "b")])))
    drawn = rt.BpeDropout(vocab, p=0.5, rule=rule).sample([257, 256, 257, 257, 256], seed=1)
    assert (drawn == 257).sum() == 3
    assert vocab.decode_bytes(drawn) == b"abab"


def test_more_ids_than_the_merge_table_holds_are_refused(monkeypatch) -> None:
    monkeypatch.setattr("robustok.samplers.bpe_dropout.BITS", 8)
    vocab = rt.Vocabulary.load(tokenizer())
    with pytest.raises(rt.RobustokError, match=r"merges are too many.* at most 256"):
        rt.BpeDropout(vocab, p=0.5).sample("abc", seed=0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_processes_fill_one_cache_of_outcomes() -> None:
    vocab = rt.Vocabulary.load(tokenizer())
    s: Any = rt.sampler("bpe-dropout(p=0.5)", vocab)
    s.sample("a", seed=0)
    outcomes = s._merges().outcomes
    assert not outcomes.any()
    drawing = multiprocessing.get_context("fork").Process(
        target=s.sample_batch, args=([b"abcabc"] * 50,), kwargs={"seed": 0}
    )
    drawing.start()
    drawing.join()
    assert drawing.exitcode == 0 and outcomes.any()
    fresh = rt.sampler("bpe-dropout(p=0.5)", rt.Vocabulary.load(tokenizer()))
    drawn, expected = (x.sample_batch([b"abcabc"] * 200, seed=1) for x in (s, fresh))
    assert np.array_equal(drawn.values, expected.values)
