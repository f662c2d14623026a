"""Bias by hand, and the chain in time against a matrix exponential and against long texts."""

from __future__ import annotations

from collections import Counter, defaultdict
from math import log

import numpy as np
import pytest
from scipy.linalg import expm
from tests.oracles.samplers import expansions
from tests.oracles.vocabulary import toy

import robustok as rt
from robustok.analysis import bias, summarize
from robustok.analysis.split_bias import stochastok_distribution

TOKENS = [b"a", b"b", b"c", b"d", b"ab", b"cd", b"abc", b"bcd", b"abcd"]


@pytest.fixture(scope="module")
def vocab() -> rt.Vocabulary:
    return toy(TOKENS)


@pytest.mark.parametrize(("alpha", "ways"), [(0.3, 2), (1.0, 2), (1.0, 3), (3.0, 2)])
def test_the_chain_is_its_matrix_exponential(vocab: rt.Vocabulary, alpha: float, ways: int) -> None:
    word = tuple(vocab.encode("abcd").tolist())
    states, waiting = [word], [word]
    moves: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {}
    while waiting:
        state = waiting.pop()
        moves[state] = defaultdict(float)
        for at, token in enumerate(state):
            cuts = expansions(vocab, token, ways)
            for cut in cuts:
                after = (*state[:at], *cut, *state[at + 1 :])
                moves[state][after] += 1 / len(cuts)
                if after not in states:
                    states.append(after)
                    waiting.append(after)
    rates = np.array([[moves[a][b] for b in states] for a in states])
    exponential = expm((rates - np.diag(rates.sum(1))) * log(1 + alpha))[0]
    distribution = stochastok_distribution(vocab.lattice("abcd"), alpha, ways, splits=3)
    assert distribution == pytest.approx(dict(zip(states, exponential, strict=True)))
    short = stochastok_distribution(vocab.lattice("abcd"), alpha, ways, splits=1)
    assert short == pytest.approx({s: p for s, p in distribution.items() if len(s) <= 2})


def test_a_long_text_cuts_its_tokens_by_that_distribution() -> None:
    """Tokens so long that hardly a pick is spent: their first cuts are the chain's."""
    letters = b"abcdefgh"
    vocab = toy([letters[i:j] for i in range(8) for j in range(i + 1, 9)])
    text = np.repeat(vocab.encode(letters), 400).tolist()
    rows = rt.sampler("stochastok(alpha=0.5)", vocab).sample_batch([text], seed=0, draws=20)
    seen: Counter[int] = Counter()
    for row in rows:
        ends = np.cumsum([len(vocab.tokens[i]) for i in row])
        seen.update(np.bincount((ends - 1) // 8, minlength=400).tolist())
    distribution = stochastok_distribution(vocab.lattice(letters), 0.5, splits=7)
    for segments in (1, 2, 3):
        p = sum(q for cut, q in distribution.items() if len(cut) == segments)
        share = seen[segments] / seen.total()
        assert share == pytest.approx(p, abs=5 * (p * (1 - p) / seen.total()) ** 0.5 + 0.005)


def test_bias_by_hand(vocab: rt.Vocabulary) -> None:
    specs = ["uniform", "uniform-k(alpha=1)", "stochastok-uniform(alpha=1)",
             "stochastok-uniform(alpha=1, support=pairwise)", "stochastok(alpha=1)"]  # fmt: skip
    rows = {(r.scheme, r.splits): r for r in bias(vocab, ["abcd", "abd"], specs, seed=0)}
    # abcd: a-bcd, ab-cd, abc-d; then a-b-cd, ab-c-d (a-bc-d: bc is no token); then a-b-c-d.
    for scheme in ("uniform", "uniform-k(alpha=1)", "stochastok-uniform(alpha=1)"):
        for s, n_segmentations in ((1, 3), (2, 2)):
            r = rows[scheme, s]
            values = (
                r.word,
                r.segmentations,
                r.total_variation,
                r.kl_divergence,
                r.support,
                r.draws,
            )
            assert values == (
                "abcd", n_segmentations, 0.0, 0.0, 1.0, 0,
            )  # fmt: skip
        assert (scheme, 3) not in rows  # one way only
    distribution = stochastok_distribution(vocab.lattice("abcd"), 1.0)
    three = np.array([p for cut, p in distribution.items() if len(cut) == 2])
    three /= three.sum()
    r = rows["stochastok(alpha=1)", 1]
    assert r.total_variation == pytest.approx(np.abs(three - 1 / 3).sum() / 2)
    assert r.kl_divergence == pytest.approx((three * np.log(3 * three)).sum())
    assert {r.word for r in rows.values()} == {"abcd"}  # "abd" is two tokens


def test_pairwise_support_is_what_pairs_reach() -> None:
    full = toy([b"a", b"b", b"c", b"d", b"e", b"abcde", b"bc", b"de", b"abc", b"cd", b"ab"])
    by_splits = {
        r.splits: r for r in bias(full, ["abcde"], ["stochastok-uniform(support=pairwise)"], seed=0)
    }
    paths = [row.tolist() for row in full.lattice("abcde").enumerate(segments=3)]
    assert by_splits[2].segmentations == len(paths)
    assert 0 < by_splits[2].support < 1
    assert by_splits[2].total_variation == pytest.approx(1 - by_splits[2].support)
    assert by_splits[2].kl_divergence == pytest.approx(-log(by_splits[2].support))


def test_schemes_without_a_distribution_are_estimated(vocab: rt.Vocabulary) -> None:
    (one,) = bias(vocab, ["abcd"], ["maxmatch-dropout(p=0.5)"], seed=0, draws=4000, splits=1)
    assert 100 <= one.draws <= 4000 and 0 < one.total_variation < 1
    assert not bias(vocab, ["abcd"], ["maxmatch-dropout(p=0.5)"], seed=0, draws=50)


def test_summaries_are_means_over_words(vocab: rt.Vocabulary) -> None:
    rows = bias(vocab, ["abcd", "abc", "bcd"], ["stochastok(alpha=1)", "uniform"], seed=0)
    for summary in summarize(rows):
        group = [r for r in rows if (r.scheme, r.splits) == (summary["scheme"], summary["splits"])]
        assert summary["words"] == len(group) and summary["exact"]
        for name in ("total_variation", "kl_divergence", "support"):
            assert summary[name] == pytest.approx(np.mean([getattr(r, name) for r in group]))
