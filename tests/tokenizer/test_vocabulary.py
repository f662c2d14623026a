"""Reading tokenizers, their stages and canonical encodings; what is not exact is refused."""

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.guard.tokenizers_of import BYTES, added_token, bpe_model, byte_level, tokenizer_json
from tests.oracles.data import data_path, real
from tests.oracles.vocabulary import toy
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.models import BPE

import robustok as rt
from robustok.errors import RobustokError
from robustok.samplers import bpe_dropout
from robustok.tokenizer.data import broken_spans, byte_alphabet, split_at_broken
from robustok.tokenizer.stages import Stages
from robustok.tokenizer.tokenizers_api import parts_of


def bpe(**model) -> str:
    """A tokenizer.json of a small byte-level BPE."""
    vocab = {c: i for i, c in enumerate(sorted(byte_alphabet()))}
    merges = [["a", "b"], ["ab", "c"], ["Ġ", "a"]]
    for a, b in merges:
        vocab[a + b] = len(vocab)
    stage = BYTES | {"use_regex": True}
    return tokenizer_json(
        bpe_model(vocab, merges, **model), pre_tokenizer=stage, decoder=stage,
        added_tokens=[added_token(len(vocab), "<|end|>", special=True)],
    )  # fmt: skip


def unigram() -> Tokenizer:
    scores = [("<unk>", 0.0), ("▁", -2.0), ("a", -2.0), ("b", -2.0), ("▁ab", -1.0), ("ab", -3.0)]
    tokenizer = Tokenizer(models.Unigram(scores, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tokenizer.json").write_text(bpe(), encoding="utf8")
    return tmp_path


def test_a_fingerprint_tells_tokenizers_of_the_same_tokens_apart() -> None:
    vocab = rt.Vocabulary.load(Tokenizer.from_str(bpe()))
    normalizes = Tokenizer.from_str(bpe())
    normalizes.normalizer = normalizers.NFC()
    spaced = Tokenizer.from_str(bpe())
    spaced.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    others = [rt.Vocabulary.load(tokenizer) for tokenizer in (normalizes, spaced)]
    assert {tuple(v.tokens) for v in others} == {tuple(vocab.tokens)}
    assert len({v.fingerprint for v in (vocab, *others)}) == 3
    with pytest.raises(RobustokError, match="another vocabulary"):
        rt.sampler(rt.sampler("uniform", vocab), others[0])


def test_paths_folders_and_objects_read_alike(folder) -> None:
    path = folder / "tokenizer.json"
    transformers = pytest.importorskip("transformers")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))
    sources = [str(path), path, str(folder), Tokenizer.from_file(str(path)), fast]
    vocabs = [rt.Vocabulary.load(way) for way in sources]
    assert len({v.fingerprint for v in vocabs}) == 1
    assert rt.Vocabulary.load(vocabs[0]) is vocabs[0]
    vocab = vocabs[0]
    ids = vocab.encode("abc ab")
    assert ids.dtype == np.int32
    assert [vocab.tokens[i] for i in ids] == [b"abc", b" ", b"ab"]
    assert len(vocab) == vocab.size == 260
    assert vocab.special == {259}
    assert vocab.decode(ids) == "abc ab"


def test_plain_bytes_are_those_of_ordinary_ids_alone(folder) -> None:
    vocab = rt.Vocabulary.load(folder)
    ids = vocab.encode("ab abc")
    assert vocab.plain_bytes(ids.tolist()) == b"ab abc"
    for wrong in (259, vocab.size, -1):
        assert vocab.plain_bytes([*ids.tolist(), wrong]) is None
    assert vocab.plain_bytes([]) is None


def test_bytes_that_are_no_text_are_encoded_byte_by_byte(folder) -> None:
    vocab = rt.Vocabulary.load(folder)
    raw = b"ab\xff\xfe abc\xc3"
    assert vocab.decode_bytes(vocab.encode(raw)) == raw
    many = np.resize(vocab.encode(raw), 5000)
    assert vocab.decode_bytes(many) == b"".join(vocab.tokens[i] for i in many)
    assert vocab.encode(b"abc").tolist() == vocab.encode("abc").tolist()
    assert len(vocab.encode("")) == 0


def test_the_ordinary_of_two_ids_with_the_same_bytes_is_in_the_vocabulary() -> None:
    vocab = real("llama2")
    twins = [i for i, t in enumerate(vocab.tokens) if t == b"A"]
    assert len(twins) == 2
    assert vocab.ordinary[twins].tolist() == [False, True]
    assert vocab.readable[twins].all()
    for drawn in rt.Uniform(vocab).sample_batch(["A cat"], seed=0, draws=50):
        assert twins[0] not in drawn


def test_a_twin_that_the_reference_holds_is_on_its_path() -> None:
    vocab = real("llama2")
    twin = min(i for i, t in enumerate(vocab.tokens) if t == b"A")
    row = np.array([twin, *vocab.encode("b")], np.int32)
    lattice = rt.Lattice(vocab, row)
    assert lattice.count(distance=0) == 1
    assert next(lattice.enumerate(distance=0)).tolist() == row.tolist()
    assert rt.sampler("uniform-k(k=0)", vocab).sample(row, seed=0).tolist() == row.tolist()


def test_a_continuation_has_no_space_that_the_encoder_adds() -> None:
    vocab = real("llama2")
    yes, no, cat = vocab.encode_continuations([" yes", "no", b" A cat"])
    assert [vocab.decode_bytes(ids) for ids in (yes, no, cat)] == [b" yes", b"no", b" A cat"]
    answered = vocab.encode("Answer: yes").tolist()
    assert answered == [*vocab.encode("Answer:").tolist(), *yes.tolist()]


def test_missing_files_are_one_line(tmp_path) -> None:
    for name, message in (
        (str(tmp_path / "none" / "tokenizer.json"), "no file or folder .*give one that exists"),
        (str(tmp_path), "no tokenizer.json and no tokenizer.model"),
        ("a" * 300, "no file, no folder and no hub name .*too long"),
    ):
        with pytest.raises(rt.RobustokError, match=message):
            rt.Vocabulary.load(name)
    with pytest.raises(rt.RobustokError, match="cannot read a tokenizer from int"):
        rt.Vocabulary.load(3)


def test_sentencepiece_models() -> None:
    pytest.importorskip("sentencepiece")
    path = data_path("tokenizers", "llama2", "tokenizer.model")
    vocab, twin = rt.Vocabulary.load(path), real("llama2")
    text = "Hello, wörld! 根 12"
    assert vocab.encode(text).tolist() == twin.encode(text).tolist()
    assert vocab.tokens[3:] == twin.tokens[3:]
    assert np.array_equal(vocab.ordinary, twin.ordinary)


def test_a_vocabulary_travels_without_its_tables() -> None:
    vocab = toy([b"a", b"aa"])
    small = len(pickle.dumps(vocab))
    rt.StochasTok(vocab, alpha=1).sample("aaaa", seed=0)
    assert vocab.trie is not None
    assert len(pickle.dumps(vocab)) == small
    assert pickle.loads(pickle.dumps(vocab)).fingerprint == vocab.fingerprint


def test_mid_text_after_an_encoder_that_puts_a_space_first_may_begin_with_a_newline() -> None:
    vocab = byte_level(None, prefix=True)
    ids = vocab.encode_continuations_unchecked([b"\n\n\tthat"])[0]
    assert vocab.decode_bytes(ids) == b"\n\n\tthat"
    assert len(ids) < len(b"\n\n\tthat")


TEXT = "I'd  like 12 ▁ cafés,\n\tplease."


def stages_of(pre_tokenizer: object = None, normalizer: object = None) -> Stages:
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer, tokenizer.normalizer = pre_tokenizer, normalizer  # type: ignore
    return Stages.of_parts(parts_of(tokenizer, {}))


def split(pattern: str, behavior: str = "isolated", invert: bool = False) -> object:
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


SPELL = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


@pytest.mark.parametrize(
    ("stage", "normalizer", "spells"),
    [
        (None, None, False),
        (pre_tokenizers.ByteLevel(add_prefix_space=False), None, True),
        (pre_tokenizers.ByteLevel(add_prefix_space=True), None, False),
        (pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFC(), False),
        (pre_tokenizers.Sequence([pre_tokenizers.Digits(), SPELL]), None, True),
        (pre_tokenizers.Sequence([split(r"\w+|\W+", "removed", invert=True), SPELL]), None, False),
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
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), SPELL]),
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


def fallback(missing: str = "", **model) -> Tokenizer:
    """A BPE with byte fallback, without one of the byte tokens."""
    spellings = [*(f"<0x{b:02X}>" for b in range(256)), "▁", "a", "b", "ab"]
    vocab = {spelling: i for i, spelling in enumerate(p for p in spellings if p != missing)}
    content = tokenizer_json(bpe_model(vocab, [["a", "b"]], byte_fallback=True, **model))
    tokenizer = Tokenizer.from_str(content)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


@pytest.mark.parametrize(
    ("vocab", "text", "missing"),
    [
        (byte_level(None, alphabet=False), "ZZZZ", "Z"),
        (byte_level(None, alphabet=False), "hello Zed", "Z"),
        (rt.Vocabulary.load(fallback("<0x0A>")), "a\nb", r"\\n"),
    ],
)
def test_what_has_no_token_is_refused(vocab: rt.Vocabulary, text: str, missing: str) -> None:
    message = f"no token for '{missing}': this text cannot be tokenized"
    scheme = rt.Uniform(vocab)
    for call in (
        lambda: vocab.encode(text), lambda: vocab.encode(text, parse_special=True),
        lambda: vocab.encode_batch(["b", text * 70_000]), lambda: scheme.sample(text, seed=0),
        lambda: rt.StochasTok(vocab).sample(text, seed=0),
    ):  # fmt: skip
        with pytest.raises(RobustokError, match=message):
            call()
    assert vocab.decode_bytes(vocab.encode("b o")) == b"b o"


def test_what_a_pattern_of_tiktoken_leaves_out_is_in_no_draw() -> None:
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([b]): b for b in range(256)} | {b"ab": 256, b"bb": 257}
    encoding = tiktoken.Encoding(
        "x", pat_str="[a-z]+", mergeable_ranks=ranks, special_tokens={}
    )  # "|" and what else it does not match is lost
    vocab = rt.Vocabulary.load(encoding)
    assert vocab.encode("ab|ab").tolist() == encoding.encode("ab|ab") == [256, 256]
    uniform = rt.Uniform(vocab)
    assert vocab.decode_bytes(uniform.sample("ab|ab", seed=0)) == b"abab"
    with pytest.raises(RobustokError, match=r"cannot be tokenized exactly: its ids spell 'bb'"):
        vocab.encode("b|b")  # the ids of "bb" are others


def test_bpe_dropout_of_tiktoken_needs_cuts_that_are_borders_of_its_ids(monkeypatch) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([b]): b for b in range(256)} | {b"ab": 256}
    encoding = tiktoken.Encoding("x", pat_str="(?s).+", mergeable_ranks=ranks, special_tokens={})
    vocab = rt.Vocabulary.load(encoding)
    assert vocab.encode("ab\nb").tolist() == [256, 10, 98]
    drawn = rt.BpeDropout(vocab, p=0.5).sample_batch(["ab\nb"], seed=0, draws=20)
    assert {len(row) for row in drawn} == {3, 4}
    for ends_of in (None, lambda text: [1, 2, 3, 4], lambda text: [3], lambda text: [2, 2, 4]):
        monkeypatch.setattr(bpe_dropout, "_ends_by_regex", lambda pattern, ends_of=ends_of: ends_of)
        with pytest.raises(RobustokError, match=r"the pre-tokens of the text 'ab.*' are not known"):
            rt.BpeDropout(rt.Vocabulary.load(encoding), p=0.1).sample("ab\nb", seed=0)


def test_what_tiktoken_has_no_token_for_is_refused() -> None:
    tiktoken = pytest.importorskip("tiktoken")
    encoding = tiktoken.Encoding(
        "toy", pat_str=r"\S+|\s+", mergeable_ranks={b"a": 0, b"b": 1, b"ab": 2}, special_tokens={}
    )
    vocab = rt.Vocabulary.load(encoding)
    assert vocab.encode("ab").tolist() == [2]
    for call in (vocab.encode, lambda text: rt.Uniform(vocab).sample(text, seed=0)):
        with pytest.raises(RobustokError, match="tiktoken cannot encode this text"):
            call("abc")


@pytest.mark.parametrize("model", ["Unigram", "BPE"])
def test_a_special_token_that_the_model_would_find_in_a_text_is_text(model: str) -> None:
    spellings = ["<unk>", "<s>", "a", "<", "s", ">"]
    if model == "Unigram":
        inside: dict = {"type": "Unigram", "unk_id": 0, "byte_fallback": False,
                        "vocab": [[p, -float(i)] for i, p in enumerate(spellings)]}  # fmt: skip
    else:
        vocab = {p: i for i, p in enumerate(spellings)}
        inside = bpe_model(vocab, [], ignore_merges=True, unk_token="<unk>")
    content = tokenizer_json(inside, added_tokens=[added_token(1, "<s>", special=True)])
    vocab = rt.Vocabulary.load(Tokenizer.from_str(content))
    for own in (vocab, pickle.loads(pickle.dumps(vocab))):
        for text in ("<s>", "a<s>"):
            assert 1 not in own.encode(text)
            assert own.decode_bytes(own.encode(text)) == text.encode()
            assert 1 in own.encode(text, parse_special=True)


def test_a_tokenizer_object_of_the_caller_stays_as_it_is() -> None:
    tokenizer = Tokenizer.from_str(bpe(dropout=0.5))
    tokenizer.enable_truncation(3)
    before = tokenizer.to_str(), tokenizer.encode_special_tokens
    vocab = rt.Vocabulary.load(tokenizer)
    vocab.encode("a<|end|>")
    vocab.encode("a<|end|>", parse_special=True)
    assert (tokenizer.to_str(), tokenizer.encode_special_tokens) == before


def test_broken_bytes_need_no_token_for_0xff() -> None:
    vocab = byte_level(None, alphabet=False)
    assert vocab.decode_bytes(vocab.encode_continuations_unchecked([b"hello"])[0]) == b"hello"
    with pytest.raises(RobustokError, match="no token for byte 0xFF"):
        vocab.encode(b"hello\xff")


def test_each_distinct_chunk_between_broken_bytes_is_encoded_once_in_one_call() -> None:
    vocab = byte_level(None, prefix=True)
    encoder, calls = vocab.data.encoder, []

    class Counting:
        def accepts(self, texts):
            return True

        def encode_batch(self, texts, parse_special):
            calls.append(len(texts))
            return encoder.encode_batch(texts, parse_special)

    object.__setattr__(vocab.data, "encoder", Counting())
    raw = b"\xff".join([b"hello", b" world", b"the", b"", b"the fox"] * 500)
    assert vocab.decode_bytes(vocab.encode(raw)) == b" " + raw
    assert len(calls) <= 8
    assert sum(calls) < 30


# Broken UTF-8


_PARTS = [
    b"a", b"\x00", b"\x7f", "é".encode(), "根".encode(), "😀".encode(), b"\xff", b"\x80",
    b"\xc0\x80", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xf4\x90\x80\x80",
    b"\xf5",
]  # fmt: skip
_BYTES = st.binary(max_size=30) | st.lists(st.sampled_from(_PARTS), max_size=12).map(b"".join)


def one_by_one(data: bytes) -> list[int]:
    """The positions of invalid bytes, by the codec's own errors."""
    invalid: list[int] = []
    at = 0
    while True:
        try:
            data[at:].decode("utf8")
            return invalid
        except UnicodeDecodeError as e:
            invalid += range(at + e.start, at + e.end)
            at += e.end


@given(_BYTES, st.booleans())
def test_broken_spans_hold_the_bytes_that_the_codec_refuses(data: bytes, is_long: bool) -> None:
    data = b"a" * 64 * is_long + data  # short ones are read without arrays
    begin, end = broken_spans(data)
    spans = list(zip(begin.tolist(), end.tolist(), strict=True))
    assert [i for a, b in spans for i in range(a, b)] == one_by_one(data)
    assert all(b < a for (_, b), (a, _) in pairwise(spans))
    parts = list(split_at_broken(data))
    assert b"".join(data[a:b] for a, b, _ in parts) == data
    for a, b, valid in parts:
        assert one_by_one(data[a:b]) == ([] if valid else list(range(b - a)))
