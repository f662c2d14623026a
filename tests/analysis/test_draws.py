"""Split counts and segmentations of draws against counting them by hand, and against laws."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from tests.oracles.vocabulary import toy

import robustok as rt
from robustok.analysis import segmentations, split_counts

TOKENS = [b"a", b"b", b"c", b"d", b"ab", b"bc", b"abc", b"cd", b"bcd"]
TEXT = "abcdabcabc"
DRAWS = 4_000


@pytest.fixture(scope="module")
def vocab() -> rt.Vocabulary:
    return toy(TOKENS)


def by_hand(vocab: rt.Vocabulary, spec: str, begin: int, end: int) -> list[list[int]]:
    """Boundaries strictly between two positions, of each draw."""
    canonical = vocab.encode(TEXT)
    rows = rt.sampler(spec, vocab).sample_batch([canonical.tolist()] * DRAWS, seed=5)
    counts = []
    for row in rows:
        ends = np.cumsum([len(vocab.tokens[i]) for i in row])
        counts.append([int(at) for at in ends if begin < at < end])
    return counts


@pytest.mark.parametrize(
    "spec", ["uniform", "uniform-k(alpha=1)", "stochastok-uniform(alpha=1)", "grampa"]
)
def test_draws_are_counted_and_laws_hold(vocab: rt.Vocabulary, spec: str) -> None:
    result = split_counts(vocab, TEXT, spec, token=2, seed=5, draws=DRAWS)
    assert (result.token, result.draws) == ("abc", DRAWS)
    assert vocab.encode(TEXT).tolist() == [6, 3, 6, 6]
    seen = Counter(len(inside) for inside in by_hand(vocab, result.scheme, 4, 7))
    assert result.observed == pytest.approx([seen[s] / DRAWS for s in range(len(result.observed))])
    exact = [distribution for name, distribution in result.distributions.items() if "exact" in name]
    assert len(exact) == (spec != "grampa")
    for distribution in exact:
        for p, share in zip(distribution, result.observed, strict=False):
            assert abs(p - share) < 5 * (p * (1 - p) / DRAWS) ** 0.5 + 1e-9


def test_stochastok_has_the_papers_distribution_only(vocab: rt.Vocabulary) -> None:
    result = split_counts(vocab, TEXT, "stochastok(alpha=0.5)", seed=0, draws=10)
    assert list(result.distributions) == ["Dirichlet-multinomial (paper)"]
    assert len(result.distributions["Dirichlet-multinomial (paper)"]) == 3
    assert not split_counts(vocab, TEXT, "stochastok(ways=3)", seed=0, draws=10).distributions


def test_blocks_change_nothing(vocab: rt.Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    whole = split_counts(vocab, TEXT, "uniform", seed=1, draws=1000)
    monkeypatch.setattr("robustok.analysis.splits.BLOCK", 300)
    parts = split_counts(
        vocab, TEXT, "uniform", seed=1, draws=1000, progress=lambda a, b: calls.append((a, b))
    )
    assert parts.observed.tolist() == whole.observed.tolist()
    assert calls == [(300, 1000), (600, 1000), (900, 1000), (1000, 1000)]


def test_segmentations_are_those_between_two_boundaries(vocab: rt.Vocabulary) -> None:
    result = segmentations(vocab, TEXT, ["uniform", "stochastok(alpha=1)"], seed=5, draws=DRAWS,
                          splits=3)  # fmt: skip
    assert result.token == "abc"
    assert [set(level) for level in result.by_splits] == [{"a-bc", "ab-c"}, {"a-b-c"}, set()]
    for spec, levels in result.shares.items():
        assert [x.sum() for x in levels] == pytest.approx([1, 1, 0])
        rows = rt.sampler(spec, vocab).sample_batch([vocab.encode(TEXT).tolist()] * DRAWS, seed=5)
        names = ["-".join(vocab.decode([i]) for i in row) + "-" for row in rows]
        for level, cuts in enumerate(result.by_splits):
            count = [sum(name.startswith(f"{cut}-") for name in names) for cut in cuts]
            assert result.draws[spec][level] == sum(count)
            assert result.shares[spec][level] == pytest.approx(
                [c / max(sum(count), 1) for c in count]
            )


def test_a_missing_token_is_an_error(vocab: rt.Vocabulary) -> None:
    with pytest.raises(rt.RobustokError, match="no canonical token 4: it has 0 to 3"):
        split_counts(vocab, TEXT, "uniform", seed=0, token=4)
    with pytest.raises(rt.RobustokError, match="no canonical token 0: it is empty"):
        segmentations(vocab, "", ["uniform"], seed=0)
    with pytest.raises(rt.RobustokError, match="draws=0"):
        split_counts(vocab, TEXT, "uniform", seed=0, draws=0)
