"""One definition of canonical ids: what encoding accepts, the guard and `log_prob` accept, too.

Each tokenizer is the smallest of a kind that random tokenizers found (see `fuzz`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from tests.guard.tokenizers_of import bpe_model, needs_normalized_contents, tokenizer_json
from tests.tokenizer.test_spelling import BYTE_LEVEL, METASPACE
from tokenizers import AddedToken, Tokenizer, processors

import robustok as rt
from robustok.errors import RobustokError

FIRST = METASPACE | {"prepend_scheme": "first"}
PREPEND = {"type": "Prepend", "prepend": "▁"}
MARKS = {"type": "Sequence", "normalizers": [
    PREPEND, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
]}  # fmt: skip
SPACED = BYTE_LEVEL | {"add_prefix_space": True, "use_regex": False}


def bpe(
    tokens: list[str], merges: Sequence[Any] = (), *, unk_token: str | None = None, **stages: Any
) -> Tokenizer:
    vocab = {token: i for i, token in enumerate(tokens)}
    model = bpe_model(vocab, [*merges], unk_token=unk_token)
    return Tokenizer.from_str(tokenizer_json(model, **stages))


def unigram(tokens: dict[str, float], unk_id: int | None = None, **stages: Any) -> Tokenizer:
    model = {"type": "Unigram", "unk_id": unk_id, "byte_fallback": False,
             "vocab": [*tokens.items()]}  # fmt: skip
    return Tokenizer.from_str(tokenizer_json(model, **stages))


def with_added(tokenizer: Tokenizer, content: str, **flags: bool) -> Tokenizer:
    flags = {"normalized": False} | flags
    add = tokenizer.add_special_tokens if flags.get("special") else tokenizer.add_tokens
    add([AddedToken(content, **flags)])
    return tokenizer


def before_each_text(tokenizer: Tokenizer, name: str) -> Tokenizer:
    tokenizer.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single=[name, "$A"], special_tokens=[(name, tokenizer.token_to_id(name))]
    )
    return tokenizer


def accepted(tokenizer: Tokenizer, text: str) -> list[bool]:
    """Whether a text is accepted, without and with special tokens parsed; holds both to all."""
    vocab = rt.Vocabulary.load(tokenizer)
    guard, results = rt.Guard(vocab, allow_special=True), []
    for parse in (False, True):
        try:
            ids = vocab.encode(text, parse_special=parse)
        except RobustokError as e:
            assert "\n" not in str(e)
            results.append(False)
            continue
        results.append(True)
        tokenizer.encode_special_tokens = not parse
        assert ids.tolist() == tokenizer.encode(text, add_special_tokens=False).ids
        assert [row.tolist() for row in vocab.encode_batch([text], parse_special=parse)] == [
            ids.tolist()
        ]
        verdict = guard.check(ids)
        assert verdict.canonical and verdict.repaired.tolist() == ids.tolist()
        uniform, lattice = rt.Uniform(vocab), rt.Lattice(vocab, ids)
        rows = list(lattice.enumerate())
        assert lattice.count() == len(rows)
        total = math.fsum(math.exp(uniform.log_prob(row)) for row in rows)
        assert math.isclose(total, 1.0, rel_tol=1e-9)
        if not parse:
            for seed in range(8):
                drawn = uniform.sample(text, seed=seed)
                assert drawn.tolist() == uniform.sample(ids, seed=seed).tolist()
        for row in rows:
            assert vocab.decode_bytes(row) == vocab.decode_bytes(ids)
            assert guard.repair(row).tolist() == ids.tolist()
            if tokenizer.decoder is not None:  # without one, the library joins tokens by spaces
                decoded = [tokenizer.decode(x.tolist(), skip_special_tokens=False)
                           for x in (row, ids)]  # fmt: skip
                assert decoded[0] == decoded[1]
    return results


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
        "a", [False, False]),
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
                pre_tokenizer=BYTE_LEVEL), "<unk>"), "<|a|>"), "<unk>"),
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
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_accepted_text_is_canonical_everywhere(name: str) -> None:
    make, text, expected = CASES[name]
    assert accepted(make(), text) == expected


@needs_normalized_contents
def test_a_special_token_that_the_normalizer_turns_into_a_space_stays_in_place() -> None:
    tokenizer = bpe(["a", "▁", "▁a"], [["▁", "a"]], normalizer={"type": "Nmt"},
                    pre_tokenizer=FIRST, decoder=FIRST)  # fmt: skip
    with_added(tokenizer, "▁", special=True, normalized=True)
    assert accepted(tokenizer, "a") == [True, True]


@needs_normalized_contents
def test_an_added_token_loses_a_mark_that_the_normalizer_brings_behind_its_start() -> None:
    tokenizer = bpe(["b"], normalizer={"type": "Prepend", "prepend": "a"},
                    pre_tokenizer=METASPACE, decoder=METASPACE)  # fmt: skip
    assert accepted(with_added(tokenizer, "▁", normalized=True), "▁") == [False, False]


@needs_normalized_contents
def test_an_added_token_that_is_normalized_to_the_name_of_a_byte_is_refused() -> None:
    tokenizer = Tokenizer.from_str(tokenizer_json(
        bpe_model({"a": 0, "<0xB0>": 1}, [], byte_fallback=True),
        normalizer={"type": "Strip", "strip_left": True, "strip_right": True},
        decoder={"type": "ByteFallback"},
    ))  # fmt: skip
    with_added(tokenizer, " <0xEF>", normalized=True)
    with pytest.raises(RobustokError, match=r"reads the added token '<0xEF>' as a byte"):
        rt.Vocabulary.load(tokenizer)


def test_a_special_token_that_is_a_byte_of_the_byte_fallback_is_refused() -> None:
    tokenizer = Tokenizer.from_str(tokenizer_json(
        bpe_model({"<0x61>": 0}, [], byte_fallback=True), decoder={"type": "ByteFallback"}
    ))  # fmt: skip
    with_added(tokenizer, "<0x61>", special=True)
    with pytest.raises(RobustokError, match=r"reads the added token '<0x61>' as a byte"):
        rt.Vocabulary.load(tokenizer)


def test_two_added_tokens_with_one_normalized_text_are_refused() -> None:
    tokenizer = bpe([*"ab"], normalizer={"type": "Lowercase"})
    tokenizer.add_tokens([AddedToken("<X>", normalized=True), AddedToken("<x>", normalized=True)])
    with pytest.raises(RobustokError, match=r"one text of the added tokens '<X>' and '<x>'"):
        rt.Vocabulary.load(tokenizer)
    apart = bpe([*"ab"], normalizer={"type": "Lowercase"})
    apart.add_tokens([AddedToken("<X>", normalized=False), AddedToken("<x>", normalized=False)])
    assert rt.Vocabulary.load(apart).encode("a<X><x>").tolist() == [0, 2, 3]


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
