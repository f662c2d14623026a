"""The dropout table against counting, and the paper's; growth against dividing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.guard.tokenizers_of import byte_level
from tests.oracles.data import real

import robustok as rt
from robustok.analysis import DROPOUT, SENTENCE, bias, dropout_splits, growth

TEXT = "the theater is there, then rest"


@pytest.fixture(scope="module")
def vocab() -> rt.Vocabulary:
    return byte_level(None)


def test_dropout_splits_are_counted(vocab: rt.Vocabulary) -> None:
    calls: list[tuple[int, int]] = []
    rows = dropout_splits(
        vocab, TEXT, seed=3, probabilities=[0.0, 0.3, 1.0], rules=["hf", "provilkov"], draws=300,
        progress=lambda a, b: calls.append((a, b)),
    )  # fmt: skip
    assert [(r.rule, r.p) for r in rows] == [
        (rule, p) for rule in ("hf", "provilkov") for p in (0.0, 0.3, 1.0)
    ]
    assert calls[-1] == (1800, 1800)
    canonical = vocab.encode(TEXT)
    assert tuple(rows[0].splits) == (0, 0, 0, 0)
    assert tuple(rows[2].splits)[:2] == (len(TEXT) - len(canonical), 0)
    texts = [canonical.tolist()] * 300
    drawn = rt.sampler("bpe-dropout(p=0.3, rule=hf)", vocab).sample_batch(texts, seed=3)
    ends = set(np.cumsum([len(vocab.tokens[i]) for i in canonical]).tolist())
    counts = [
        len(set(np.cumsum([len(vocab.tokens[i]) for i in row]).tolist()) - ends) for row in drawn
    ]
    s = rows[1].splits
    assert (s.least, s.most) == (min(counts), max(counts))
    assert (s.mean, s.std) == pytest.approx((np.mean(counts), np.std(counts)))


def test_the_papers_table_is_tokenizers_dropout_at_small_p() -> None:
    rows = dropout_splits(
        real("llama3"), SENTENCE, seed=0, probabilities=[0.1, 0.25], rules=["hf"], draws=4000
    )
    for row in rows:
        paper = DROPOUT[row.p]
        assert row.splits.mean == pytest.approx(paper.mean, abs=5 * paper.std / 4000**0.5)
        assert row.splits.std == pytest.approx(paper.std, rel=0.07)


def test_growth_is_a_ratio_of_sums(vocab: rt.Vocabulary) -> None:
    texts = [TEXT, "the rest", "there is the theater " * 3]
    (one,) = growth(vocab, texts, ["stochastok(ways=3)"], alphas=[0.5], seed=2)
    rows = vocab.encode_batch(texts)
    drawn = rt.sampler("stochastok(alpha=0.5, ways=3)", vocab).sample_batch(rows, seed=2)
    assert one.ratio == pytest.approx(len(drawn.values) / len(rows.values))
    assert (one.scheme, one.alpha, one.texts) == ("stochastok(ways=3)", 0.5, 3)
    left = drawn.lengths - one.ratio * rows.lengths
    spread = float(np.sqrt((left**2).sum() * 3 / 2))
    assert one.error == pytest.approx(spread / len(rows.values))


def test_growth_rises_with_alpha_from_one(vocab: rt.Vocabulary) -> None:
    calls: list[tuple[int, int]] = []
    rows = growth(
        vocab, [TEXT] * 20, seed=0, alphas=[0, 0.5, 2], progress=lambda a, b: calls.append((a, b))
    )
    for at in range(0, 9, 3):
        ratios = [r.ratio for r in rows[at : at + 3]]
        assert ratios[0] == 1 and ratios == sorted(ratios) and ratios[2] > 1.3
    assert calls[-1] == (9, 9)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda vocab: growth(vocab, ["a text"], "uniform", seed=0), "schemes"),
        (lambda vocab: bias(vocab, "word", seed=0), "words"),
        (lambda vocab: bias(vocab, ["word"], "uniform", seed=0), "schemes"),
        (lambda vocab: dropout_splits(vocab, "a text", rules="hf", seed=0), "rules"),
    ],
)
def test_one_string_is_no_list(
    call: Callable[[rt.Vocabulary], Any], name: str, vocab: rt.Vocabulary
) -> None:
    with pytest.raises(rt.RobustokError, match=f"^{name}: give a list"):
        call(vocab)
