"""What cannot be encoded exactly is refused, and special tokens never come from plain text.

Broken UTF-8 is found in one pass.
"""

import pickle
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.guard.tokenizers_of import added_token, bpe_model, byte_level, tokenizer_json
from tests.tokenizer.test_vocabulary import bpe
from tokenizers import Tokenizer, decoders, normalizers

import robustok as rt
from robustok.errors import RobustokError
from robustok.samplers import bpe_dropout
from robustok.tokenizer.data import broken_spans, split_at_broken


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
