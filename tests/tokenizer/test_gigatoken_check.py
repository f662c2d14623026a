"""Code points that only one of two releases of Unicode knows never go to gigatoken."""

from __future__ import annotations

import random
import unicodedata
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.guard.tokenizers_of import LLAMA3, byte_level, cut_by

from robustok.tokenizer import gigatoken as gigatoken_encoder
from robustok.tokenizer import gigatoken_check
from robustok.tokenizer.gigatoken_check import (
    SIZE,
    are_checked,
    differences,
    has_unsafe,
    safe_points,
    unsafe_table,
)
from robustok.tokenizer.libraries import SAME_CUTS, TiktokenEncoder

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="Python has another Unicode")
def test_the_ranges_are_what_unicode_14_does_not_assign() -> None:
    unassigned = [unicodedata.category(chr(point)) == "Cn" for point in range(SIZE)]
    assert unsafe_table().tolist() == unassigned


@pytest.mark.parametrize("pattern", [GPT2, LLAMA3])
def test_the_libraries_differ_only_in_the_ranges(pattern: str) -> None:
    """A sample of the code points; benchmarks/unicode_ranges.py compares all."""
    pytest.importorskip("gigatoken")
    chosen = random.Random(0)
    unsafe = np.flatnonzero(unsafe_table()).tolist()
    safe = set(chosen.sample(safe_points(), 4000))
    known = [0x88F, 0xC5C, 0xCDC, 0xA7CE, 0x10940, 0x11DB0, 0x11DE1, 0x16EA0, 0x1E6C0, 0x323B0]
    different = set(differences(cut_by(pattern), {*safe, *known, *chosen.sample(unsafe, 2000)}))
    assert not different & safe
    assert different >= set(known)


@pytest.mark.parametrize("number", range(len(SAME_CUTS)))
def test_tiktoken_differs_only_in_the_ranges(number: int) -> None:
    """A sample, as above."""
    tiktoken = pytest.importorskip("tiktoken")
    pattern, same = [*SAME_CUTS.items()][number]
    encoding = tiktoken.Encoding("", pat_str=pattern, mergeable_ranks={b"a": 0}, special_tokens={})
    chosen = random.Random(number).sample(safe_points(), 3000)
    assert not [*differences(cut_by(same), chosen, TiktokenEncoder(encoding, True).over)]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_text_with_one_of_them(text: str) -> None:
    assert has_unsafe(text) == any(unsafe_table()[ord(character)] for character in text)


def test_the_installed_releases_were_checked() -> None:
    pytest.importorskip("gigatoken")
    assert are_checked("tokenizers") and are_checked("tiktoken")


def test_another_release_is_compared_when_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gigatoken")
    monkeypatch.setattr(gigatoken_check, "CHECKED", {})
    compared: list[dict] = []
    first = gigatoken_check.first_difference

    def compare(pre_tokenizer: dict, encoder_over: Any = None) -> str | None:
        compared.append(pre_tokenizer)
        return first(pre_tokenizer, encoder_over)

    monkeypatch.setattr(gigatoken_encoder, "first_difference", compare)
    monkeypatch.setattr(gigatoken_check, "safe_points", lambda: [0xE9, 0x4E2D, 0x1F600])
    vocab = byte_level(LLAMA3)
    vocab.gigatoken.load()
    assert vocab.gigatoken.reason is None and len(compared) == 1
    # As if a release of one of them had changed the class of a character.
    monkeypatch.setattr(gigatoken_check, "safe_points", lambda: [0xE9, 0x11DE1])
    vocab = byte_level(LLAMA3)
    vocab.gigatoken.load()
    assert vocab.gigatoken.reason == "gigatoken gives other ids for '\\U00011de1'"
