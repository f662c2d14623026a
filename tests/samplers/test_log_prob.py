"""log_prob of rows with special ids, with twins and of long texts; `test_laws` holds the others."""

from itertools import product
from math import comb, exp, isclose, log

import numpy as np
import pytest
from tests.oracles import lattice
from tests.oracles.chi_square import assert_distribution
from tests.oracles.data import real
from tests.oracles.samplers import stochastok_uniform
from tests.oracles.vocabulary import Greedy, toy
from tests.tokenizer.test_vocabulary import bpe
from tokenizers import Tokenizer
from tokenizers.normalizers import BertNormalizer

import robustok as rt
from robustok.tokenizer.data import TokenizerData

SPECS = [
    "canonical", "uniform", "uniform-k(k=2)", "uniform-k(alpha=0.7)", "uniform-k(k=99)",
    "stochastok-uniform(alpha=0.3)", "stochastok-uniform(alpha=1)", "stochastok-uniform(alpha=3)",
    "stochastok-uniform(alpha=2, support=pairwise)",
]  # fmt: skip


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


def test_a_long_token_with_few_segmentations_has_a_log_prob_under_pairwise_support() -> None:
    long = b"a" * 24
    vocab = toy([long, b"a" * 12, b"a" * 6])
    scheme = rt.sampler("stochastok-uniform(alpha=1, support=pairwise)", vocab)
    assert scheme.log_prob(scheme.sample(long, seed=0)) == 0.0  # one split has one segmentation
    many = toy([b"a" * n for n in range(1, 25)])
    scheme = rt.sampler("stochastok-uniform(alpha=1, support=pairwise)", many)
    with pytest.raises(rt.RobustokError, match="too many segmentations to list"):
        scheme.log_prob(scheme.sample(long, seed=0))


@pytest.mark.parametrize(("support", "most"), [("all", 1024), ("pairwise", 256)])
def test_a_token_too_long_to_be_split_stays_whole_in_draws_and_probabilities(
    support: str, most: int
) -> None:
    long, half = b"a" * (most + 2), b"a" * (most // 2 + 1)
    vocab = toy([long, half])
    scheme = rt.sampler(f"stochastok-uniform(alpha=1, support={support})", vocab)
    whole, cut = (vocab.encode(text) for text in (long, half))
    assert all(
        row.tolist() == whole.tolist() for row in scheme.sample_batch([long], seed=0, draws=20)
    )
    assert scheme.log_prob(whole) == 0.0
    assert scheme.log_prob([*cut, *cut]) == -np.inf


def test_a_long_text_of_tokens_with_gaps_has_its_exact_probability() -> None:
    vocab = toy([b"a", b"b", b"c", b"abc"])  # of three segments or of one, not of two
    m, splits = 20_000, 10_000
    scheme = rt.sampler("stochastok-uniform(alpha=0.5)", vocab)
    exact = log(comb(m, splits)) - log(comb(m + splits - 1, splits))  # each share is 0 or 1
    assert isclose(scheme.log_prob(np.full(m, 3)), exact, rel_tol=1e-12)


@pytest.mark.parametrize("alpha", [0.4, 1, 2.5])
def test_tokens_with_gaps_of_several_widths_have_the_exact_probabilities(alpha: float) -> None:
    tokens = [b"abc", b"aaaaa", b"bb", b"cccc", b"cc", b"aaaa"]
    vocab = toy([b"a", b"b", b"c", *tokens])
    ids = (3, 4, 5, 6)
    scheme = rt.StochasTokUniform(vocab, alpha=alpha)
    exact = stochastok_uniform(vocab, ids, alpha)
    for path, probability in exact.items():
        assert isclose(scheme.log_prob(path), log(probability), rel_tol=1e-12)


SPECIAL = toy([b"a", b"b", b"c", b"ab", b"bc", b"abc"], special=[b"<s>", b""])
S, HOLE = 6, 7
# 5 and 6 are twins of 1 and 2; the encoder takes the last id of equal bytes.
TWIN_TOKENS = [b"a", b"b", b"c", b"ab", b"bc", b"b", b"c"]
TWINS = rt.Vocabulary(TokenizerData(TWIN_TOKENS, range(7), frozenset(), Greedy(TWIN_TOKENS), "toy"))
EVERY_SPEC = [
    *SPECS, "grampa(temperature=2, min_length=2)", "maxmatch-dropout(p=0.3)",
    "maxmatch-dropout(p=0)", "mix(0.3 canonical, 0.7 uniform-k(alpha=0.5))", "uniform-k(alpha=0.5)",
]  # fmt: skip


@pytest.mark.parametrize("spec", EVERY_SPEC)
def test_log_prob_with_special_ids_is_that_of_every_segment(spec: str) -> None:
    scheme = rt.sampler(spec, SPECIAL)
    texts = [b"abcab", b"bc", b"abc"]
    tokenizations = [lattice.tokenizations(SPECIAL, text) for text in texts]
    distribution_of = {}
    for one, two, three in product(*tokenizations):
        row = (S, *one, S, S, *two, HOLE, *three)
        distribution_of[row] = exp(scheme.log_prob(row))
    assert isclose(sum(distribution_of.values()), 1.0, rel_tol=1e-9)
    one, two, three = (SPECIAL.encode(text).tolist() for text in texts)
    rows = scheme.sample_batch([[S, *one, S, S, *two, HOLE, *three]], seed=5, draws=4000)
    assert_distribution(rows, distribution_of)


@pytest.mark.parametrize("spec", EVERY_SPEC)
@pytest.mark.parametrize("text", [b"abbc", b"bbab", b"cabb"])
def test_log_prob_with_twins(spec: str, text: bytes) -> None:
    scheme = rt.sampler(spec, TWINS)
    distribution_of = {}
    for path in lattice.tokenizations(TWINS, text):
        twins = [(i, i + 4) if i in (1, 2) else (i,) for i in path]
        for row in product(*twins):
            distribution_of[row] = exp(scheme.log_prob(row))
    assert isclose(sum(distribution_of.values()), 1.0, rel_tol=1e-9)
    ids = TWINS.encode(text)
    assert_distribution(scheme.sample_batch([ids.tolist()], seed=3, draws=3000), distribution_of)


def test_an_empty_row_and_ids_without_text() -> None:
    for spec in EVERY_SPEC:
        scheme = rt.sampler(spec, SPECIAL)
        for ids in ([], [S, HOLE, S]):
            assert isclose(scheme.log_prob(ids), 0.0, abs_tol=1e-12)
    with pytest.raises(rt.RobustokError, match="no exact log_prob"):
        rt.StochasTok(SPECIAL).log_prob([])


def test_a_text_that_the_normalizer_changes_is_refused() -> None:
    tokenizer = Tokenizer.from_str(bpe())
    tokenizer.normalizer = BertNormalizer(handle_chinese_chars=True)  # type: ignore[assignment]
    vocab = rt.Vocabulary.load(tokenizer)
    assert rt.Canonical(vocab).log_prob(vocab.encode("Hello")) == 0.0
    # Spaces around each character, and once more around each when the text is encoded again.
    ids = np.array(tokenizer.encode("a日本b").ids, np.int32)
    assert vocab.decode(ids) == "a 日  本 b"
    for spec in ("canonical", "uniform-k(k=0)", "stochastok-uniform"):
        with pytest.raises(rt.RobustokError, match="normalizer changes the text"):
            rt.sampler(spec, vocab).log_prob(ids)
    assert rt.Uniform(vocab).log_prob(ids) == 0.0
