"""`uniform-k` on texts of which little repeats."""

from __future__ import annotations

import random

from tests.oracles.data import real

import robustok as rt


def test_a_text_of_large_distinct_words_leaves_the_store_at_its_first_size() -> None:
    """Random letters: blocks of up to 500 bytes, whose tables would take 90 MB."""
    vocab = real("gpt2")
    text = "".join(random.Random(0).choices("acgtehilnorsu", k=400_000))
    ids = vocab.encode(text)
    scheme = rt.UniformK(vocab, alpha=0.5)
    alone = scheme.sample(ids, seed=0)
    assert vocab.decode(alone) == text
    assert rt.distance(vocab, ids, alone) == -(-len(ids) // 2)
    assert len(scheme._stores) == 1  # a larger one is not kept
    rows = rt.Ragged.from_rows([vocab.encode(text[:5000]), ids])
    batch = scheme.sample_batch(rows, seed=0, keys=[1, 0])
    assert batch[1].tolist() == alone.tolist()
