"""log_prob is the logarithm of the law that the chi-square tests hold the draws to."""

from __future__ import annotations

from math import exp, isclose, log

import numpy as np
import pytest
from tests.oracles import lattice, samplers
from tests.oracles.data import real
from tests.oracles.vocabulary import toy

import robustok as rt

ENGLISH = toy([bytes([b]) for b in b"abc d"] + [b"ab", b"bc", b"abc", b" d", b"cab", b" ab", b"cc"])
GAPPY = toy([b"a", b"b", b"c", b"d", b"abcd", b"bc", b"dd"])
SPECS = [
    "canonical", "uniform", "uniform-k(k=2)", "uniform-k(alpha=0.7)", "uniform-k(k=99)",
    "stochastok-uniform(alpha=0.3)", "stochastok-uniform(alpha=1)", "stochastok-uniform(alpha=3)",
    "stochastok-uniform(alpha=2, support=pairwise)",
]  # fmt: skip


def law(vocab: rt.Vocabulary, ids: tuple[int, ...], spec: str) -> samplers.Law:
    scheme = rt.sampler(spec, vocab)
    if isinstance(scheme, rt.UniformK):
        k = scheme.k if scheme.k is not None else int(np.ceil((scheme.alpha or 0) * len(ids)))
        return samplers.uniform_k(vocab, ids, k)
    if isinstance(scheme, rt.StochasTokUniform):
        return samplers.stochastok_uniform(vocab, ids, scheme.alpha, scheme.support)
    if isinstance(scheme, rt.Uniform):
        return samplers.uniform(vocab, ids)
    return samplers.uniform_k(vocab, ids, 0)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(("vocab", "text"), [(ENGLISH, "abcab d"), (GAPPY, "abcddab")])
def test_log_prob_is_the_law_on_and_off_its_support(vocab, text: str, spec: str) -> None:
    ids = tuple(vocab.encode(text).tolist())
    exact = law(vocab, ids, spec)
    scheme = rt.sampler(spec, vocab)
    total = 0.0
    for path in lattice.tokenizations(vocab, text.encode()):
        found = scheme.log_prob(path)
        p = exact.get(path)
        assert found == -np.inf if not p else isclose(found, log(p), rel_tol=1e-9, abs_tol=1e-9)
        total += exp(found)
    assert isclose(total, 1.0, rel_tol=1e-9)


def test_a_long_text_has_a_log_prob_too() -> None:
    vocab = real("gpt2")
    text = "Language models are trained on one tokenization and break on the rest. " * 60
    scheme = rt.UniformK(vocab, alpha=0.5)
    row = scheme.sample(text, seed=1)
    few = vocab.lattice(text[:355])
    assert -1e4 < scheme.log_prob(row) < -500
    exact = log(few.count(distance=40))
    assert isclose(few.log_count(distance=40), exact, rel_tol=1e-9)
    assert scheme.log_prob(vocab.encode(text)) == -np.inf


def test_a_scheme_without_one_says_so() -> None:
    with pytest.raises(rt.RobustokError, match="stochastok has no exact log_prob"):
        rt.StochasTok(ENGLISH, alpha=1).log_prob([0])
