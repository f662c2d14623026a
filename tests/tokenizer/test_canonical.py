"""One definition of canonical ids: what encoding accepts, all schemes, the guard and `log_prob` do.

Added tokens, unknown ones, twins and spaces: ids that do not spell the text they stand for. Most
tokenizers here are the smallest of a kind that random tokenizers found (see `fuzz`).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
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
from tests.oracles.sentencepiece import trained
from tests.tokenizer.test_exact_encoding import fallback
from tests.tokenizer.test_vocabulary import bpe as gpt2_json
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, processors

import robustok as rt
from robustok.errors import RobustokError
from robustok.tokenizer.data import USED_BYTES, byte_alphabet
from robustok.tokenizer.gigatoken import search_of

EXACT = (
    "canonical", "characters", "uniform", "grampa(temperature=2)", "maxmatch-dropout(p=0.3)",
    "uniform-k(k=2)", "stochastok-uniform(alpha=1)", "mix(0.5 canonical, 0.5 uniform)",
)  # fmt: skip
OTHERS = ("stochastok(alpha=1)", "bpe-dropout(p=0.5)")
MOST = 1000  # tokenizations that are enumerated
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
              "use_regex": True}  # fmt: skip
SPACED = BYTE_LEVEL | {"add_prefix_space": True, "use_regex": False}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
FIRST = METASPACE | {"prepend_scheme": "first"}
PREPEND = {"type": "Prepend", "prepend": "▁"}
MARKS = {"type": "Sequence", "normalizers": [
    PREPEND, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
]}  # fmt: skip
STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}


def gpt2(normalizer: Any = None) -> Tokenizer:
    tokenizer = Tokenizer.from_str(gpt2_json())
    tokenizer.normalizer = normalizer
    return tokenizer


def bpe(
    tokens: list[str],
    merges: Sequence[Any] = (),
    *,
    unk_token: str | None = None,
    byte_fallback: bool = False,
    **stages: Any,
) -> Tokenizer:
    vocab = {token: i for i, token in enumerate(tokens)}
    model = bpe_model(vocab, [*merges], unk_token=unk_token, byte_fallback=byte_fallback)
    return Tokenizer.from_str(tokenizer_json(model, **stages))


def with_hole() -> Tokenizer:
    """A BPE whose ids have a hole, so that the library gives the greatest one again."""
    model = bpe_model({"a": 0, "b": 1, "▁": 2, "ab": 4}, [["a", "b"]])
    return Tokenizer.from_str(tokenizer_json(model))


def named_unknown() -> Tokenizer:
    """A BPE with byte fallback that takes a pre-token "<unk>" for the unknown token."""
    vocab = {"<unk>": 0, **{f"<0x{byte:02X}>": byte + 1 for byte in range(256)}}
    model = bpe_model(vocab, [], byte_fallback=True, unk_token="<unk>", ignore_merges=True)
    cut = {"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated", "invert": False}
    stages = {"type": "Sequence", "pretokenizers": [cut, FIRST]}
    return Tokenizer.from_str(tokenizer_json(model, pre_tokenizer=stages))


def unigram(tokens: dict[str, float], unk_id: int | None = None, **stages: Any) -> Tokenizer:
    model = {"type": "Unigram", "unk_id": unk_id, "byte_fallback": False,
             "vocab": [*tokens.items()]}  # fmt: skip
    return Tokenizer.from_str(tokenizer_json(model, **stages))


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


def with_added(tokenizer: Tokenizer, *contents: str, **flags: bool) -> Tokenizer:
    flags = {"normalized": False} | flags
    add = tokenizer.add_special_tokens if flags.get("special") else tokenizer.add_tokens
    add([AddedToken(content, **flags) for content in contents])
    return tokenizer


def before_each_text(tokenizer: Tokenizer, name: str) -> Tokenizer:
    tokenizer.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single=[name, "$A"], special_tokens=[(name, tokenizer.token_to_id(name))]
    )
    return tokenizer


def without_mark(space: str) -> Tokenizer:
    """A BPE with byte fallback and marks of spaces that are no tokens."""
    spellings = [*(f"<0x{b:02X}>" for b in range(256)), "a", "b", "ab"]
    spellings[ord(" ")] = space
    model = bpe_model({s: i for i, s in enumerate(spellings)}, [["a", "b"]], byte_fallback=True)
    return Tokenizer.from_str(tokenizer_json(model, normalizer=MARKS, decoder=METASPACE_DECODER))


def accepted(vocab: rt.Vocabulary, library: Tokenizer, *texts: str) -> list[list[bool]]:
    """Whether each text is accepted, without and with special tokens parsed; holds both to all."""
    results: list[list[bool]] = [[] for _ in texts]
    for parse in (False, True):
        known: dict[str, list[int]] = {}
        library.encode_special_tokens = not parse
        for text, result in zip(texts, results, strict=True):
            try:
                ids = vocab.encode(text, parse_special=parse)
            except RobustokError as e:
                assert "\n" not in str(e)
            else:
                known[text] = library.encode(text, add_special_tokens=False).ids
                assert ids.tolist() == known[text], text
                guard = rt.Guard(vocab, allow_special=True)
                check_rows(guard, library, ids)
                check_draws(guard, library, ids, None if parse else text)
            result.append(text in known)
        rows = vocab.encode_batch([*known], parse_special=parse)
        assert [row.tolist() for row in rows] == [*known.values()]
    return results


def check_rows(guard: rt.Guard, library: Tokenizer, ids: np.ndarray) -> None:
    """The guard's verdict, and that all tokenizations have the text of the canonical one."""
    lattice = rt.Lattice(guard.vocab, ids)
    verdict = guard.check(ids)
    assert verdict.canonical and verdict.repaired.tolist() == ids.tolist()
    assert guard.admit(ids).tolist() == ids.tolist()
    rows = list(lattice.enumerate(limit=MOST))
    assert len(rows) == min(lattice.count(), MOST)
    for row in rows[:100]:
        assert_same_text(guard.vocab, library, row, ids)
        assert guard.repair(row).tolist() == ids.tolist()


def check_draws(guard: rt.Guard, library: Tokenizer, ids: np.ndarray, text: Any) -> None:
    """Draws from the ids, and from the text where it is given, have its text and a probability."""
    vocab, lattice = guard.vocab, rt.Lattice(guard.vocab, ids)
    rows = list(lattice.enumerate()) if lattice.count() < MOST else []
    for spec in EXACT + OTHERS:
        try:
            scheme = rt.sampler(spec, vocab)
        except RobustokError:
            continue  # not for this kind of tokenizer
        for seed in range(3):
            drawn = scheme.sample(ids, seed=seed)
            assert text is None or drawn.tolist() == scheme.sample(text, seed=seed).tolist(), spec
            assert_same_text(vocab, library, drawn, ids)
            assert guard.repair(drawn).tolist() == ids.tolist(), spec
            assert spec in OTHERS or scheme.log_prob(drawn) > -np.inf, spec
        if spec in EXACT and rows:
            total = fsum(exp(scheme.log_prob(row)) for row in rows)
            assert isclose(total, 1.0, rel_tol=1e-9), spec


def assert_same_text(
    vocab: rt.Vocabulary, library: Tokenizer, row: np.ndarray, ids: np.ndarray
) -> None:
    assert vocab.decode_bytes(row) == vocab.decode_bytes(ids)
    if library.decoder is not None:  # without one, the library joins tokens by spaces
        decoded = [library.decode(x.tolist(), skip_special_tokens=False) for x in (row, ids)]
        assert decoded[0] == decoded[1]


def check(tokenizer: Tokenizer, *texts: str) -> rt.Vocabulary:
    """The vocabulary of a tokenizer, after each text was accepted."""
    vocab = rt.Vocabulary.load(tokenizer)
    assert accepted(vocab, tokenizer, *texts) == [[True, True]] * len(texts)
    for ids in vocab.encode_batch(texts):  # which have no special ids
        assert rt.Guard(vocab).admit(ids).tolist() == ids.tolist()
    return vocab


def has_gigatoken(vocab: rt.Vocabulary) -> bool:
    """Whether gigatoken encodes for a vocabulary, where it is installed."""
    return vocab.gigatoken.reason is None or find_spec("gigatoken") is None


CASES: dict[str, tuple[Any, str, list[bool]]] = {
    "a space before each pre-token, and a special token": (
        lambda: with_added(bpe(["a", ",", "▁"], pre_tokenizer={
            "type": "Sequence", "pretokenizers": [
                {"type": "Punctuation", "behavior": "Isolated"}, METASPACE
            ]}), "<s>", special=True),
        "a,<s>", [False, False]),
    "what follows a special token has no space": (
        lambda: with_added(bpe([*"ab▁", "ab"], [["a", "b"]], pre_tokenizer=FIRST), "<s>",
                           special=True),
        "ab<s>ab", [False, True]),
    "a normalized special token behind a text that is written before all": (
        lambda: with_added(bpe([*"a<s>▁"], normalizer=PREPEND), "<s>", special=True,
                           normalized=True),
        "<s>a", [True, True]),
    "a space that is removed with the start of the text": (
        lambda: bpe(["a", "▁"], normalizer={"type": "Strip", "strip_left": True,
                                            "strip_right": True}, pre_tokenizer=FIRST),
        " a", [False, False]),
    "a normalizer that removes spaces before a special token": (
        lambda: with_added(bpe(["a", " "], normalizer={"type": "Strip", "strip_left": False,
                                                       "strip_right": True}),
                           "é", special=True, normalized=True),
        " é", [False, True]),
    "the space before the text is an added token": (
        lambda: with_added(bpe(["Ġ", "a"], pre_tokenizer=SPACED), " "),
        "a", [True, True]),
    "a special token whose text the model lacks": (
        lambda: with_added(bpe(["a", "Ġ"], pre_tokenizer=SPACED), "<s>", special=True),
        "a<s>", [False, True]),
    "an added token that the normalizer would change": (
        lambda: with_added(bpe(["a", "n", "N"], normalizer={"type": "Lowercase"},
                               pre_tokenizer=BYTE_LEVEL), "N"),
        "aN", [True, True]),
    "the first token loses its marks, with a special one behind": (
        lambda: with_added(bpe(["0", "▁", "▁▁"], pre_tokenizer=FIRST, decoder=FIRST), "<s>",
                           special=True),
        "  <s>", [False, False]),
    "an added token loses its marks where it is first": (
        lambda: with_added(bpe(["d", "▁"], pre_tokenizer=FIRST, decoder=FIRST), "d▁"),
        "d▁", [False, False]),
    "a token with a space that the model never reads": (
        lambda: unigram({"a": -1.0, "▁": -2.0, " a": -9.0}, pre_tokenizer=METASPACE,
                        decoder=METASPACE),
        "a", [True, True]),
    "the unknown token is put before each text": (
        lambda: before_each_text(with_added(with_added(
            bpe(["<unk>", "Ċ", "Ġ", "ĠĠ"], [["Ġ", "Ġ"]], unk_token="<unk>",
                pre_tokenizer=BYTE_LEVEL), "<unk>", special=True), "<|a|>"), "<unk>"),
        "\n  a", [True, True]),
    "the unknown token stands behind a space that the tokenizer writes": (
        lambda: unigram({"<unk>": 0.0, "▁": -1.0, "a": -1.0}, 0, normalizer=MARKS),
        "é", [True, True]),
    "the name of an unknown token that no text needs": (
        lambda: Tokenizer.from_str(tokenizer_json(
            {"type": "Unigram", "unk_id": 0, "byte_fallback": True, "vocab": [
                ["<unk>", 0.0], *([f"<0x{b:02X}>", -1.0] for b in range(256)), ["▁", -1.0]]},
            normalizer=MARKS)),
        "<unk>", [True, True]),
    "a mark in a text, where a space is an added token": (
        lambda: with_added(bpe(["a", "▁"], normalizer=MARKS["normalizers"][1], decoder={
            "type": "Replace", "pattern": {"String": "▁"}, "content": " "}), " "),
        "▁a ", [False, False]),
    "a special token that the model reads, behind a text that is written before all": (
        lambda: with_added(Tokenizer.from_str(tokenizer_json(
            bpe_model({f"<0x{b:02X}>": b for b in range(256)} | {"é": 256}, [], byte_fallback=True),
            normalizer=PREPEND)), "é", special=True, normalized=True),
        "eé", [True, True]),
    "an added token within a special one that the model reads": (
        lambda: with_added(with_added(
            unigram({"<unk>": 0.0, "###": -8.0}, 0, pre_tokenizer={
                "type": "Punctuation", "behavior": "MergedWithNext"}), "##"), "###", special=True),
        "###", [True, True]),
    "an unknown token that is no token": (
        lambda: bpe(["a"], unk_token="<u>"),
        "ab", [False, False]),
    "a space before each part of a text that is cut": (
        lambda: bpe([*"Ġa1"], pre_tokenizer={"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, SPACED]}),
        "a1", [False, False]),
    "an added token at the start, where the tokenizer writes a space": (
        lambda: with_added(bpe([*"Ġab", "ab"], [["a", "b"]], pre_tokenizer=SPACED,
                               decoder=SPACED), "ab"),
        "ab a", [True, True]),
    "a special token that is spelled with a mark, and an added one within it": (
        lambda: with_added(with_added(
            bpe([*"Ab▁", "▁A"], [["▁", "A"]], pre_tokenizer=METASPACE | {
                "prepend_scheme": "never"}), "A"), "b▁A", special=True),
        "b▁A", [False, True]),
    "two entries of the unknown token": (
        lambda: Tokenizer.from_str(tokenizer_json(
            {"type": "Unigram", "unk_id": 0, "byte_fallback": False,
             "vocab": [["<unk>", 0.0], ["a", -1.0], ["▁", -1.0], ["<unk>", -1.5]]},
            pre_tokenizer=METASPACE)),
        "b", [False, False]),
    "a special token that the normalizer turns into a space": (
        lambda: with_added(bpe(["a", "▁", "▁a"], [["▁", "a"]], normalizer={"type": "Nmt"},
                               pre_tokenizer=FIRST, decoder=FIRST), "▁", special=True,
                           normalized=True),
        "a", [True, True]),
    "an added token that loses a mark which the normalizer brings behind its start": (
        lambda: with_added(bpe(["b"], normalizer={"type": "Prepend", "prepend": "a"},
                               pre_tokenizer=METASPACE, decoder=METASPACE), "▁", normalized=True),
        "▁", [False, False]),
}  # fmt: skip
NEED_CONTENTS = [*CASES][-2:]


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=needs_normalized_contents if name in NEED_CONTENTS else ())
    for name in CASES
])  # fmt: skip
def test_an_accepted_text_is_canonical_everywhere(name: str) -> None:
    make, text, expected = CASES[name]
    tokenizer = make()
    assert accepted(rt.Vocabulary.load(tokenizer), tokenizer, text) == [expected]


ACCEPTED: dict[str, tuple[Callable[[], Tokenizer], list[str]]] = {
    "a word that stands alone beside a special one": (
        # The ids of ".xyz" alone have the added token, those of "xyz" amid letters do not.
        lambda: with_added(with_added(gpt2(), "xyz", single_word=True), "END", special=True),
        [".xyz END xyz", ".xyzEND", "ENDxyz.", "xyzENDxyzEND"]),
    "a mark in a text": (lambda: llama(prefix=True), ["a▁b", "▁", "▁a", "a ▁ b", "▁▁"]),
    "a mark in a text, unknown characters": (t5, ["a▁b", "a ▁", "▁ a"]),
    "no mark, and the byte of a space": (lambda: without_mark("<0x20>"), ["ab", "a b", ""]),
    "no mark, and a space": (lambda: without_mark(" "), ["ab", "a b", ""]),
    "an unknown token that the model reads by its name, and bytes of this name": (
        named_unknown, ["<unk>", "a▁<unk>", "<unk> a"]),
    "a normalizer in lower case": (lambda: gpt2(normalizers.Lowercase()), ["AB a", "ab"]),
    "a normalizer that strips": (lambda: gpt2(normalizers.Strip()), [" ab ", "a b"]),
    "a normalizer that prepends": (lambda: gpt2(normalizers.Prepend("b")), ["a", "ba"]),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_texts(name: str) -> None:
    make, texts = ACCEPTED[name]
    check(make(), *texts)


@pytest.mark.parametrize("single_word", [False, True])
def test_a_special_token_that_is_a_word_of_the_model_is_text(single_word: bool) -> None:
    tokenizer = with_added(gpt2(), "!", special=True)
    with_added(tokenizer, "abc", special=True, single_word=single_word)
    vocab = check(tokenizer, "ab! abc", "abcab!!", "!", "a abc", "ab!")
    for text in ("a abc", "ab!"):
        assert not rt.Guard(vocab).check(vocab.encode(text, parse_special=True)).findings, text


@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize("normalized", [False, pytest.param(True, marks=needs_normalized_contents)])
def test_added_tokens_beside_marks_of_spaces(prefix: bool, normalized: bool) -> None:
    tokenizer = with_added(llama(prefix=prefix), "<i>", "rest", normalized=normalized)
    check(tokenizer, "the: <i>\nthe", "a <i> b", "<i>", "<i><i> a", "a rest", "rests",
          "outrested", "", " <i>")  # fmt: skip


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word"])
@pytest.mark.parametrize("make", [gpt2, lambda: llama(prefix=True), lambda: llama(prefix=False)])
def test_added_tokens_that_take_spaces_or_stand_alone(flag: str, make: Any) -> None:
    tokenizer = with_added(make(), "<i>", "b", **{flag: True})
    check(tokenizer, "a <i> b", "a<i>a", "  <i>  ", "ab a b", "abba bb", "b <i>b")


REFUSED: dict[str, tuple[Callable[[], Tokenizer], list[str], list[str]]] = {
    "a normalizer that doubles a letter": (
        lambda: gpt2(normalizers.Replace("a", "aa")), ["b"], ["a", "ab"]),
    "a normalizer that puts spaces around each character, and again": (
        lambda: gpt2(normalizers.BertNormalizer(handle_chinese_chars=True)), ["ab"], ["a日本b"]),
    "a normalizer that makes an added token of a text": (
        lambda: with_added(gpt2(normalizers.Replace(Regex("^ "), "b")), "b"), ["a a"], ["  a"]),
    "a normalizer that parts a letter, in front of a mark, from an added token": (
        lambda: with_added(gpt2(normalizers.NFD()), "x<"), ["a≮", "<x", "é"], ["x≮"]),
    "a first token with two marks, where the decoder drops both": (
        lambda: unigram({"<unk>": 0.0, "▁": -1.0, "▁▁": -1.5, "a": -1.0}, 0,
                        pre_tokenizer=METASPACE | {"split": False},
                        decoder=METASPACE | {"split": False}),
        ["a", "a  a"], ["  a"]),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_text_whose_ids_are_those_of_no_text_is_refused(name: str) -> None:
    make, texts, refused = REFUSED[name]
    vocab = check(make(), *texts)
    for text in refused:
        with pytest.raises(RobustokError, match="cannot be tokenized exactly: its ids spell"):
            vocab.encode(text)


NOT_LOADED = [
    pytest.param(
        lambda: with_added(with_added(with_hole(), "ab a"), "ab", special=True),
        "or one that it gave to an added token, too",
        id="an added token that the library gave the id of a token"),
    pytest.param(
        lambda: with_added(Tokenizer.from_str(tokenizer_json(
            bpe_model({"a": 0, "<0xB0>": 1}, [], byte_fallback=True), normalizer=STRIP,
            decoder={"type": "ByteFallback"})), " <0xEF>", normalized=True),
        "reads the added token '<0xEF>' as a byte", marks=needs_normalized_contents,
        id="an added token that is normalized to the name of a byte"),
    pytest.param(
        lambda: with_added(Tokenizer.from_str(tokenizer_json(
            bpe_model({"<0x61>": 0}, [], byte_fallback=True), decoder={"type": "ByteFallback"})),
            "<0x61>", special=True),
        "reads the added token '<0x61>' as a byte",
        id="a special token that is a byte of the byte fallback"),
    pytest.param(
        lambda: with_added(bpe([*"ab"], normalizer={"type": "Lowercase"}), "<X>", "<x>",
                           normalized=True),
        "one text of the added tokens '<X>' and '<x>'",
        id="two added tokens with one normalized text"),
    pytest.param(
        lambda: with_added(llama(prefix=True), "<unk>"),
        "unknown token '<unk>' is an added token that is not",
        id="an unknown token that is plain text"),
    pytest.param(
        lambda: with_added(unigram({"<unk>": 0.0, "a": -1.0}, 0), "<unk>"),
        "unknown token '<unk>' is an added token that is not",
        id="an unknown token that is plain text, where characters have no token"),
    pytest.param(
        lambda: with_added(
            gpt2(normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])),
            "\u0301", normalized=True),
        "the normalizer leaves nothing of the added token",
        id="an added token at which the library panics"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), NOT_LOADED)
def test_a_tokenizer_that_has_no_exact_reading_is_refused(make: Any, message: str) -> None:
    with pytest.raises(RobustokError, match=message):
        rt.Vocabulary.load(make())


def test_added_tokens_apart_in_case_are_no_twins_where_the_normalizer_does_not_see_them() -> None:
    tokenizer = with_added(bpe([*"ab"], normalizer={"type": "Lowercase"}), "<X>", "<x>")
    assert rt.Vocabulary.load(tokenizer).encode("a<X><x>").tolist() == [0, 2, 3]


@pytest.mark.parametrize("content", ["▁", "▁a"])
@pytest.mark.parametrize("normalized", [False, True])
def test_bpe_dropout_is_refused_where_merges_need_an_added_token(
    content: str, normalized: bool
) -> None:
    tokenizer = bpe([*"ab▁", "▁a", "▁ab"], [["▁", "a"], ["▁a", "b"]], normalizer=PREPEND)
    with_added(tokenizer, content, normalized=normalized)
    vocab = rt.Vocabulary.load(tokenizer)
    with pytest.raises(RobustokError, match=f"merges of the model need its token '{content}'"):
        rt.BpeDropout(vocab, p=0.5)
    assert rt.Uniform(vocab).sample("b", seed=0).tolist()


@needs_normalized_contents
def test_an_added_token_that_is_a_word_stays_and_others_are_not_drawn_as_it() -> None:
    tokenizer = llama(prefix=True)
    tokenizer.add_tokens(["rest"])  # normalized: it is matched and decoded as "▁rest"
    vocab = check(tokenizer, "the rest", "the rests")
    (i,) = vocab.data.plain_added
    assert vocab.tokens[i] == b" rest" and not vocab.ordinary[i] and vocab.readable[i]
    assert i in rt.Uniform(vocab).sample("the rest", seed=0)


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
    rows = uniform.sample_batch(texts, seed=1, draws=3, keys=[5, 4, 3, 2, 1])
    alone = [
        row.tolist()
        for key, text in zip([5, 4, 3, 2, 1], texts, strict=True)
        for row in uniform.sample_batch([text], seed=1, draws=3, keys=[key])
    ]
    assert [row.tolist() for row in rows] == alone


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


@pytest.mark.parametrize(
    ("options", "texts", "refused"),
    [
        ({"model_type": "word", "add_dummy_prefix": False}, ["ab  c", " a"], []),
        ({"model_type": "word"}, ["canal cab", "zz"], []),  # no token is a space alone
        ({"vocab_size": 300, "user_defined_symbols": ["▁▁"]}, ["a b", "a▁▁b"], ["▁a", "▁▁▁a"]),
    ],
)
def test_sentencepiece_models_whose_spaces_are_bytes_or_left_out(
    options: dict[str, Any], texts: list[str], refused: list[str]
) -> None:
    """The decoder leaves out the first "▁" of a text, or where spaces are removed, several."""
    settings = {"byte_fallback": True, "vocab_size": 400, "normalization_rule_name": "identity",
                "remove_extra_whitespaces": True}  # fmt: skip
    if not options.get("add_dummy_prefix", True):
        settings["remove_extra_whitespaces"] = False
    processor = trained(**settings | options)
    vocab = rt.Vocabulary.load(processor)
    for text in texts:
        ids = vocab.encode(text)
        assert ids.tolist() == processor.encode(text)
        assert rt.Guard(vocab).admit(ids).tolist() == ids.tolist()
        for spec in ("characters", "uniform", "stochastok(alpha=1)"):
            for seed in range(4):
                row = rt.sampler(spec, vocab).sample(ids, seed=seed)
                assert row.tolist() == rt.sampler(spec, vocab).sample(text, seed=seed).tolist()
                assert processor.decode(row.tolist()) == processor.decode(ids.tolist())
    for text in refused:
        with pytest.raises(RobustokError, match="cannot be tokenized exactly"):
            vocab.encode(text)


def test_a_normalizer_that_writes_spaces_after_those_of_the_text_are_marks() -> None:
    """The model sees a space where NFKC writes one, and takes the byte of it."""
    marks = MARKS["normalizers"][1]
    tokens = ["▁", "a", "b", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = bpe(
        tokens,
        byte_fallback=True,
        decoder=METASPACE_DECODER,
        normalizer={"type": "Sequence", "normalizers": [marks, {"type": "NFKC"}]},
    )
    vocab = check(tokenizer, "a b")
    for encode in (vocab.encode, lambda text: rt.Uniform(vocab).sample(text, seed=0)):
        with pytest.raises(RobustokError, match="whose ids are others from position 1 on"):
            encode("a\u3000b")


@pytest.mark.parametrize(
    ("normalizer", "text"),
    [
        (normalizers.Lowercase(), "ABC"),
        (normalizers.Replace("é", "a"), "ébc"),
        (normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace("x", "")]), "aXbc"),
    ],
)
def test_an_added_token_that_a_normalizer_writes_is_none(normalizer: Any, text: str) -> None:
    """The text of such ids has the token, which is looked for in the text as it came."""
    tokenizer = bpe(
        [*byte_alphabet(), "ab", "abc"], [["a", "b"], ["ab", "c"]],
        pre_tokenizer=BYTE_LEVEL, decoder=BYTE_LEVEL,
    )  # fmt: skip
    tokenizer.normalizer = normalizer
    tokenizer.add_tokens([AddedToken("ab", normalized=False)])
    vocab = check(tokenizer, "abc", "cb")
    assert tokenizer.encode(text).tokens == ["abc"] != tokenizer.encode("abc").tokens
    uniform = rt.Uniform(vocab)
    for encode in (vocab.encode, lambda text: uniform.sample(text, seed=0)):
        with pytest.raises(RobustokError, match="whose ids are others from position 0 on"):
            encode(text)


@pytest.mark.parametrize("name", ["Ġab", "©Ã"])
def test_a_placed_token_that_the_model_reads_without_its_name(name: str) -> None:
    """Draws from a text leave it in its place, as those from the ids."""
    merges = [["Ġ", "a"], ["Ġa", "b"], ["©", "Ã"]]
    tokenizer = bpe(
        [*byte_alphabet(), "Ġa", "Ġab", "©Ã"], merges, pre_tokenizer=SPACED,
        decoder=BYTE_LEVEL,
    )  # fmt: skip
    tokenizer.add_tokens([AddedToken(name, normalized=False)])
    vocab = check(tokenizer, "b ab", "éé ab")
    uniform, text = rt.Uniform(vocab), "b ab éé"
    ids = vocab.encode(text)
    assert vocab.is_placed[ids].any()
    for seed in range(8):
        drawn = uniform.sample(ids, seed=seed)
        assert drawn.tolist() == uniform.sample(text, seed=seed).tolist()


@pytest.mark.parametrize("prefix", [True, False])
def test_bytes_that_are_no_text_have_canonical_ids(prefix: bool) -> None:
    """A "▁" behind such a byte is a space, as in a text."""
    vocab = rt.Vocabulary.load(llama(prefix=prefix))
    for raw in (b"a\x80b \xff", b"\xe6\x97 a", b"\xff", b"\x80 a" + "▁▁b".encode()):
        ids = vocab.encode(raw)
        spelled = vocab.decode_bytes(ids).removeprefix(b" " if raw[:1] == b"a" else b"")
        assert spelled == raw.replace("▁".encode(), b" ")
        assert rt.Guard(vocab).admit(ids).tolist() == ids.tolist()
        assert vocab.encode_batch([raw, "a"])[0].tolist() == ids.tolist()


def test_continuations_are_normalized_as_texts_are() -> None:
    merges = [["▁", "a"], ["▁a", "b"], ["b", "b"]]
    lower = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, *MARKS["normalizers"]]}
    tokens = [*"▁abAB0\n", "▁a", "▁ab", "bb"]
    tokenizer = bpe(tokens, merges, normalizer=lower, decoder=METASPACE_DECODER)
    vocab = rt.Vocabulary.load(tokenizer)
    rows = vocab.encode_continuations([" AB", "Bb", "▁ab", " ab", "bb"])
    texts = [[vocab.tokens[i].decode() for i in row] for row in rows]
    assert texts == [[" ab"], ["bb"], [" ab"], [" ab"], ["bb"]]
    assert tokenizer.encode("0 AB").ids[2:] == rows[0].tolist()


@pytest.mark.parametrize("left_out", [frozenset(range(256)) - USED_BYTES, frozenset([0xFF])])
def test_bytes_that_utf8_never_uses_need_no_token(left_out: frozenset[int]) -> None:
    letters = [c for c, byte in byte_alphabet().items() if byte not in left_out]
    vocab = {letter: i for i, letter in enumerate([*letters, "ab", "‼"])}
    tokenizer = Tokenizer.from_str(tokenizer_json(
        bpe_model(vocab, [["a", "b"]]), pre_tokenizer=BYTE_LEVEL, decoder=BYTE_LEVEL
    ))  # fmt: skip
    read = check(tokenizer, "ab é 日 \U0010ffff \x00", "ab‼")
    assert has_gigatoken(read)
    assert not read.ordinary[vocab["‼"]]  # outside the alphabet, where no text gives it
    assert read.tokens[vocab["‼"]] == "‼".encode()


def test_a_tab_that_is_a_token_needs_no_byte() -> None:
    content = fallback().to_str().replace('"<0x09>"', '"\\t"')
    vocab = check(Tokenizer.from_str(content), "ab\tab é \x00", "\t")
    assert has_gigatoken(vocab)


def test_many_added_tokens_are_searched_by_one_expression() -> None:
    contents = [f"<|{i / 50:.2f}|>" for i in range(1501)]
    search = search_of(contents)
    assert search is not None
    assert search("a<|29.98|>") and not search("<|30.02|> 0.00|> <|")
    tokenizer = gpt2()
    tokenizer.add_tokens([AddedToken(content, normalized=False) for content in contents])
    assert has_gigatoken(check(tokenizer, "ab <|0.00|> b", "<|30.00|>"))


@pytest.mark.parametrize("flags", [{}, {"lstrip": True}, {"normalized": True}])
def test_an_added_token_of_marks_is_none_of_the_spaces_of_a_text(
    flags: dict[str, bool],
) -> None:
    """Gemma's "▁▁" is looked for in the text as it came, where spaces are no marks."""
    spaces = MARKS["normalizers"][1]
    tokenizer = bpe(
        ["▁", "▁▁", "a", "b"], [["▁", "▁"]], normalizer=spaces, decoder=METASPACE_DECODER
    )
    vocab = check(with_added(tokenizer, "▁▁", **flags), "a  b", "a▁▁b", "a  ▁▁b")
    assert vocab.encode("a  b").tolist() == [2, 1, 3]


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
