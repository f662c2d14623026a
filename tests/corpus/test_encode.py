"""Encoding by remembered pieces gives what the tokenizer gives, on every text."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.corpus.conftest import documents, train
from tests.oracles.data import TOKENIZERS, data_path, real

from robustok.corpus import encode
from robustok.corpus.encode import PieceEncoder
from robustok.errors import RobustokError
from robustok.vocabulary import Vocabulary

texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=5)


@given(texts=texts)
@example(texts=["", "ſK don't  x", "a\u2028b \u00a0 1½²"])
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_text(vocab: Vocabulary, texts: list[str]) -> None:
    pieces = PieceEncoder(vocab)
    assert pieces.encode_batch(texts) == vocab.encode_batch(texts)
    assert pieces.encode_batch(texts) == vocab.encode_batch(texts)  # from what it remembers


def test_the_fast_way_is_taken_and_forgets(vocab: Vocabulary, monkeypatch) -> None:
    pieces = PieceEncoder(vocab)
    slow: list[int] = []
    monkeypatch.setattr(vocab, "encode_batch", lambda texts: slow.append(len(texts)))
    pieces.encode_batch(documents(20))
    known = len(pieces._number)
    assert known > 100
    assert not slow
    monkeypatch.setattr(encode, "_MOST", known)
    pieces.encode_batch(["x" * 1000 + " new"])
    assert len(pieces._number) == known + 1  # the long one is not kept
    pieces.encode_batch(["newer"])
    assert len(pieces._number) == 1


def test_normalizer_and_added_tokens(tmp_path: Path) -> None:
    path = train(tmp_path, normalizer="NFC", added=["<tool>"])
    vocab = Vocabulary.load(path)
    texts = ["e\u0301 \u212b", "\u00e9", "a<tool>b <|endoftext|>", *documents(10)]
    assert PieceEncoder(vocab)._cutter is not None
    assert PieceEncoder(vocab).encode_batch(texts) == vocab.encode_batch(texts)


def test_bytes_that_are_no_text(vocab: Vocabulary) -> None:
    rows = [b"caf\xc3\xa9", b"\xff\xfe ab\xc3", "plain"]
    assert PieceEncoder(vocab).encode_batch(rows) == vocab.encode_batch(rows)
    with pytest.raises(RobustokError, match="lone surrogate"):
        PieceEncoder(vocab).encode_batch(["ok", "a\ud800"])


@pytest.mark.parametrize("name", TOKENIZERS)
def test_real_tokenizers(name: str) -> None:
    hard = data_path("corpus", "hard_cases.jsonl").read_text().splitlines()
    with lzma.open(data_path("corpus", "multilingual_code.jsonl.xz"), "rt", encoding="utf8") as f:
        mixed = [line for line, _ in zip(f, range(345), strict=False)][::15]
    texts = [json.loads(line)["text"] for line in [*hard, *mixed]]
    assert PieceEncoder(real(name)).encode_batch(texts) == real(name).encode_batch(texts)
