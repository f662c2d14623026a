"""Characters around which two libraries cut a text differently never go to the faster one."""

from __future__ import annotations

import json
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.guard.tokenizers_of import LLAMA3, byte_level

from robustok.tokenizer import gigatoken as gigatoken_encoder
from robustok.tokenizer.comparison import Characters
from robustok.tokenizer.vocabulary import Vocabulary

# Assigned in Unicode 14 and later, of which gigatoken 0.10 and tokenizers 0.23 have two releases.
NEW = [0x88F, 0xC5C, 0xCDC, 0xA7CE, 0x10940, 0x11DB0, 0x11DE1, 0x16EA0, 0x1E6C0, 0x323B0]


BESIDE = "aA124!'sS/ \n"  # what every character is compared beside


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
    st.sets(st.characters(exclude_characters=BESIDE)),
)
def test_each_character_is_compared_once_before_a_text_with_it(
    texts: list[str], others: set[str]
) -> None:
    compared: list[str] = []

    def differ(text: str) -> bool:
        compared.append(text)
        return not others.isdisjoint(text)

    characters = Characters(differ)
    for text in texts:
        assert characters.has_other(text) == (not others.isdisjoint(text))
        before = len(compared)
        characters.has_other(text)
        assert len(compared) == before


def test_a_text_of_very_many_new_characters_is_not_compared() -> None:
    compared: list[str] = []
    characters = Characters(lambda text: bool(compared.append(text)))
    before = len(compared)
    assert characters.has_other("".join(map(chr, range(0x4E00, 0x4E00 + 5000))))
    assert len(compared) == before
    assert not characters.has_other("".join(map(chr, range(0x4E00, 0x4E00 + 4000))))


@pytest.mark.parametrize("pattern", [None, LLAMA3])
def test_new_characters_of_one_release_of_unicode_go_to_the_library(pattern: str | None) -> None:
    pytest.importorskip("gigatoken")
    vocab = byte_level(pattern)
    vocab.gigatoken.load()
    assert vocab.gigatoken.reason is None
    differ = gigatoken_encoder._differ(json.loads(vocab.data.source.to_str())["pre_tokenizer"])
    others = [point for point in NEW if differ(f"a{chr(point)}1 {chr(point)}'s")]
    for point in others:
        assert vocab.gigatoken.encode(f"the {chr(point)}") is None
    known = [chr(p) for p in range(0x600) if unicodedata.category(chr(p)) != "Cn"]
    assert vocab.gigatoken.encode("".join(known)) is not None
    texts = [f"a1{chr(p)}1a {chr(p)}'s{chr(p)}" for p in [*NEW, *range(0x250, 0x3000, 7)]]
    by_library = Vocabulary(vocab.data)
    expected = by_library.data.encoder.encode_batch(texts, False)
    assert [row.tolist() for row in vocab.encode_batch(texts)] == expected


def test_a_character_that_another_release_cuts_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a release of one of the libraries had changed the class of a character."""
    pytest.importorskip("gigatoken")
    right = gigatoken_encoder._differ
    monkeypatch.setattr(
        gigatoken_encoder, "_differ", lambda pre: lambda text: "ж" in text or right(pre)(text)
    )
    vocab = byte_level(LLAMA3)
    vocab.gigatoken.load()
    assert vocab.gigatoken.reason is None
    assert vocab.gigatoken.encode("a ж") is None
    row = vocab.gigatoken.encode("a й")
    assert row is not None and np.array_equal(row, vocab.encode("a й"))
