"""Characters around which two libraries cut a text differently never go to the faster one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.guard.tokenizers_of import LLAMA3, byte_level

from robustok.tokenizer import gigatoken as gigatoken_encoder
from robustok.tokenizer.comparison import Characters

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
