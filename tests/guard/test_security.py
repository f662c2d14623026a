"""The guard in front of strangers: limits, hostile rows, and what repairing must give."""

import unicodedata

import pytest
from tests.guard.tokenizers_of import LLAMA3, byte_level, metaspace
from tests.oracles.data import real
from tokenizers import AddedToken, Tokenizer, models

import robustok as rt
from robustok.guard import SPECIAL_ID, TEXT_CHANGES, UNKNOWN_ID, Guard
from robustok.guard.findings import MAX_FINDINGS


def test_repair_is_canonical_for_every_character_that_nfc_changes() -> None:
    vocab = byte_level(LLAMA3, nfc=True)
    changed = [c for c in map(chr, [*range(0x300, 0xD800), *range(0xF900, 0xFB50)])
               if unicodedata.normalize("NFC", c) != c]  # fmt: skip
    single = [vocab.tokens.index(bytes([b])) for b in range(256)]
    rows = [
        [single[b] for b in (before + c + after).encode()]
        for c in changed for before, after in (("", ""), ("the", " rest"), (" ", "\u0301"))
    ]  # fmt: skip
    verdicts = Guard(vocab).check_batch(rows)
    assert Guard(vocab).check_batch(verdicts.repaired).canonical.all()


def test_a_first_word_without_its_space_is_a_finding() -> None:
    vocab = metaspace(prefix=True)
    guard, with_space = Guard(vocab), vocab.encode("the")
    without = [i for i, token in enumerate(vocab.tokens) if token == b"t"][-1:]
    rest = vocab.encode_continuations_unchecked([b"he"])[0]
    verdict = guard.check([*without, *rest])
    assert not verdict.canonical and not verdict.round_trip
    assert TEXT_CHANGES in verdict.findings.kinds
    assert verdict.repaired.tolist() == with_space.tolist()
    assert guard.check(with_space).canonical
    # A lone space is that of no text.
    verdict = guard.check(vocab.encode_continuations_unchecked([b" "])[0])
    assert not verdict.canonical and TEXT_CHANGES in verdict.findings.kinds
    assert verdict.repaired.tolist() == []
    assert Guard(real("llama2")).check([29871]).canonical is False


@pytest.mark.parametrize("options", [{"single_word": True}, {"lstrip": True}, {"rstrip": True}])
def test_added_tokens_that_depend_on_their_surroundings(options: dict[str, bool]) -> None:
    vocab = byte_level(LLAMA3)
    tokenizer = Tokenizer.from_str(vocab.data.library.to_str())
    tokenizer.add_tokens([AddedToken("<w>", normalized=False, **options)])
    vocab = rt.Vocabulary.load(tokenizer)
    texts = ["the <w> rest", "the<w>rest", "<w>", "  <w>  the", "the <w><w> rest", "a<w> b"]
    guard = Guard(vocab, allow_special=True)
    assert guard.check_batch(vocab.encode_batch(texts)).canonical.all()
    added = vocab.size - 1
    inside = [*vocab.encode("the").tolist(), added, *vocab.encode("rest").tolist()]
    expected = vocab.encode(vocab.decode(inside)).tolist() == inside
    assert guard.check(inside).canonical == expected


def test_admit_repairs_and_refuses(gpt2_like: rt.Vocabulary) -> None:
    guard = Guard(gpt2_like)
    the, t, he = (gpt2_like.encode(text).tolist() for text in ("the", "t", "he"))
    assert guard.admit(the).tolist() == the
    assert guard.admit([*t, *he]).tolist() == the
    for wrong in ([*the, 0], [*the, 99999], [-1]):
        with pytest.raises(rt.RobustokError, match="cannot be admitted"):
            guard.admit(wrong)


def test_a_text_that_the_tokenizer_deletes_is_not_admitted() -> None:
    model = models.BPE({"a": 0, "b": 1, "xy": 2, "ab": 3}, [("a", "b")])
    vocab = rt.Vocabulary.load(Tokenizer(model))  # no text has the id of "xy"
    verdict = Guard(vocab).check([0, 2, 1])
    assert verdict.findings.deletes_text and not len(verdict.repaired)
    with pytest.raises(rt.RobustokError, match="deletes a part of the text"):
        Guard(vocab).admit([0, 2, 1])
    assert Guard(vocab).admit([0, 1]).tolist() == [3]


def test_findings_are_listed_up_to_a_limit_and_counted_to_the_end(gpt2_like: rt.Vocabulary) -> None:
    guard = Guard(gpt2_like)
    findings = guard.check([99999] * 5000 + [0]).findings
    assert (len(findings), findings.total) == (MAX_FINDINGS, 5001)
    assert bool(findings) and findings.kinds == {UNKNOWN_ID, SPECIAL_ID}
    assert findings[-1].begin == MAX_FINDINGS - 1
    assert not guard.check(gpt2_like.encode("the")).findings


def test_a_special_id_behind_many_findings_is_not_admitted(gpt2_like: rt.Vocabulary) -> None:
    cut = [*gpt2_like.encode("t").tolist(), *gpt2_like.encode("he").tolist()]
    row = [*cut, *gpt2_like.encode(" ").tolist()] * (MAX_FINDINGS + 10) + [0]
    with pytest.raises(rt.RobustokError, match=r"cannot be admitted: id 3030, .* special token"):
        Guard(gpt2_like).admit(row)


def test_long_sequences_are_refused(gpt2_like: rt.Vocabulary) -> None:
    guard = Guard(gpt2_like, max_length=3)
    assert guard.check([1, 2, 3]) is not None
    batch = rt.Ragged.from_rows([[2], [2, 2, 2, 2]])
    for rows in ([[2], [2, 2, 2, 2]], batch):
        with pytest.raises(rt.RobustokError, match="sequence 1: 4 ids, the guard takes at most 3"):
            guard.check_batch(rows)
    with pytest.raises(rt.RobustokError, match="at most 1048576"):
        Guard(gpt2_like).check(range(2**20 + 1))
    assert len(Guard(gpt2_like, max_length=None).check([2] * (2**20 + 1)).repaired)
