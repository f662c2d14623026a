"""The dropout table against counting, and the paper's."""

from __future__ import annotations

import numpy as np
import pytest
from tests.guard.tokenizers_of import byte_level
from tests.oracles.data import real
from tests.oracles.lattice import splits

import robustok as rt
from robustok.analysis import DROPOUT, SENTENCE, dropout_splits

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
    assert rows[0][2:6] == (0, 0, 0, 0)
    assert rows[2][2:4] == (len(TEXT) - len(canonical), 0)
    texts = [canonical.tolist()] * 300
    drawn = rt.sampler("bpe-dropout(p=0.3, rule=hf)", vocab).sample_batch(texts, seed=3)
    counts = [splits(vocab, canonical, row) for row in drawn]
    s = rows[1]
    assert (s.min, s.max) == (min(counts), max(counts))
    assert (s.mean, s.std) == pytest.approx((np.mean(counts), np.std(counts)))


def test_the_papers_table_is_tokenizers_dropout_at_small_p() -> None:
    rows = dropout_splits(
        real("llama3"), SENTENCE, seed=0, probabilities=[0.1, 0.25], rules=["hf"], draws=4000
    )
    for row, paper in zip(rows, DROPOUT, strict=False):
        assert row.p == paper.p
        assert row.mean == pytest.approx(paper.mean, abs=5 * paper.std / 4000**0.5)
        assert row.std == pytest.approx(paper.std, rel=0.07)


def test_one_string_is_no_list(vocab: rt.Vocabulary) -> None:
    with pytest.raises(rt.RobustokError, match=r"^rules: give a list"):
        dropout_splits(vocab, "a text", rules="hf", seed=0)
