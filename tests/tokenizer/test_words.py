"""Encoding word by word gives the ids of the library, whatever was encoded before."""

from __future__ import annotations

import json
import pickle
import random
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

import robustok as rt
from robustok.tokenizer import words
from robustok.tokenizer.words import WordEncoder

LETTERS = "abcé中▁"


def made(random_: random.Random, at_whitespace: bool) -> Tokenizer:
    """A tokenizer of few tokens with many equal scores, some of which lack characters."""
    spellings = {"".join(random_.choices(LETTERS, k=random_.randint(1, 4))) for _ in range(30)}
    spellings = sorted(spelling for spelling in spellings if "▁" not in spelling[1:])
    pieces = [("<unk>", 0.0), ("▁", -2.0)]
    pieces += [(s, -random_.choice([0.5, 1.0, 1.5, 2.0])) for s in spellings if s != "▁"]
    tokenizer: Any = Tokenizer(models.Unigram(pieces, 0, False))
    marks = pre_tokenizers.Metaspace(prepend_scheme="always")
    whitespace: list[Any] = [pre_tokenizers.WhitespaceSplit(), marks]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(whitespace) if at_whitespace else marks
    tokenizer.normalizer = random_.choice([None, normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return tokenizer


@pytest.mark.parametrize("at_whitespace", [True, False])
def test_ids_are_those_of_the_library(at_whitespace: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr(words, "_MOST", 200)  # so that kept words are forgotten
    random_ = random.Random(0)
    compared = 0
    for _ in range(30):
        tokenizer = made(random_, at_whitespace)
        encoder = rt.Vocabulary.load(tokenizer).gigatoken
        assert isinstance(encoder, WordEncoder)
        for _ in range(30):
            text = "".join(
                random_.choices(LETTERS + "AzÉ    \n\t\u00a0\u2003", k=random_.randint(0, 30))
            )
            ids = encoder.encode(text)
            if ids is not None:
                compared += 1
                assert ids.tolist() == tokenizer.encode(text, add_special_tokens=False).ids
    assert compared > 400


def test_words_end_where_the_library_ends_them() -> None:
    tokenizer = made(random.Random(1), True)
    tokenizer.normalizer = normalizers.Sequence([])  # type: ignore[assignment]
    encoder = rt.Vocabulary.load(tokenizer).data.encoder
    points = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    cut: Any = pre_tokenizers.WhitespaceSplit()
    for begin in range(0, len(points), 4096):
        text = "".join(f"a{point}b " for point in points[begin : begin + 4096])
        split = [word for word, _ in cut.pre_tokenize_str(text)]
        some = encoder.words(text)  # type: ignore[attr-defined]
        assert some is None or some == split


def test_text_of_added_tokens_is_left_to_the_library() -> None:
    tokenizer = made(random.Random(2), False)
    tokenizer.add_tokens(["abc"])
    vocab = rt.Vocabulary.load(tokenizer)
    assert vocab.gigatoken.encode("b abc") is None
    assert vocab.encode("b abc").tolist() == tokenizer.encode("b abc").ids


def test_a_twin_without_special_tokens_is_made_for_texts_that_spell_one() -> None:
    tokenizer = made(random.Random(3), False)
    pieces = [*json.loads(tokenizer.to_str())["model"]["vocab"], ("</s>", 0.0), ("<", -1.0)]
    pieces += [(character, -1.0) for character in "/s>"]
    tokenizer.model = models.Unigram([*map(tuple, pieces)], 0, False)
    tokenizer.normalizer = normalizers.NFKC()  # type: ignore[assignment]
    tokenizer.add_special_tokens(["</s>"])
    vocab = rt.Vocabulary.load(tokenizer)
    (special,) = vocab.encode("</s>", parse_special=True)[-1:]
    assert vocab.encode("a b").tolist() == tokenizer.encode("a b", add_special_tokens=False).ids
    assert "tokenizer" not in vars(vocab.data.encoder)
    for text in ("a</s>b", "\uff1c/s>"):  # the second is written so by the normalizer
        ids = vocab.encode(text)
        assert special not in ids
        assert vocab.decode(ids) == f" {text}".replace("\uff1c", "<")
    assert "tokenizer" in vars(vocab.data.encoder)
    again = pickle.loads(pickle.dumps(vocab))
    assert again.encode("a</s>b").tolist() == vocab.encode("a</s>b").tolist()
