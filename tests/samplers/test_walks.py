"""`grampa`, `unigram` and `maxmatch-dropout` follow their laws."""

from dataclasses import replace
from math import isclose

import numpy as np
import pytest
from tests.oracles import sentencepiece, walks
from tests.oracles.chi_square import DRAWS, assert_distribution, assert_follows
from tests.oracles.vocabulary import ENGLISH, GAPPY, toy

import robustok as rt

SCORES = {i: -1.0 - 0.7 * i % 3 for i in range(12)}
SCORED = rt.Vocabulary(replace(ENGLISH.data, scores=SCORES))
TEXTS = [(ENGLISH, "abcab d"), (ENGLISH, "cabcc ab"), (GAPPY, "abcddab")]


@pytest.mark.parametrize(("vocab", "text"), TEXTS)
@pytest.mark.parametrize(("temperature", "least"), [(1, 1), (3, 1), (0.5, 1), (2, 2), (1, 3)])
def test_grampa(vocab: rt.Vocabulary, text: str, temperature: float, least: int) -> None:
    distribution = walks.grampa(vocab, text.encode(), temperature, least)
    assert_follows(rt.Grampa(vocab, temperature=temperature, min_length=least), text, distribution)


def test_grampa_passes_over_tokens_after_which_no_token_stands() -> None:
    vocab = toy([b"x", b"xab", b"abb", b"ab", b"by"])
    for text, paths in (("xabb", {(0, 2)}), ("xabby", {(0, 3, 4), (1, 4)})):
        for least in (1, 2, 3):
            distribution = walks.grampa(vocab, text.encode(), 1, least)
            assert distribution.keys() <= paths
            scheme = rt.Grampa(vocab, min_length=least)
            assert_distribution(
                scheme.sample_batch([[*max(paths)]], seed=7, draws=DRAWS), distribution
            )
            for path in paths:
                p = distribution.get(path, 0.0)
                assert isclose(np.exp(scheme.log_prob(path)), p, rel_tol=1e-9)


@pytest.mark.parametrize(("vocab", "text"), TEXTS)
@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_maxmatch_dropout(vocab: rt.Vocabulary, text: str, p: float) -> None:
    assert_follows(
        rt.MaxMatchDropout(vocab, p=p), text, walks.maxmatch_dropout(vocab, text.encode(), p)
    )


@pytest.mark.parametrize("text", ["abcab d", "cabcc ab"])
@pytest.mark.parametrize("temperature", [0.3, 1, 5, 1e6])
def test_unigram(text: str, temperature: float) -> None:
    distribution = walks.unigram(SCORED, text.encode(), SCORES, temperature)
    assert_follows(rt.Unigram(SCORED, temperature=temperature), text, distribution)


def test_unigram_at_no_temperature_is_the_best_segmentation() -> None:
    text = "abcab d" * 20
    cold = rt.Unigram(SCORED, temperature=1e-4)
    rows = cold.sample_batch([text], seed=0, draws=20)
    scores = {sum(round(SCORES[i], 6) for i in row.tolist()) for row in rows}
    assert len({round(x, 3) for x in scores}) == 1
    warm = rt.Unigram(SCORED, temperature=5).sample(text, seed=1)
    assert sum(SCORES[i] for i in warm.tolist()) < max(scores)


def test_unigram_is_sentencepiece_sampling() -> None:
    processor = sentencepiece.trained(vocab_size=320, byte_fallback=True)
    vocab = rt.Vocabulary.load(processor)
    assert vocab.data.family == "sentencepiece Unigram"
    text = vocab.decode_bytes(vocab.encode("bananas"))
    scored = {vocab.tokens[i] for i in vocab.data.ordinary if i not in vocab.data.byte_fallback}
    scores = {
        i: s if i not in vocab.data.byte_fallback else -1e4 if vocab.tokens[i] in scored else -1e3
        for i, s in (vocab.data.scores or {}).items()
    }
    distribution = walks.unigram(vocab, text, scores, 2.0)
    assert_distribution(sentencepiece.draws(processor, "bananas", 0.5, DRAWS // 2), distribution)
    scheme = rt.Unigram(vocab, temperature=2)
    assert_distribution(scheme.sample_batch(["bananas"], seed=2, draws=DRAWS // 2), distribution)
    row = scheme.sample("banana é 日", seed=1)
    assert vocab.decode_bytes(row) == " banana é 日".encode()
    spelled = [i for i in row.tolist() if i in vocab.data.byte_fallback]
    assert len(spelled) == 5  # bytes for the two unknown characters and for nothing else


def test_unigram_needs_scores() -> None:
    with pytest.raises(rt.RobustokError, match="needs the token scores"):
        rt.Unigram(ENGLISH)


def test_a_walk_through_a_long_word() -> None:
    """Longer than what is cached."""
    vocab = toy([b"a", b"aa"])
    distribution = walks.maxmatch_dropout(vocab, b"a" * 6, 0.5)
    rows = rt.MaxMatchDropout(vocab, p=0.5).sample_batch([[0] * 60], seed=11, draws=400)
    firsts = [tuple(row[:3].tolist()) for row in rows]
    starts: dict[tuple[int, ...], float] = {}
    for path, p in distribution.items():
        starts[path[:3]] = starts.get(path[:3], 0.0) + p
    assert_distribution(firsts, starts)
    assert all(vocab.decode_bytes(row) == b"a" * 60 for row in rows)
