"""Verdicts against the slow way: encode the whole text again and compare."""

import pickle
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.guard.tokenizers_of import LLAMA3, TEXT, byte_level, metaspace, unigram_with_bytes
from tests.oracles.data import TOKENIZERS, data_path, real
from tokenizers import AddedToken, Tokenizer, models

import robustok as rt
from robustok.guard import (
    NOT_CANONICAL,
    NOT_UTF8,
    SPECIAL_ID,
    SPECIAL_TEXT,
    TEXT_CHANGES,
    UNKNOWN_ID,
    Guard,
    Verdict,
    describe,
)
from robustok.guard.findings import MAX_FINDINGS
from robustok.runtime.inputs import read_rows

CHARACTERS = "aests 1239.!'?@<|\n\r\t_é\u0301東😀\u00a0\u2003ſd"
texts = st.lists(
    st.sampled_from([*CHARACTERS, " the", "  ", "don't", "12345", "rest"]), max_size=14
)


def kinds(verdict: Verdict) -> list[str]:
    return [f.kind for f in verdict.findings]


def assert_agrees(vocab: rt.Vocabulary, rows: list[np.ndarray], guard: Guard) -> None:
    """Each verdict is what encoding the row's whole text again tells."""
    verdicts = guard.check_batch(rows)
    for row, verdict in zip(rows, verdicts, strict=True):
        if TEXT_CHANGES in kinds(verdict):
            text = vocab.decode(row)
            assert vocab.decode(vocab.encode(text)) != text
            continue
        expected = vocab.canonicalize(row)
        assert verdict.repaired.tolist() == expected.tolist()
        assert verdict.canonical == np.array_equal(row, expected)
        assert verdict.distance == rt.distance(vocab, expected, row)
        measured = rt.measure(vocab, rt.Ragged.from_rows([expected]), rt.Ragged.from_rows([row]))
        assert verdict.splits == measured.splits[0]
        assert_stretches(vocab, row, verdict)


def assert_stretches(vocab: rt.Vocabulary, row: np.ndarray, verdict: Verdict) -> None:
    """Put in the place of the ids that deviate, the canonical ones make the row canonical."""
    spans, at = [], 0
    for finding in verdict.findings:
        if finding.kind != NOT_CANONICAL:
            continue
        assert row[finding.begin : finding.end].tolist() == list(finding.ids)
        assert vocab.decode_bytes(finding.ids) == vocab.decode_bytes(finding.canonical)
        spans += [*row[at : finding.begin].tolist(), *finding.canonical]
        at = finding.end
    assert [*spans, *row[at:].tolist()] == verdict.repaired.tolist()


@settings(max_examples=60)
@given(parts=texts, seed=st.integers(0, 99))
def test_agrees_with_encoding_everything_again(
    vocab: rt.Vocabulary, parts: list[str], seed: int
) -> None:
    text = "".join(parts)
    canonical = vocab.encode(text)
    rows = [canonical]
    rows += [rt.sampler(s, vocab).sample(canonical, seed=seed)
             for s in ("uniform", "stochastok(alpha=0.3)")]  # fmt: skip
    rows.append(rows[-1][1:])  # may begin within a character
    assert_agrees(vocab, rows, guard_of(vocab))


_GUARDS: dict[str, Guard] = {}


def guard_of(vocab: rt.Vocabulary) -> Guard:
    """One guard a vocabulary, so that what it remembers is tested too."""
    name = f"{vocab.fingerprint} {vocab.encode('a é')}"  # two encoders may have the same tokens
    return _GUARDS.setdefault(name, Guard(vocab, allow_special=True))


@settings(max_examples=100)
@given(data=st.data())
def test_agrees_on_any_ids_at_all(vocab: rt.Vocabulary, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.sampled_from(np.flatnonzero(vocab.ordinary).tolist()), max_size=12))
    assert_agrees(vocab, [np.array(ids, np.int32)], guard_of(vocab))


@pytest.mark.parametrize("allow_special", [False, True])
@settings(max_examples=60)
@given(parts=texts, data=st.data())
def test_a_row_alone_gets_the_verdict_of_its_batch(
    vocab: rt.Vocabulary, allow_special: bool, parts: list[str], data: st.DataObject
) -> None:
    guard = Guard(vocab, allow_special=allow_special)
    head, tail = guard.vocab.frame
    drawn = rt.sampler("stochastok(alpha=0.3)", vocab).sample("".join(parts), seed=len(parts))
    any_id = st.integers(-1, vocab.size) | st.sampled_from([*head, *tail, 0, 1, 2])
    row = data.draw(st.sampled_from([[], head])) + drawn.tolist() + data.draw(
        st.sampled_from([[], tail]) | st.lists(any_id, max_size=2)
    )  # fmt: skip
    (expected,) = guard.check_batch([row])
    for ids in (row, np.array(row, np.int32), tuple(row)):
        verdict = guard.check(ids)
        assert verdict == expected and verdict.repaired.tolist() == expected.repaired.tolist()
        assert verdict.repaired.dtype == np.int32


def test_says_where_and_what(gpt2_like: rt.Vocabulary) -> None:
    ids = gpt2_like.encode("the rest of the theater")
    second = int(np.flatnonzero(ids == gpt2_like.encode(" the")[0])[0])
    cut = next(gpt2_like.lattice(" the").enumerate(segments=2))
    drawn = np.concatenate([ids[:second], cut, ids[second + 1 :]])
    verdict = Guard(gpt2_like).check(drawn)
    assert (verdict.canonical, verdict.distance, verdict.splits) == (False, 2, 1)
    (finding,) = verdict.findings
    assert (finding.kind, finding.begin, finding.end) == (NOT_CANONICAL, second, second + 2)
    assert finding.canonical == (ids[second],)
    tokens = "|".join(gpt2_like.tokens[i].decode() for i in cut).replace(" ", "·")
    line = f"ids {second} to {second + 1}, '{tokens}', should be '·the'"
    assert describe(gpt2_like, finding) == line
    assert verdict.repaired.tolist() == ids.tolist()


def test_unknown_ids_are_findings_whatever_their_size(gpt2_like: rt.Vocabulary) -> None:
    guard = Guard(gpt2_like)
    the = gpt2_like.encode("the").tolist()
    for wrong in (-1, gpt2_like.size, 2**31, 2**63, 2**80, -(2**80)):
        verdict = guard.check([*the, wrong, *the])
        assert kinds(verdict) == [UNKNOWN_ID]
        assert not verdict.canonical and not verdict.round_trip
        assert (verdict.distance, verdict.repaired.tolist()) == (1, the + the)
    assert guard.check([gpt2_like.size]).findings[0].ids == (gpt2_like.size,)
    assert guard.repair([999_999]).tolist() == []
    # The ids around it are one text.
    t, he = (int(gpt2_like.encode(text)[0]) for text in ("t", "he"))
    verdict = guard.check([t, 99999, he])
    assert verdict.repaired.tolist() == the and kinds(verdict) == [NOT_CANONICAL, UNKNOWN_ID]


def test_special_ids_are_findings_unless_allowed(gpt2_like: rt.Vocabulary) -> None:
    ids = [*gpt2_like.encode("the").tolist(), 0, *gpt2_like.encode(" rest").tolist()]
    verdict = Guard(gpt2_like).check(ids)
    assert kinds(verdict) == [SPECIAL_ID]
    assert verdict.canonical and verdict.round_trip and verdict.repaired.tolist() == ids
    assert not Guard(gpt2_like, allow_special=True).check(ids).findings


@pytest.mark.parametrize(
    ("text", "kind", "spelled"),
    [("the <|end|> rest", SPECIAL_TEXT, b"<|end|>"), (b"the \xff\xfe rest", NOT_UTF8, b"\xff\xfe")],
)
def test_canonical_ids_that_do_not_come_back_are_findings(
    gpt2_like: rt.Vocabulary, text: str | bytes, kind: str, spelled: bytes
) -> None:
    ids = gpt2_like.encode(text)
    verdict = Guard(gpt2_like).check(ids)
    assert kinds(verdict) == [kind]
    assert verdict.canonical and not verdict.round_trip
    assert spelled in gpt2_like.decode_bytes(verdict.findings[0].ids)
    again = gpt2_like.encode(gpt2_like.decode(ids), parse_special=True)
    assert again.tolist() != ids.tolist()


def test_text_is_not_searched_across_rows(gpt2_like: rt.Vocabulary) -> None:
    verdicts = Guard(gpt2_like).check_batch(gpt2_like.encode_batch(["a <|", "end|> b", "\xe9"]))
    assert not len(verdicts.table.kind)


def test_a_normalizer_that_changes_the_text_is_a_finding() -> None:
    vocab = byte_level(LLAMA3, nfc=True)
    ids = np.concatenate([vocab.encode("the e"), vocab.encode(b"\xcc\x81"), vocab.encode(" rest")])
    verdict = Guard(vocab).check(ids)
    assert kinds(verdict) == [NOT_CANONICAL, TEXT_CHANGES] and not verdict.round_trip
    # The finding ends before the ids that both texts end in.
    assert [(one.begin, one.end) for one in verdict.findings] == [(1, len(ids) - 1)] * 2
    assert (verdict.distance, verdict.splits) == (len(ids) - 2, 0)
    assert verdict.repaired.tolist() == vocab.encode("the é rest").tolist()


def test_a_text_that_the_tokenizer_changes_is_a_finding_of_its_row() -> None:
    vocab = unigram_with_bytes()
    plain, spelled = [257, 258], [vocab.tokens.index(bytes([c])) for c in b"<0x41>"]
    assert vocab.decode(spelled) == "<0x41>"  # which the tokenizer takes for the byte of "A"
    for verdict in (Guard(vocab).check(spelled), Guard(vocab).check_batch([plain, spelled])[1]):
        assert not verdict.canonical and vocab.decode(verdict.repaired) == "A"
        assert kinds(verdict) == [NOT_CANONICAL, TEXT_CHANGES]
    assert Guard(vocab).check_batch([spelled, plain])[1].canonical


def test_the_tokenizers_own_frame_passes() -> None:
    vocab = metaspace(prefix=True)
    guard, text = Guard(vocab), vocab.encode("the rest").tolist()
    framed = guard.check([1, *text])
    assert not framed.findings and framed.round_trip
    assert kinds(guard.check([1, *text, 1])) == [SPECIAL_ID]
    assert kinds(guard.check([*text, 2])) == [SPECIAL_ID]


def test_round_trip_is_what_decoding_and_encoding_gives(vocab: rt.Vocabulary) -> None:
    rows = [vocab.encode(t) for t in ("the rest", "", "12", "é")]
    rows += [np.array([1, *vocab.encode("the").tolist()]), np.array([1, 1, *rows[0].tolist()])]
    rows.append(rt.sampler("uniform", vocab).sample("the theater is there", seed=1))
    adds_space = vocab.decode(vocab.encode("a")) == " a"
    for row in rows:
        body = row[1:] if adds_space and row[:1].tolist() == [1] else row  # its frame
        text = vocab.decode(body)
        text = text[1:] if adds_space and text[:1] == " " else text
        again = vocab.encode(text, parse_special=True)
        assert guard_of(vocab).check(row).round_trip == np.array_equal(again, body)


def test_empty_rows_and_batches(gpt2_like: rt.Vocabulary) -> None:
    guard = Guard(gpt2_like)
    assert len(guard.check_batch([])) == 0
    verdicts = guard.check_batch([[], gpt2_like.encode("the"), []])
    assert verdicts.canonical.tolist() == [True] * 3
    assert verdicts.repaired.lengths.tolist() == [0, 1, 0]
    assert [len(v.findings) for v in verdicts[:]] == [0, 0, 0]


def test_guards_and_verdicts_are_pickled(gpt2_like: rt.Vocabulary) -> None:
    guard = Guard(gpt2_like, allow_special=True)
    rows = rt.sampler("uniform", gpt2_like).sample_batch(TEXT, seed=0)
    verdicts = guard.check_batch(rows)
    copy = pickle.loads(pickle.dumps(guard))
    assert copy.allow_special
    assert pickle.loads(pickle.dumps(verdicts))[:] == copy.check_batch(rows)[:]


def test_texts_go_to_the_fast_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    vocab = byte_level(LLAMA3)
    guard, rows = Guard(vocab), rt.sampler("uniform", vocab).sample_batch(TEXT[:2], seed=0)
    if vocab.gigatoken.reason is not None:
        pytest.skip(vocab.gigatoken.reason)
    expected = guard.check_batch(rows).repaired
    monkeypatch.setattr(type(vocab.data.encoder), "encode_batch", None)
    assert guard.check_batch(rows).repaired.values.tolist() == expected.values.tolist()


@pytest.mark.parametrize("name", TOKENIZERS)
def test_real_tokenizers_on_hard_text(name: str) -> None:
    vocab = real(name)
    lines = read_rows(data_path("corpus", "hard_cases.jsonl"))
    canonical = vocab.encode_batch([line["text"] for line in lines])
    rng = np.random.default_rng(0)
    rows = [*canonical, *rt.sampler("uniform", vocab).sample_batch(canonical, seed=0)]
    rows += [row[rng.integers(0, len(row)) :] for row in rows if len(row)]
    assert_agrees(vocab, rows, Guard(vocab, allow_special=True))


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
