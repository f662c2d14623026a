"""Encoding by remembered pre-tokens gives what the tokenizer gives, on every text."""

from __future__ import annotations

import json
import lzma
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.corpus.conftest import documents, train
from tests.guard.tokenizers_of import byte_level, metaspace
from tests.oracles.data import TOKENIZERS, data_path, real

import robustok.vocabulary
from robustok.errors import RobustokError
from robustok.pretokenize import encoder as encoder_module
from robustok.ragged import Ragged
from robustok.vocabulary import Text, Vocabulary

texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=5)


@pytest.fixture(autouse=True)
def any_text_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robustok.vocabulary, "_MUCH", 0)


@pytest.fixture(scope="module")
def vocab(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return Vocabulary.load(train(tmp_path_factory.mktemp("tokenizer")))


def by_tokenizer(vocab: Vocabulary, texts: Sequence[Text]) -> Ragged:
    return Ragged.from_rows(vocab._encode_rows(list(texts), False))


@given(texts=texts)
@example(texts=["", "ſK don't  x", "a\u2028b \u00a0 1½²"])
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_text(texts: list[str]) -> None:
    for _ in range(2):  # the second time from what it remembers
        assert GPT2.encode_batch(texts) == by_tokenizer(GPT2, texts)


GPT2 = byte_level(None)


def test_no_text_goes_to_the_tokenizer_without_need(vocab: Vocabulary, monkeypatch) -> None:
    whole = by_tokenizer(vocab, documents(20))
    monkeypatch.setattr(vocab, "_encode_rows", None)
    assert vocab.encode_batch(documents(20)) == whole


def test_little_text_leaves_no_table(monkeypatch) -> None:
    monkeypatch.setattr(robustok.vocabulary, "_MUCH", 1000)
    vocab = byte_level(None)
    vocab.encode_batch(["a few words"])
    assert "pre-token encoder" not in vocab._derived


def test_a_full_table_starts_anew(vocab: Vocabulary, monkeypatch) -> None:
    monkeypatch.setattr(encoder_module, "_CAPACITY", 64)
    encoder = encoder_module.pre_token_encoder(vocab.data)
    assert encoder is not None
    for batch in (["a b c"], documents(20), ["x" * 5000 + " new"], ["newer"], documents(20), []):
        assert encoder.encode_batch(batch, lambda _: pytest.fail()) == by_tokenizer(vocab, batch)


def test_normalizer_and_added_tokens(tmp_path: Path) -> None:
    vocab = Vocabulary.load(train(tmp_path, normalizer="NFC", added=["<tool>"]))
    texts = ["e\u0301 \u212b", "\u00e9", "a<tool>b <|endoftext|>", *documents(10)]
    assert vocab._pre_token_encoder is not None
    assert vocab.encode_batch(texts) == by_tokenizer(vocab, texts)


def test_an_added_token_that_is_of_the_model_too(tmp_path: Path) -> None:
    path = train(tmp_path)
    record = json.loads(path.read_text())
    record["added_tokens"] += [
        {"id": record["model"]["vocab"]["or"], "content": "or", "special": False, "lstrip": False,
         "rstrip": False, "normalized": False, "single_word": False}
    ]  # fmt: skip
    path.write_text(json.dumps(record))
    vocab = Vocabulary.load(path)
    texts = ["corner born", "beside", *documents(10)]
    assert vocab._pre_token_encoder is not None
    assert vocab.encode_batch(texts) == by_tokenizer(vocab, texts)


def test_bytes_that_are_no_text(vocab: Vocabulary) -> None:
    rows = [b"caf\xc3\xa9", b"\xff\xfe ab\xc3", "plain"]
    assert vocab.encode_batch(rows) == by_tokenizer(vocab, rows)
    with pytest.raises(RobustokError, match="lone surrogate"):
        vocab.encode_batch(["ok", "a\ud800"])


def test_several_threads_share_a_table() -> None:
    vocab = byte_level(None)
    batches = [documents(40)[i::4] for i in range(4)]
    encoded: dict[int, Ragged] = {}

    def encode(i: int) -> None:
        encoded[i] = vocab.encode_batch(batches[i])

    threads = [threading.Thread(target=encode, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, batch in enumerate(batches):
        assert encoded[i] == by_tokenizer(vocab, batch)


def test_others_are_left_to_the_tokenizer() -> None:
    for vocab in (metaspace(prefix=True), byte_level(None, prefix=True), byte_level(r"(?<=a)b|.")):
        assert vocab._pre_token_encoder is None
        assert vocab.encode_batch(["the rest", ""]) == by_tokenizer(vocab, ["the rest", ""])


@pytest.mark.parametrize("name", TOKENIZERS)
def test_real_tokenizers(name: str) -> None:
    hard = data_path("corpus", "hard_cases.jsonl").read_text().splitlines()
    with lzma.open(data_path("corpus", "multilingual_code.jsonl.xz"), "rt", encoding="utf8") as f:
        mixed = [line for line, _ in zip(f, range(345), strict=False)][::15]
    texts = [json.loads(line)["text"] for line in [*hard, *mixed]]
    vocab = real(name)
    assert (vocab._pre_token_encoder is None) == (name in ("llama2", "internlm2"))
    assert vocab.encode_batch(texts) == by_tokenizer(vocab, texts)


def test_entries_lie_at_other_places_in_every_table_and_the_ids_are_the_same() -> None:
    first, second = byte_level(None), byte_level(None)
    texts = ["the theater is there", "naïve café 123"]
    assert first.encode_batch(texts) == second.encode_batch(texts) == by_tokenizer(first, texts)
    slots = [vocab._pre_token_encoder._known.slots for vocab in (first, second)]  # type: ignore[union-attr]
    assert not (slots[0] == slots[1]).all()


def test_an_interrupt_amid_learning_leaves_a_table_that_is_right(monkeypatch) -> None:
    vocab = byte_level(None)
    encoder = vocab._pre_token_encoder
    assert encoder is not None
    vocab.encode_batch(["the"])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(encoder, "_learn", interrupted)
        with pytest.raises(KeyboardInterrupt):
            vocab.encode_batch(["is there a theater, isn't it?"])
    texts = ["the tests", "is there a theater, isn't it?"]
    assert vocab.encode_batch(texts) == by_tokenizer(vocab, texts)
