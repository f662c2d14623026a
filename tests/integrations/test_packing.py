"""Packed and padded rows: split, drawn one by one, joined with new boundaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import robustok as rt
from robustok.errors import RobustokError
from robustok.integrations.perturb import Perturb
from robustok.integrations.rows import (
    join_packed,
    repacked,
    split_packed,
    with_padding,
    without_padding,
)
from robustok.models import train_tokenizer
from robustok.tasks import frequent_words

WORDS = frequent_words(60)
RNG = np.random.default_rng(0)
TEXTS = [" ".join(RNG.choice(WORDS, 12)) for _ in range(24)]
VOCAB = rt.Vocabulary.load(train_tokenizer(TEXTS, 400))
IDS = [ids.tolist() for ids in VOCAB.encode_batch(TEXTS)]

lengths = st.lists(st.integers(1, 5), min_size=1, max_size=5)


@given(lengths, st.sampled_from(["seq_lengths", "position_ids", "attention_mask"]))
def test_split_and_joined_a_row_is_itself(sizes, form):
    total = sum(sizes)
    row: dict[str, Any] = {"input_ids": list(range(total)), "labels": list(range(total))}
    row[form] = {
        "seq_lengths": sizes,
        "position_ids": [i for size in sizes for i in range(size)],
        "attention_mask": [n + 1 for n, size in enumerate(sizes) for _ in range(size)],
    }[form]
    parts = split_packed(row)
    assert [len(part["input_ids"]) for part in parts] == sizes
    assert join_packed(row, parts) == row


def packed_row(form: str = "seq_lengths") -> dict[str, Any]:
    sizes = [len(ids) for ids in IDS[:3]]
    ids = [i for row in IDS[:3] for i in row]
    labels = [i if n % 2 else -100 for n, i in enumerate(ids)]
    boundaries = sizes if form == "seq_lengths" else [i for size in sizes for i in range(size)]
    return {"input_ids": ids, "labels": labels, form: boundaries}


@pytest.mark.parametrize("form", ["seq_lengths", "position_ids"])
def test_each_sequence_of_a_packed_row_is_drawn_by_itself(form):
    perturb = Perturb(rt.sampler("uniform", VOCAB), seed=0, where="all")
    packed = perturb([packed_row(form)])[0]
    alone = perturb([{"input_ids": ids} for ids in IDS[:3]])
    assert packed["input_ids"] == [i for row in alone for i in row["input_ids"]]
    assert len(packed["labels"]) == len(packed["input_ids"])
    sizes = [len(row["input_ids"]) for row in alone]
    expected = sizes if form == "seq_lengths" else [i for size in sizes for i in range(size)]
    assert packed[form] == expected


def test_labels_of_a_packed_row_stay_canonical():
    row = packed_row()
    perturb = Perturb(rt.sampler("uniform", VOCAB), seed=0)
    new = perturb([row])[0]
    assert [i for i in new["labels"] if i != -100] == [i for i in row["labels"] if i != -100]
    assert new["input_ids"] != row["input_ids"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"cu_seq_lens_q": [0, 2]}, "packed with cu_seq_lens_q cannot be perturbed"),
        ({"seq_lengths": [1, 2]}, "have 3 ids, the row has 2"),
        ({"position_ids": [0, 5]}, "do not count from 0"),
        ({"position_ids": [3, 4]}, "do not count from 0"),
    ],
)
def test_unknown_packing_is_refused(row, message):
    with pytest.raises(RobustokError, match=message):
        Perturb(rt.sampler("uniform", VOCAB), seed=0)([{"input_ids": IDS[0][:2], **row}])


def test_wrapped_rows_lose_no_text():
    rows = [{"input_ids": ids, "labels": ids} for ids in IDS]
    blocks = repacked(Perturb(rt.sampler("uniform", VOCAB), seed=0, where="all")(rows), 32)
    assert {len(block["input_ids"]) for block in blocks[:-1]} == {32}
    spelled = b"".join(VOCAB.decode_bytes(block["input_ids"]) for block in blocks)
    assert spelled == "".join(TEXTS).encode()


@given(st.integers(0, 4), st.integers(0, 4))
def test_padding_taken_off_and_put_back_is_the_row(left, right):
    real = [7, 8, 9]
    row = {
        "input_ids": [0] * left + real + [0] * right,
        "labels": [-100] * left + real + [-100] * right,
        "attention_mask": [0] * left + [1] * 3 + [0] * right,
    }
    bare, before = without_padding(row)
    assert bare["input_ids"] == real
    assert with_padding(bare, row, before) == row


def test_a_longer_draw_takes_the_place_of_padding():
    ids = IDS[0]
    row = {"input_ids": ids + [0] * 40, "attention_mask": [1] * len(ids) + [0] * 40}
    perturb = Perturb(rt.sampler("uniform-k(alpha=0.5)", VOCAB), seed=0)
    new = perturb([row])[0]
    assert len(new["input_ids"]) == len(row["input_ids"])
    real = [i for i, mask in zip(new["input_ids"], new["attention_mask"], strict=True) if mask]
    assert real == perturb([{"input_ids": ids}])[0]["input_ids"] != ids
    assert new["input_ids"][len(real) :] == [0] * (len(row["input_ids"]) - len(real))


def test_tokens_and_splits_are_counted():
    """Against the distance and the splits of the library."""
    perturb = Perturb(rt.sampler("uniform-k(k=3)", VOCAB), seed=0)
    new = perturb([{"input_ids": ids} for ids in IDS])
    rows, changed, too_long, tokens, replaced, splits = perturb.counts[0].tolist()
    assert (rows, changed, too_long) == (24, 24, 0)
    assert tokens == sum(map(len, IDS))
    pairs = [(row["input_ids"], ids) for row, ids in zip(new, IDS, strict=True)]
    assert replaced == sum(rt.distance(VOCAB, row, ids) for row, ids in pairs)
    assert splits == sum(len(boundaries(row) - boundaries(ids)) for row, ids in pairs)


def boundaries(ids: list[int]) -> set[int]:
    return set(np.cumsum([len(VOCAB.tokens[i]) for i in ids]).tolist())
