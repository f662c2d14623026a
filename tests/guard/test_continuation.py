"""Masks of the ids that may follow, against the guard's verdict on the whole sequence."""

from __future__ import annotations

import numpy as np
import pytest
from tests.guard.tokenizers_of import LLAMA3, TEXT, byte_level, metaspace, metaspace_tokenizer
from tests.oracles.data import data_path, real
from tokenizers import normalizers

import robustok as rt
from robustok.guard import Guard
from robustok.guard.continuation import Continuation, _cut_short
from robustok.runtime.files import read_rows
from robustok.tokenizer.data import broken_spans


@pytest.fixture(scope="module", params=["byte-level", "metaspace"])
def vocab(request: pytest.FixtureRequest) -> rt.Vocabulary:
    return byte_level(LLAMA3) if request.param == "byte-level" else metaspace(prefix=True)


ASCII = [text.encode().decode("ascii", "ignore").replace("<|", "<") for text in TEXT]


def test_masks_are_the_guards_verdicts(vocab: rt.Vocabulary) -> None:
    follow, guard = Continuation(vocab), rt.Guard(vocab, allow_special=True)
    random = np.random.default_rng(0)
    compared = refused = 0
    for text in ASCII[:2]:
        ids = vocab.encode(text)
        for size in random.choice(len(ids), 3, replace=False).tolist():
            start = ids[:size]
            allowed = follow.allowed(start)
            rows = [np.append(start, i) for i in range(vocab.size)]
            canonical = guard.check_batch(rows).canonical
            for row, may, is_canonical in zip(rows, allowed, canonical, strict=True):
                written = vocab.decode_bytes(row)
                # Within a character, and before the end of a run of spaces, more may follow.
                if len(broken_spans(written)[0]) or written[-1:].isspace():
                    continue
                compared += 1
                refused += not may
                assert may == is_canonical, (text, size, row[-1])
    assert 10 < refused < compared


@pytest.mark.parametrize(
    ("pattern", "nfc"),
    [(None, False), (LLAMA3, False), (LLAMA3, True)],
    ids=["gpt2", "llama3", "nfc"],
)
def test_ids_that_are_kept_give_the_masks_of_whole_texts(pattern: str | None, nfc: bool) -> None:
    vocab = byte_level(pattern, nfc=nfc)
    follow, alone = Continuation(vocab), Continuation(vocab)
    assert follow._encodes_pre_tokens
    text = "".join(TEXT) + " the  rest\n\n x \t 9'tis'  e\u0301 \r\n\u2003the?!  "
    ids = vocab.encode(text)
    for size in range(0, len(ids), 9):
        tail = ids[follow._restart(ids[:size]) : size]
        mask = follow._mask(tail)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Continuation, "_encodes_pre_tokens", False)
            assert np.array_equal(mask, alone._mask(tail)), vocab.decode(ids[:size])


def test_a_mask_is_every_id_encoded_after_every_context(gpt2_like: rt.Vocabulary) -> None:
    follow = Continuation(gpt2_like)
    whole = [i for i in range(gpt2_like.size) if gpt2_like.readable[i]
             and not gpt2_like.tokens[i][-1:].isspace()
             and not len(broken_spans(gpt2_like.tokens[i])[0])]  # fmt: skip
    for first in whole[::9]:
        allowed = follow.allowed([first])
        text = gpt2_like.decode_bytes([first])
        rows = gpt2_like.encode_batch([text + gpt2_like.tokens[i] for i in whole])
        naive = [row.tolist() == [first, i] for row, i in zip(rows, whole, strict=True)]
        canonical = gpt2_like.encode(text).tolist() == [first]
        assert allowed[whole].tolist() == [one and canonical for one in naive]


def test_a_canonical_text_is_allowed_id_by_id(vocab: rt.Vocabulary) -> None:
    follow = Continuation(vocab)
    for text in ASCII[:2]:
        ids = vocab.encode(text)
        for size in range(len(ids)):
            start = follow._restart(ids[:size])
            assert follow.is_start(ids[start : size + 1]), (text, size)
        for size in range(0, len(ids), 16):
            assert follow.allowed(ids[:size])[ids[size]], (text, size)


def test_a_text_goes_on_after_spaces_where_the_encoder_adds_one_only_where_there_is_none() -> None:
    vocab = byte_level(None, prefix=True)
    follow = Continuation(vocab)
    for text in ("the  rest", "  the", "12  \n the"):
        ids = vocab.encode(text)
        assert follow.is_start(ids), text
        for size in range(0, len(ids), 2):
            assert follow.allowed(ids[:size])[ids[size]], (text, size)


def test_what_is_allowed_within_a_character_can_be_ended(gpt2_like: rt.Vocabulary) -> None:
    follow, guard = Continuation(gpt2_like), rt.Guard(gpt2_like, allow_special=True)
    random = np.random.default_rng(0)
    for _ in range(2):
        ids: list[int] = []
        while len(ids) < 12 or _cut_short(gpt2_like.decode_bytes(ids)):
            allowed = np.flatnonzero(follow.allowed(ids) & gpt2_like.readable)
            assert len(allowed)
            ids.append(int(random.choice(allowed)))
        written = gpt2_like.decode(ids)
        assert "\ufffd" not in written
        if not written[-1:].isspace():
            assert guard.check(ids).canonical, ids


@pytest.mark.parametrize("name", ["gpt2", "llama3"])
def test_real_tokenizers(name: str) -> None:
    follow = Continuation(real(name))
    rows = read_rows(data_path("corpus", "hard_cases.jsonl"))[::4]
    refused = total = 0
    for row in rows:
        ids = follow.vocab.encode(row["text"])
        for size in range(min(len(ids), 40)):
            start = follow._restart(ids[:size])
            refused += not follow.is_start(ids[start : size + 1])
            total += 1
    assert total > 100
    assert refused <= 8  # rare scripts and noncharacters


def test_bytes_that_begin_no_character_may_be_followed_by_text() -> None:
    vocab = byte_level(None)
    follow = Continuation(vocab)
    for broken in (b"\x80", b"\xff", b"\xc0", b"a\xf5", b"\xe0\x80", b"\xf4\x90", b"\xed\xa0"):
        allowed = follow.allowed(vocab.encode(broken))
        assert allowed[vocab.encode("a")[0]]
        assert allowed[~vocab.readable].all()


def test_characters_that_the_normalizer_deletes_give_no_ids() -> None:
    tokenizer = metaspace_tokenizer(prefix=False)
    deletes = normalizers.Replace("\u200b", "")
    tokenizer.normalizer = normalizers.Sequence([deletes, tokenizer.normalizer])  # type: ignore
    vocab = rt.Vocabulary.load(tokenizer)
    ids = vocab.encode("the rest")
    allowed = Continuation(vocab).allowed(ids[:1])
    assert allowed[ids[1]]
    assert Guard(vocab).check(vocab.encode("the\u200b rest")).canonical
