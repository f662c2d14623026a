"""n-best lists: equal to the sorted probabilities of all tokenizations."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer, models

import robustok as rt
from robustok.analysis import most_probable
from robustok.errors import RobustokError
from robustok.models import train_tokenizer

TEXT = "the revolution of the others"
VOCAB = rt.Vocabulary.load(train_tokenizer([TEXT, "there on lute revo"] * 8, 280))
SCORES = [("<unk>", 0.0), ("a", -2.0), ("b", -2.5), ("ab", -3.0), ("ba", -4.0), ("aba", -4.5)]
UNIGRAM = rt.Vocabulary.load(Tokenizer(models.Unigram(SCORES, 0, False)))


@pytest.mark.parametrize(
    ("spec", "vocab", "text"),
    [
        ("unigram", UNIGRAM, "abaababb"),
        ("unigram(temperature=3)", UNIGRAM, "abaababb"),
        ("grampa(temperature=3)", VOCAB, "the others"),
        ("grampa(min_length=2)", VOCAB, "the others"),
        ("maxmatch-dropout(p=0.3)", VOCAB, "the others"),
        ("stochastok-uniform(alpha=0.5)", VOCAB, "the"),
        ("mix(0.5 canonical, 0.5 uniform)", VOCAB, "the"),
    ],
)
def test_the_best_are_the_most_probable_of_all(spec, vocab, text):
    scheme = rt.sampler(spec, vocab)
    every = sorted((scheme.log_prob(ids) for ids in vocab.lattice(text).enumerate()), reverse=True)
    best = most_probable(scheme, text, 7)
    expected = [log_prob for log_prob in every if log_prob > -np.inf][:7]
    np.testing.assert_allclose([log_prob for _, log_prob in best], expected, atol=1e-9)
    assert len({tuple(ids) for ids, _ in best}) == len(best)
    for ids, log_prob in best:
        assert scheme.log_prob(ids) == pytest.approx(log_prob, abs=1e-9)


@pytest.mark.parametrize("spec", ["uniform", "uniform-k(alpha=0.5)", "canonical", "characters"])
def test_equally_probable_ones_have_the_probability_of_the_scheme(spec):
    scheme = rt.sampler(spec, VOCAB)
    best = most_probable(scheme, TEXT, 5)
    assert len(best) == (1 if scheme.spec in ("canonical", "characters") else 5)
    for ids, log_prob in best:
        assert VOCAB.decode(ids) == TEXT
        assert scheme.log_prob(ids) == pytest.approx(log_prob, abs=1e-9)


def test_a_long_text_has_more_tokenizations_than_can_be_listed():
    text = TEXT * 40
    best = most_probable(rt.sampler("grampa(temperature=2)", VOCAB), text, 3)
    assert [VOCAB.decode(ids) for ids, _ in best] == [text] * 3
    with pytest.raises(RobustokError, match="give a shorter text"):
        most_probable(rt.sampler("stochastok-uniform", VOCAB), text, 3)
    with pytest.raises(RobustokError, match="no exact log_prob"):
        most_probable(rt.sampler("stochastok", VOCAB), "the", 3)
    assert [len(ids) for ids, _ in most_probable(rt.sampler("uniform", VOCAB), "", 3)] == [0]


def test_unknown_characters_stay_where_they_are():
    best = most_probable(rt.sampler("unigram", UNIGRAM), "abzab", 4)
    assert all(0 in ids for ids, _ in best) and len(best) == 4
    assert best[0][0].tolist() == [3, 0, 3]
