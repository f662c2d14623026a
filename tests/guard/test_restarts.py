"""Nothing reaches across a restart: both sides are cut into pieces as if the other were not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.guard.tokenizers_of import LLAMA3, byte_level, metaspace
from tests.oracles.vocabulary import toy

from robustok.guard.restarts import restarts
from robustok.pieces.cutter import PieceCutter
from robustok.vocabulary import Vocabulary

ALPHABET = "as1'!\n\t \r"
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


@pytest.mark.parametrize("pattern", [None, LLAMA3, QWEN], ids=["gpt2", "llama3", "qwen"])
def test_every_short_text_falls_apart_at_its_restarts(pattern: str | None) -> None:
    vocab = byte_level(pattern)
    cutter = PieceCutter(vocab.data)
    found = restarts(vocab)
    ids = {c: int(vocab.encode(c)[0]) for c in ALPHABET}
    seen = 0
    for letters in itertools.product(ALPHABET, repeat=4):
        text = "".join(letters)
        for at in range(1, 4):
            if found.cut[found.last[ids[text[at - 1]]], found.first[ids[text[at]]]]:
                left, right, whole = (
                    cutter.cut(np.frombuffer(t.encode(), np.uint8), np.array([0, len(t)])).tolist()
                    for t in (text[:at], text[at:], text)
                )
                assert [*left, *(at + end for end in right)] == whole, (text, at)
                seen += 1
    assert seen > 5000


def test_a_space_after_a_word_is_a_restart_and_one_before_it_is_none() -> None:
    vocab = byte_level(LLAMA3)
    found = restarts(vocab)
    a, space, digit = (int(vocab.encode(c)[0]) for c in "a 1")
    assert found.cut[found.last[a], found.first[space]]
    assert not found.cut[found.last[space], found.first[a]]
    assert not found.cut[found.last[digit], found.first[digit]]


@pytest.mark.parametrize(
    "pattern",
    [r"(?<=a)b|[\x00-\x7f]", r"\ba|[\x00-\x7f]", r"(a)\1|[\x00-\x7f]", r"[a-z]+"],
    ids=["behind", "boundary", "reference", "not all covered"],
)
def test_a_pattern_that_is_not_understood_is_not_guessed_at(pattern: str) -> None:
    assert not restarts(byte_level(pattern)).cut.any()


@pytest.mark.parametrize(
    ("pattern", "joined"),
    [
        (r"a1?!|\p{Any}", {"a1", "a!", "1!"}),
        (r"aa(?=b)|a|\p{Any}", {"ab", "aa"}),
        (r"a!+(?!\S)|\p{Any}", {"a!", "!!", "!1", "!a", "!b"}),
    ],
    ids=["left out", "asked ahead", "asked ahead of all"],
)
def test_what_a_match_may_hold_or_ask_for_is_no_restart(pattern: str, joined: set[str]) -> None:
    vocab = byte_level(pattern)
    found = restarts(vocab)
    ids = {c: vocab.tokens.index(c.encode()) for c in "ab1!"}
    for a, b in itertools.product(ids, repeat=2):
        assert found.cut[found.last[ids[a]], found.first[ids[b]]] == (a + b not in joined), a + b


def test_half_characters_are_never_a_restart() -> None:
    vocab = byte_level(None)
    found = restarts(vocab)
    lead = int(vocab.encode(b"\xe6")[0])
    assert not found.cut[found.last[lead]].any()
    assert not found.cut[:, found.first[lead]].any()


def test_with_no_pattern_it_is_where_no_token_spans() -> None:
    for vocab in (metaspace(prefix=True), toy([b"a", b"b", b" ", b" a", b"ab"])):
        found = restarts(vocab)
        spanned = {pair for t in vocab.tokens for pair in itertools.pairwise(t)}
        for a, b in itertools.product(b"the ab", repeat=2):
            if all(vocab.readable[i] for i in _ids(vocab, a, b)):
                assert found.cut[a, b] == ((a, b) not in spanned)


def _ids(vocab: Vocabulary, *letters: int) -> list[int]:
    return [vocab.tokens.index(bytes([b])) for b in letters if bytes([b]) in vocab.tokens]
