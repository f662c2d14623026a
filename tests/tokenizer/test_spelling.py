"""Ids that do not spell the text they stand for: added tokens, unknown ones, twins, spaces."""

from __future__ import annotations

import io
from importlib.util import find_spec
from math import exp, fsum, isclose
from typing import Any

import numpy as np
import pytest
from tests.guard.tokenizers_of import (
    METASPACE_DECODER,
    added_token,
    bpe_model,
    needs_normalized_contents,
    tokenizer_json,
)
from tests.guard.tokenizers_of import metaspace_tokenizer as llama
from tests.tokenizer.test_exact_encoding import fallback
from tests.tokenizer.test_vocabulary import bpe
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

import robustok as rt
from robustok.errors import RobustokError
from robustok.tokenizer.data import USED_BYTES, byte_alphabet, search_of

EXACT = (
    "canonical", "characters", "uniform", "grampa(temperature=2)", "maxmatch-dropout(p=0.3)",
    "uniform-k(k=2)", "stochastok-uniform(alpha=1)", "mix(0.5 canonical, 0.5 uniform)",
)  # fmt: skip
OTHERS = ("stochastok(alpha=1)", "bpe-dropout(p=0.5)")
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
              "use_regex": True}  # fmt: skip
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}


def gpt2() -> Tokenizer:
    return Tokenizer.from_str(bpe())


def t5(**changes: Any) -> Tokenizer:
    """A Unigram without most characters, whose pre-tokenizer drops spaces and writes marks."""
    model = {"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": [
        ["<unk>", 0.0], ["▁", -2.0], ["a", -2.0], ["b", -2.1], ["▁a", -2.5], ["ab", -3.0],
    ]}  # fmt: skip
    pre = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, METASPACE]}
    return Tokenizer.from_str(tokenizer_json(
        model, pre_tokenizer=pre, decoder=METASPACE,
        added_tokens=[added_token(0, "<unk>", special=True)], **changes,
    ))  # fmt: skip


def check(tokenizer: Tokenizer, *texts: str) -> rt.Vocabulary:
    """Hold the vocabulary to the library and to the definitions, for each text."""
    vocab = rt.Vocabulary.load(tokenizer)
    guard = rt.Guard(vocab)
    for text, row in zip(texts, vocab.encode_batch(texts), strict=True):
        ids = vocab.encode(text)
        expected = tokenizer.encode(text, add_special_tokens=False).ids
        assert ids.tolist() == row.tolist() == expected, text
        check_draws(vocab, tokenizer, text, ids)
        verdict = guard.check(ids)
        assert verdict.canonical and verdict.repaired.tolist() == expected, text
        assert guard.admit(ids).tolist() == expected
        drawn = rt.Uniform(vocab).sample(ids, seed=5)
        assert guard.repair(drawn).tolist() == expected, text
    return vocab


def has_gigatoken(vocab: rt.Vocabulary) -> bool:
    """Whether gigatoken encodes for a vocabulary, where it is installed."""
    return vocab.gigatoken.reason is None or find_spec("gigatoken") is None


def check_draws(vocab: rt.Vocabulary, library: Tokenizer, text: str, ids: np.ndarray) -> None:
    lattice = vocab.lattice(text)
    rows = list(lattice.enumerate(limit=1000))
    for spec in EXACT + OTHERS:
        try:
            scheme = rt.sampler(spec, vocab)
        except RobustokError:
            continue  # not for this kind of tokenizer
        for seed in range(3):
            drawn = scheme.sample(text, seed=seed)
            assert drawn.tolist() == scheme.sample(ids, seed=seed).tolist(), (spec, text)
            assert vocab.decode_bytes(drawn) == vocab.decode_bytes(ids), (spec, text)
            assert library.decoder is None or library.decode(
                drawn.tolist(), skip_special_tokens=False
            ) == library.decode(ids.tolist(), skip_special_tokens=False), (spec, text)
            if spec in EXACT:
                assert scheme.log_prob(drawn) > -np.inf, (spec, text)
        if spec in EXACT and len(rows) < 1000:
            total = fsum(exp(scheme.log_prob(row)) for row in rows)
            assert len(rows) == lattice.count() and isclose(total, 1.0, rel_tol=1e-9), (spec, text)


@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize("normalized", [False, pytest.param(True, marks=needs_normalized_contents)])
def test_added_tokens_beside_marks_of_spaces(prefix: bool, normalized: bool) -> None:
    tokenizer = llama(prefix=prefix)
    tokenizer.add_tokens([AddedToken("<i>", normalized=normalized)])
    tokenizer.add_tokens([AddedToken("rest", normalized=normalized)])
    texts = [
        "the: <i>\nthe",
        "a <i> b",
        "<i>",
        "<i><i> a",
        "a rest",
        "rests",
        "outrested",
        "",
        " <i>",
    ]
    check(tokenizer, *texts)


@needs_normalized_contents
def test_an_added_token_that_is_a_word_stays_and_others_are_not_drawn_as_it() -> None:
    tokenizer = llama(prefix=True)
    tokenizer.add_tokens(["rest"])  # normalized: it is matched and decoded as "▁rest"
    vocab = check(tokenizer, "the rest", "the rests")
    (i,) = vocab.data.plain_added
    assert vocab.tokens[i] == b" rest" and not vocab.ordinary[i] and vocab.readable[i]
    assert i in rt.Uniform(vocab).sample("the rest", seed=0)


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word"])
@pytest.mark.parametrize("make", [gpt2, lambda: llama(prefix=True), lambda: llama(prefix=False)])
def test_added_tokens_that_take_spaces_or_stand_alone(flag: str, make: Any) -> None:
    tokenizer = make()
    tokenizer.add_tokens([AddedToken("<i>", normalized=False, **{flag: True}),
                          AddedToken("b", normalized=False, **{flag: True})])  # fmt: skip
    check(tokenizer, "a <i> b", "a<i>a", "  <i>  ", "ab a b", "abba bb", "b <i>b")


def test_of_twins_the_one_that_the_model_can_see_is_in_the_vocabulary() -> None:
    spellings = [*(f"<0x{b:02X}>" for b in range(256)), "a", " a", "▁", "▁a"]
    tokenizer = Tokenizer.from_str(tokenizer_json(
        bpe_model({s: i for i, s in enumerate(spellings)}, [["▁", "a"]], byte_fallback=True),
        normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        decoder=METASPACE_DECODER,
    ))  # fmt: skip
    vocab = check(tokenizer, " a", "a a")
    assert vocab.ordinary[256:].tolist() == [True, False, True, True]
    draw = rt.BpeDropout(vocab, p=0.4)
    assert all(257 not in draw.sample(" a", seed=seed) for seed in range(9))


def test_an_unknown_token_that_is_plain_text_is_refused() -> None:
    tokenizer = llama(prefix=True)
    tokenizer.add_tokens([AddedToken("<unk>", special=False)])
    with pytest.raises(RobustokError, match="unknown token '<unk>' is an added token that is not"):
        rt.Vocabulary.load(tokenizer)


def test_a_token_that_stands_alone_is_no_word_beside_a_special_token_of_letters() -> None:
    tokenizer = gpt2()
    tokenizer.add_tokens([AddedToken("xyz", single_word=True, normalized=False)])
    tokenizer.add_special_tokens(["END"])
    vocab = rt.Vocabulary.load(tokenizer)
    guard, uniform = rt.Guard(vocab, allow_special=True), rt.Uniform(vocab)
    # The ids of ".xyz" alone have the added token, those of "xyz" amid letters do not.
    for text in (".xyz END xyz", ".xyzEND", "ENDxyz.", "xyzENDxyzEND"):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert vocab.encode(text, parse_special=True).tolist() == ids
        assert [row.tolist() for row in vocab.encode_batch([text], parse_special=True)] == [ids]
        assert guard.check(ids).canonical
        assert guard.repair(uniform.sample(ids, seed=0)).tolist() == ids


def test_the_twin_that_the_tokenizer_takes_is_in_the_vocabulary() -> None:
    spec_vocab = {letter: i for i, letter in enumerate(sorted(byte_alphabet()))}
    spec_vocab |= {"ĠĠ": 256, "  ": 257}
    tokenizer = Tokenizer.from_str(tokenizer_json(
        bpe_model(spec_vocab, [["Ġ", "Ġ"]]), pre_tokenizer=BYTE_LEVEL, decoder=BYTE_LEVEL,
        added_tokens=[added_token(257, "  ", normalized=True)],
    ))  # fmt: skip
    vocab = check(tokenizer, "  ", "a  b", "   a")
    assert vocab.ordinary[[256, 257]].tolist() == [False, True]
    assert {len(rt.StochasTok(vocab, alpha=1).sample("  ", seed=s)) for s in range(9)} == {2}


def test_parts_beside_an_unknown_character_are_no_texts_of_their_own() -> None:
    vocab = check(t5(), "ab x", "x", "x ab x a", "ab")
    unknown = vocab.data.spelling.unknown
    assert unknown not in vocab.special and unknown in vocab.encode("ab x")


def test_a_batch_with_unknown_characters_is_drawn_as_each_text_alone() -> None:
    vocab = rt.Vocabulary.load(t5())
    uniform, texts = rt.Uniform(vocab), ["ab ab", "a🧿b", "", "b a", "🧿"]
    assert [vocab.text_bytes(text) is None for text in texts] == [False, True, False, False, True]
    rows = uniform.sample_batch(texts, seed=1, draws=3, keys=[5, 4, 3, 2, 1])
    alone = [
        row.tolist()
        for key, text in zip([5, 4, 3, 2, 1], texts, strict=True)
        for row in uniform.sample_batch([text], seed=1, draws=3, keys=[key])
    ]
    assert [row.tolist() for row in rows] == alone


def test_a_literal_mark_is_a_space() -> None:
    check(llama(prefix=True), "a▁b", "▁", "▁a", "a ▁ b", "▁▁")
    check(t5(), "a▁b", "a ▁", "▁ a")


@pytest.mark.parametrize("space", ["<0x20>", " "])
def test_a_vocabulary_without_the_mark_draws_the_same_from_text_and_ids(space: str) -> None:
    byte_names = [f"<0x{b:02X}>" for b in range(256)]
    byte_names[ord(" ")] = space
    spellings = [*byte_names, "a", "b", "ab"]
    tokenizer = Tokenizer.from_str(tokenizer_json(
        bpe_model({s: i for i, s in enumerate(spellings)}, [["a", "b"]], byte_fallback=True),
        normalizer={"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ]},
        decoder=METASPACE_DECODER,
    ))  # fmt: skip
    check(tokenizer, "ab", "a b", "")


def test_white_space_as_suffix() -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on a mat and the dog ran to the cat"] * 20),
        model_writer=model, vocab_size=40, treat_whitespace_as_suffix=True, minloglevel=5,
        hard_vocab_limit=False, normalization_rule_name="identity",
    )  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    vocab = rt.Vocabulary.load(processor)
    for text in ("the cat", "a", "the  dog z"):
        ids = vocab.encode(text)
        assert ids.tolist() == processor.encode(text) == vocab.canonicalize(ids).tolist()
        assert rt.Guard(vocab).admit(ids).tolist() == ids.tolist()
        assert rt.Canonical(vocab).log_prob(ids) == 0.0


@pytest.mark.parametrize("single_word", [False, True])
def test_a_special_token_that_is_a_word_of_the_model_is_text(single_word: bool) -> None:
    tokenizer = gpt2()
    tokenizer.add_special_tokens([AddedToken("!"), AddedToken("abc", single_word=single_word)])
    tokenizer.encode_special_tokens = True
    vocab = check(tokenizer, "ab! abc", "abcab!!", "!")
    tokenizer.encode_special_tokens = False
    for text in ("a abc", "ab!"):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        verdict = rt.Guard(vocab).check(ids)
        assert verdict.canonical and not verdict.findings, text


@pytest.mark.parametrize("left_out", [frozenset(range(256)) - USED_BYTES, frozenset([0xFF])])
def test_bytes_that_utf8_never_uses_need_no_token(left_out: frozenset[int]) -> None:
    letters = [c for c, byte in byte_alphabet().items() if byte not in left_out]
    vocab = {letter: i for i, letter in enumerate([*letters, "ab", "‼"])}
    tokenizer = Tokenizer.from_str(tokenizer_json(
        bpe_model(vocab, [["a", "b"]]), pre_tokenizer=BYTE_LEVEL, decoder=BYTE_LEVEL
    ))  # fmt: skip
    read = check(tokenizer, "ab é 日 \U0010ffff \x00", "ab‼")
    assert read.text_bytes("ab é") == "ab é".encode()
    assert has_gigatoken(read)
    assert not read.ordinary[vocab["‼"]]  # outside the alphabet, where no text gives it
    assert read.tokens[vocab["‼"]] == "‼".encode()


def test_a_tab_that_is_a_token_needs_no_byte() -> None:
    content = fallback().to_str().replace('"<0x09>"', '"\\t"')
    vocab = check(Tokenizer.from_str(content), "ab\tab é \x00", "\t")
    assert vocab.text_bytes("a\tb") == b"a\tb"
    assert has_gigatoken(vocab)


@pytest.mark.parametrize(
    ("normalizer", "accepted", "refused"),
    [
        (normalizers.Lowercase(), ["AB a", "ab"], []),
        (normalizers.Strip(), [" ab ", "a b"], []),
        (normalizers.Replace("a", "aa"), ["b"], ["a", "ab"]),
        (normalizers.Prepend("b"), ["a", "ba"], []),
    ],
)  # fmt: skip
def test_a_text_whose_ids_are_those_of_no_text_is_refused(
    normalizer: Any, accepted: list[str], refused: list[str]
) -> None:
    tokenizer = gpt2()
    tokenizer.normalizer = normalizer
    vocab = check(tokenizer, *accepted)
    for text in refused:
        with pytest.raises(RobustokError, match=r"cannot be tokenized exactly: its ids spell"):
            vocab.encode(text)


def test_a_text_that_a_normalizer_makes_an_added_token_of_is_refused() -> None:
    tokenizer = gpt2()
    tokenizer.normalizer = normalizers.Replace(Regex("^ "), "b")
    tokenizer.add_tokens([AddedToken("b", normalized=False)])
    vocab = check(tokenizer, "a a")
    with pytest.raises(RobustokError, match=r"cannot be tokenized exactly: its ids spell 'b"):
        vocab.encode("  a")


def test_a_first_token_with_two_marks_is_refused_where_the_decoder_drops_both() -> None:
    model = {"type": "Unigram", "unk_id": 0, "vocab": [
        ["<unk>", 0.0], ["▁", -1.0], ["▁▁", -1.5], ["a", -1.0],
    ]}  # fmt: skip
    stage = METASPACE | {"split": False}
    tokenizer = Tokenizer.from_str(tokenizer_json(model, pre_tokenizer=stage, decoder=stage))
    vocab = check(tokenizer, "a", "a  a")
    with pytest.raises(RobustokError, match="cannot be tokenized exactly"):
        vocab.encode("  a")


def test_a_panic_of_the_library_is_one_line() -> None:
    tokenizer = gpt2()
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    tokenizer.add_tokens([AddedToken("\u0301", normalized=True)])
    with pytest.raises(RobustokError, match="the normalizer leaves nothing of the added token"):
        rt.Vocabulary.load(tokenizer)


def test_pre_tokenizers_that_lose_spaces_are_refused() -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    with pytest.raises(RobustokError, match="its WhitespaceSplit pre-tokenizer leaves out"):
        rt.Vocabulary.load(tokenizer)


def test_many_added_tokens_are_searched_by_one_expression() -> None:
    contents = [f"<|{i / 50:.2f}|>" for i in range(1501)]
    search = search_of(contents)
    assert search is not None
    assert search("a<|29.98|>") and not search("<|30.02|> 0.00|> <|")
    tokenizer = gpt2()
    tokenizer.add_tokens([AddedToken(content, normalized=False) for content in contents])
    assert has_gigatoken(check(tokenizer, "ab <|0.00|> b", "<|30.00|>"))


def test_scores_that_leave_no_precision_are_refused_and_small_ones_do_not_underflow() -> None:
    def unigram(score: float) -> rt.Sampler:
        scores = [("<unk>", 0.0), ("a", score), ("b", -2.0), ("ab", -3.0)]
        return rt.sampler(
            "unigram", rt.Vocabulary.load(Tokenizer(models.Unigram(scores, 0, False)))
        )

    assert unigram(-2000.0).log_prob([1, 2]) == pytest.approx(-1999.0)
    with pytest.raises(RobustokError, match=r"the token 'a' has a score of -1e\+300"):
        unigram(-1e300).sample("ab", seed=0)


def test_a_special_token_that_is_a_word_is_refused_where_it_hides_another_token() -> None:
    """Without parsing, the text has other ids that spell it."""
    tokenizer = Tokenizer(models.BPE(vocab={"\t": 0, "!": 1, "!\t": 2}, merges=[("!", "\t")]))
    tokenizer.add_special_tokens([AddedToken("!", normalized=False, special=True)])
    vocab = rt.Vocabulary.load(tokenizer)
    assert vocab.encode("!\t!").tolist() == [2, 1]
    with pytest.raises(RobustokError, match="cannot be tokenized exactly"):
        vocab.encode("!\t!", parse_special=True)
    with pytest.raises(RobustokError, match="cannot be tokenized exactly"):
        vocab.encode_batch(["!\t!"], parse_special=True)
