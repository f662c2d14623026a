"""Stages of a tokenizer.json: what each kind does, against the library itself."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from robustok.errors import RobustokError
from robustok.tokenizer.data import byte_alphabet
from robustok.tokenizer.stages import Stages
from robustok.tokenizer.tokenizers_api import parts_of

TEXT = "I'd  like 12 ▁ cafés,\n\tplease."


def stages_of(pre_tokenizer: object = None, normalizer: object = None) -> Stages:
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer, tokenizer.normalizer = pre_tokenizer, normalizer  # type: ignore
    return Stages.of_parts(parts_of(tokenizer, {}))


def split(pattern: str, behavior: str = "isolated", invert: bool = False) -> object:
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


@pytest.mark.parametrize(
    ("stage", "normalizer", "spells"),
    [
        (None, None, False),
        (pre_tokenizers.ByteLevel(add_prefix_space=False), None, True),
        (pre_tokenizers.ByteLevel(add_prefix_space=True), None, False),
        (pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFC(), False),
        (pre_tokenizers.Sequence([pre_tokenizers.Digits(), BYTES]), None, True),
        (pre_tokenizers.Sequence([split(r"\w+|\W+", "removed", invert=True), BYTES]), None, False),
        (pre_tokenizers.Metaspace(), None, False),
    ],
)  # fmt: skip
def test_stages_whose_ids_spell_each_text(stage: Any, normalizer: Any, spells: bool) -> None:
    assert stages_of(stage, normalizer).spells_text is spells
    if spells:
        pieces = "".join(piece for piece, _ in stage.pre_tokenize_str(TEXT))
        assert bytes(map(byte_alphabet().__getitem__, pieces)) == TEXT.encode()


@pytest.mark.parametrize(
    "stage",
    [
        pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit(),
        pre_tokenizers.BertPreTokenizer(), pre_tokenizers.CharDelimiterSplit("-"),
        pre_tokenizers.Punctuation("removed"), split(r"\s+", "removed"),
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), BYTES]),
    ],
)  # fmt: skip
def test_stages_that_lose_characters_are_refused(stage: object) -> None:
    with pytest.raises(RobustokError, match="pre-tokenizer leaves out characters"):
        stages_of(stage)


@pytest.mark.parametrize(
    ("decoder", "name"),
    [
        (decoders.WordPiece(), "WordPiece"), (decoders.BPEDecoder(), "BPEDecoder"),
        (decoders.CTC(), "CTC"), (decoders.Strip(" ", 1, 0), "Strip"),
        (decoders.Replace("ab", "c"), "Replace"), (decoders.Replace("x", ""), "Replace"),
        (decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 0)]), None),
    ],
)  # fmt: skip
def test_decoders_whose_text_depends_on_the_cuts_are_refused(decoder: object, name: str) -> None:
    tokenizer = Tokenizer(BPE())
    tokenizer.decoder = decoder  # type: ignore[assignment]
    if name is None:
        Stages.of_parts(parts_of(tokenizer, {}))
        return
    with pytest.raises(RobustokError, match=f"its {name} decoder"):
        Stages.of_parts(parts_of(tokenizer, {}))
