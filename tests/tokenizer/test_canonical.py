"""One definition of canonical ids: what encoding accepts, all schemes, the guard and `log_prob` do.

Most tokenizers here are the smallest of a kind that random tokenizers found (see `fuzz`): their ids
do not always spell the text they stand for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import groupby, product
from math import exp, fsum, isclose
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.guard.tokenizers_of import METASPACE_DECODER, needs_normalized_contents
from tests.guard.tokenizers_of import metaspace_tokenizer as llama
from tests.tokenizer.small_tokenizers import (
    AT_SPACES,
    BYTE_LEVEL,
    BYTES,
    FALLBACK,
    FIRST,
    LOWER,
    MARKS,
    METASPACE,
    NAMED,
    PREPEND,
    READS_BYTES,
    SPACED,
    SPACES,
    STRIP,
    UNKNOWN,
    WHOLE,
    add,
    before_each_text,
    bpe,
    gpt2,
    has_gigatoken,
    special,
    t5,
    unigram,
    whole,
    without_mark,
)
from tests.tokenizer.test_exact_encoding import fallback
from tokenizers import Regex, Tokenizer, normalizers

import robustok as rt
from robustok.errors import RobustokError

EXACT = (
    "canonical", "characters", "uniform", "grampa(temperature=2)", "maxmatch-dropout(p=0.3)",
    "uniform-k(k=2)", "stochastok-uniform(alpha=1)", "mix(0.5 canonical, 0.5 uniform)",
)  # fmt: skip
OTHERS = ("stochastok(alpha=1)", "bpe-dropout(p=0.5)")
MOST = 1000  # tokenizations that are enumerated
SPELL = "cannot be tokenized exactly: its ids spell"


class Row(NamedTuple):
    """Texts of a tokenizer: accepted, with the ids of the library, or refused with a message.

    ``parsed``: accepted where special tokens are parsed only. ``plain``: refused there only.
    ``ids``: accepted texts with their ids, where special tokens are not parsed. ``loads``: the
    message with which the tokenizer is refused. ``gigatoken``: it encodes, where it is installed.
    """

    make: Callable[[], Tokenizer]
    accepted: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    message: str = "cannot be tokenized"
    parsed: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    ids: tuple[tuple[str, list[int]], ...] = ()
    loads: str = ""
    gigatoken: bool = False


# fmt: off
ROWS = {
    "a space before each pre-token, and a special token": Row(
        lambda: special(bpe("a , ▁", pre=[{"type": "Punctuation", "behavior": "Isolated"},
                                          METASPACE]), "<s>"), refused=("a,<s>",)),
    "what follows a special token has no space": Row(
        lambda: special(bpe("a b ▁ ab", "a b", pre=FIRST), "<s>"), parsed=("ab<s>ab",)),
    "a normalized special token behind a text that is written before all": Row(
        lambda: special(bpe("a < s > ▁", norm=PREPEND), "<s>", normalized=True), ("<s>a",)),
    "a space that is removed with the start of the text": Row(
        lambda: bpe("a ▁", norm=STRIP, pre=FIRST), refused=(" a",)),
    "a normalizer that removes spaces before a special token": Row(
        lambda: special(bpe(["a", " "], norm=STRIP | {"strip_left": False}), "é", normalized=True),
        parsed=(" é",)),
    "the space before the text is an added token": Row(
        lambda: add(bpe("Ġ a", pre=SPACED), " "), ("a",)),
    "a special token whose text the model lacks": Row(
        lambda: special(bpe("a Ġ", pre=SPACED), "<s>"), parsed=("a<s>",)),
    "an added token that the normalizer would change": Row(
        lambda: add(bpe("a n N", norm=LOWER, pre=BYTE_LEVEL), "N"), ("aN",)),
    "the first token loses its marks, with a special one behind": Row(
        lambda: special(bpe("0 ▁ ▁▁", pre=FIRST, decoder=FIRST), "<s>"), refused=("  <s>",)),
    "an added token loses its marks where it is first": Row(
        lambda: add(bpe("d ▁", pre=FIRST, decoder=FIRST), "d▁"), refused=("d▁",)),
    "a token with a space that the model never reads": Row(
        lambda: unigram([("a", -1.0), ("▁", -2.0), (" a", -9.0)], None, pre=METASPACE,
                        decoder=METASPACE), ("a",)),
    "the unknown token is put before each text": Row(
        lambda: before_each_text(add(special(
            bpe("<unk> Ċ Ġ ĠĠ", "Ġ Ġ", settings=UNKNOWN, pre=BYTE_LEVEL), "<unk>"), "<|a|>"),
            "<unk>"), ("\n  a",)),
    "the unknown token stands behind a space that the tokenizer writes": Row(
        lambda: unigram([("<unk>", 0.0), ("▁", -1.0), ("a", -1.0)], norm=MARKS), ("é",)),
    "the name of an unknown token that no text needs": Row(
        lambda: unigram([("<unk>", 0.0), *((b, -1.0) for b in BYTES), ("▁", -1.0)], 0, True,
                        norm=MARKS), ("<unk>",)),
    "a mark in a text, where a space is an added token": Row(
        lambda: add(bpe("a ▁", norm=SPACES, decoder={
            "type": "Replace", "pattern": {"String": "▁"}, "content": " "}), " "),
        refused=("▁a ",)),
    "a special token that the model reads, behind a text that is written before all": Row(
        lambda: special(bpe([*BYTES, "é"], settings=FALLBACK, norm=PREPEND), "é", normalized=True),
        refused=("eé",)),
    "an added token within a special one that the model reads": Row(
        lambda: special(add(unigram([("<unk>", 0.0), ("###", -8.0)], pre={
            "type": "Punctuation", "behavior": "MergedWithNext"}), "##"), "###"), ("###",)),
    "an unknown token that is no token": Row(
        lambda: bpe("a", settings={"unk_token": "<u>"}), refused=("ab",),
        message="no token for 'b'"),
    "a space before each part of a text that is cut": Row(
        lambda: bpe("Ġ a 1", pre=[{"type": "Digits", "individual_digits": True}, SPACED]),
        refused=("a1",)),
    "an added token at the start, where the tokenizer writes a space": Row(
        lambda: add(bpe("Ġ a b ab", "a b", pre=SPACED, decoder=SPACED), "ab"), ("ab a",)),
    "a special token that is spelled with a mark, and an added one within it": Row(
        lambda: special(add(bpe("A b ▁ ▁A", "▁ A", pre=METASPACE | {"prepend_scheme": "never"}),
                            "A"), "b▁A"), parsed=("b▁A",)),
    "two entries of the unknown token": Row(
        lambda: unigram([("<unk>", 0.0), ("a", -1.0), ("▁", -1.0), ("<unk>", -1.5)],
                        pre=METASPACE), refused=("b",)),
    "a special token that the normalizer turns into a space": Row(
        lambda: special(bpe("a ▁ ▁a", "▁ a", norm={"type": "Nmt"}, pre=FIRST, decoder=FIRST), "▁",
                        normalized=True), ("a",)),
    "an added token that loses a mark which the normalizer brings behind its start": Row(
        lambda: add(bpe("b", norm={"type": "Prepend", "prepend": "a"}, pre=METASPACE,
                        decoder=METASPACE), "▁", normalized=True), refused=("▁",)),
    "a word that stands alone beside a special one": Row(
        # The ids of ".xyz" alone have the added token, those of "xyz" amid letters do not.
        lambda: special(add(gpt2(), "xyz", single_word=True), "END"),
        (".xyz END xyz", ".xyzEND", "ENDxyz.", "xyzENDxyzEND")),
    "a mark in a text": Row(lambda: llama(prefix=True), ("a▁b", "▁", "▁a", "a ▁ b", "▁▁")),
    "a mark in a text, unknown characters": Row(
        t5, ("a▁b", "a ▁", "▁ a", "ab x", "x", "x ab x a", "ab")),
    "no mark, and the byte of a space": Row(lambda: without_mark("<0x20>"), ("ab", "a b", "")),
    "no mark, and a space": Row(lambda: without_mark(" "), ("ab", "a b", "")),
    "an unknown token that the model reads by its name, and bytes of this name": Row(
        lambda: bpe(["<unk>", *BYTES], settings=NAMED, pre=[AT_SPACES, FIRST]),
        ("<unk>", "a▁<unk>", "<unk> a")),
    "a normalizer in lower case": Row(lambda: gpt2(normalizers.Lowercase()), ("AB a", "ab")),
    "a normalizer that strips": Row(lambda: gpt2(normalizers.Strip()), (" ab ", "a b")),
    "a normalizer that prepends": Row(lambda: gpt2(normalizers.Prepend("b")), ("a", "ba")),
    "a normalizer that doubles a letter": Row(
        lambda: gpt2(normalizers.Replace("a", "aa")), ("b",), ("a", "ab"), SPELL),
    "a normalizer that puts spaces around each character, and again": Row(
        lambda: gpt2(normalizers.BertNormalizer(handle_chinese_chars=True)), ("ab",), ("a日本b",),
        SPELL),
    "a normalizer that makes an added token of a text": Row(
        lambda: add(gpt2(normalizers.Replace(Regex("^ "), "b")), "b"), ("a a",), ("  a",), SPELL),
    "a normalizer that parts a letter, in front of a mark, from an added token": Row(
        lambda: add(gpt2(normalizers.NFD()), "x<"), ("a≮", "<x", "é"), ("x≮",), SPELL),
    "a first token with two marks, where the decoder drops both": Row(
        lambda: unigram([("<unk>", 0.0), ("▁", -1.0), ("▁▁", -1.5), ("a", -1.0)], pre=WHOLE,
                        decoder=WHOLE), ("a", "a  a"), ("  a",), SPELL),
    # The model sees a space where NFKC writes one, and takes the byte of it.
    "a normalizer that writes spaces after those of the text are marks": Row(
        lambda: bpe([*"▁ab", *BYTES], settings=FALLBACK, decoder=METASPACE_DECODER,
                    norm=[SPACES, {"type": "NFKC"}]),
        ("a b",), ("a\u3000b",), "whose ids are others from position 1 on"),
    "added tokens apart in case, which the normalizer does not see": Row(
        lambda: add(bpe("a b", norm=LOWER), "<X>", "<x>"), ids=(("a<X><x>", [0, 2, 3]),)),
    # Without parsing, the text has other ids that spell it.
    "a special token that is a word hides another token": Row(
        lambda: special(bpe(["\t", "!", "!\t"], "! \t"), "!"), plain=("!\t!",),
        ids=(("!\t!", [2, 1]),)),
    # Beside other bytes, it would be decoded with them.
    "the name of a byte that is no text": Row(
        lambda: unigram([("<unk>", 0.0), *((b, -1.0) for b in BYTES), ("a", -1.0)], 0, True,
                        decoder=[READS_BYTES, {"type": "Fuse"}]),
        ("a", "aé"), ("a<0xE4>",), SPELL),
    "a tab that is a token needs no byte": Row(
        lambda: Tokenizer.from_str(fallback().to_str().replace('"<0x09>"', '"\\t"')),
        ("ab\tab é \x00", "\t"), gigatoken=True),
    "an added token that the library gave the id of a token": Row(
        lambda: special(add(bpe({"a": 0, "b": 1, "▁": 2, "ab": 4}, "a b"), "ab a"), "ab"),
        loads="or one that it gave to an added token, too"),
    "an added token that is normalized to the name of a byte": Row(
        lambda: add(bpe("a <0xB0>", settings=FALLBACK, norm=STRIP, decoder=READS_BYTES), " <0xEF>",
                    normalized=True), loads="reads the added token '<0xEF>' as a byte"),
    "a special token that is a byte of the byte fallback": Row(
        lambda: special(bpe("<0x61>", settings=FALLBACK, decoder=READS_BYTES), "<0x61>"),
        loads="reads the added token '<0x61>' as a byte"),
    "two added tokens with one normalized text": Row(
        lambda: add(bpe("a b", norm=LOWER), "<X>", "<x>", normalized=True),
        loads="one text of the added tokens '<X>' and '<x>'"),
    "an unknown token that is plain text": Row(
        lambda: add(llama(prefix=True), "<unk>"),
        loads="unknown token '<unk>' is an added token that is not"),
    "an unknown token that is plain text, where characters have no token": Row(
        lambda: add(unigram([("<unk>", 0.0), ("a", -1.0)]), "<unk>"),
        loads="unknown token '<unk>' is an added token that is not"),
    "an added token at which the library panics": Row(
        lambda: add(gpt2(normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])),
                    "\u0301", normalized=True),
        loads="the normalizer makes nothing of '\u0301', which"),
} | {
    f"a special token that is a word of the model, single_word={single}": Row(
        lambda single=single: special(special(gpt2(), "!"), "abc", single_word=single),
        ("ab! abc", "abcab!!", "!", "a abc", "ab!")) for single in (False, True)
} | {
    f"added tokens beside marks of spaces, prefix={prefix}, normalized={normalized}": Row(
        lambda prefix=prefix, normalized=normalized: add(
            llama(prefix=prefix), "<i>", "rest", normalized=normalized),
        ("the: <i>\nthe", "a <i> b", "<i>", "<i><i> a", "a rest", "rests", "outrested", "", " <i>"))
    for prefix, normalized in product((False, True), repeat=2)
} | {
    f"an added token with {flag}, prefix={prefix}": Row(
        lambda flag=flag, prefix=prefix: add(
            gpt2() if prefix is None else llama(prefix=prefix), "<i>", "b", **{flag: True}),
        ("a <i> b", "a<i>a", "  <i>  ", "abba bb", "b <i>b")
        + ("ab a b",) * (not (prefix and flag == "single_word")))
    for flag, prefix in product(("lstrip", "rstrip", "single_word"), (None, True, False))
} | {
    # The text of such ids has the token, which is looked for in the text as it came.
    f"an added token that {normalizer} writes is none": Row(
        lambda normalizer=normalizer: whole(normalizer), ("abc", "cb"), (text,),
        "whose ids are others from position 0 on")
    for normalizer, text in (
        (normalizers.Lowercase(), "ABC"), (normalizers.Replace("é", "a"), "ébc"),
        (normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace("x", "")]), "aXbc"))
} | {
    # Gemma's "▁▁" is looked for in the text as it came, where spaces are no marks.
    f"an added token of marks is none of the spaces of a text, {flags}": Row(
        lambda flags=flags: add(bpe("▁ ▁▁ a b", "▁ ▁", norm=SPACES, decoder=METASPACE_DECODER),
                                "▁▁", **flags),
        ("a▁▁b", "a  ▁▁b"), ids=(("a  b", [2, 1, 3]),))
    for flags in ({}, {"lstrip": True}, {"normalized": True})
}
# fmt: on
NEED_CONTENTS = re.compile(
    "turns into a space|loses a mark which|the name of a byte$|panics$|model reads, behind a text"
    "|marks of spaces, .*normalized=True"
)  # fmt: skip


def check(vocab: rt.Vocabulary, library: Tokenizer, *texts: str, parse: bool) -> None:
    """Hold all that reads the ids of accepted texts to those of the library."""
    library.encode_special_tokens = not parse
    known = [library.encode(text, add_special_tokens=False).ids for text in texts]
    rows = vocab.encode_batch(texts, parse_special=parse)
    assert [row.tolist() for row in rows] == known
    for text, expected in zip(texts, known, strict=True):
        ids = vocab.encode(text, parse_special=parse)
        assert ids.tolist() == expected, text
        guard = rt.Guard(vocab, allow_special=True)
        check_rows(guard, library, ids)
        check_draws(guard, library, ids, None if parse else text)
        if not {*expected} & {*vocab.special}:
            assert rt.Guard(vocab).admit(ids).tolist() == expected


def checked(library: Tokenizer, *texts: str) -> rt.Vocabulary:
    """The vocabulary of a tokenizer, after each text was accepted."""
    vocab = rt.Vocabulary.load(library)
    for parse in (False, True):
        check(vocab, library, *texts, parse=parse)
    return vocab


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=needs_normalized_contents if NEED_CONTENTS.search(name) else ())
    for name in ROWS
])  # fmt: skip
def test_texts_are_accepted_with_the_ids_of_the_library_everywhere_or_refused(name: str) -> None:
    row = ROWS[name]
    library = row.make()
    if row.loads:
        with pytest.raises(RobustokError, match=row.loads):
            rt.Vocabulary.load(library)
        return
    vocab = rt.Vocabulary.load(library)
    assert has_gigatoken(vocab) or not row.gigatoken
    for text, ids in row.ids:
        assert vocab.encode(text).tolist() == ids
    both = row.accepted + tuple(text for text, _ in row.ids if text not in row.plain)
    for parse, only, others in ((False, (), row.parsed), (True, row.parsed, row.plain)):
        check(vocab, library, *both, *only, parse=parse)
        for text in (*row.refused, *others):
            encodes = [vocab.encode, lambda text, **options: vocab.encode_batch([text], **options)]
            for encode in encodes:
                with pytest.raises(RobustokError, match=row.message) as error:
                    encode(text, parse_special=parse)
                assert "\n" not in str(error.value)
            if not parse:
                with pytest.raises(RobustokError, match=row.message):
                    rt.Uniform(vocab).sample(text, seed=0)
            if "others from" in row.message:  # since the text that the ids spell has other ids
                ids = library.encode(text).ids
                assert library.encode(vocab.decode_bytes(ids).decode()).ids != ids


WORDS = st.lists(st.text("ab!", min_size=2, max_size=3), unique=True, max_size=4)


@settings(max_examples=30)
@given(WORDS, st.lists(st.sampled_from(["a", "b", "!"]), unique=True, min_size=1), st.booleans())
def test_a_special_token_that_is_a_word_has_one_canonical_form(
    longer: list[str], words: list[str], single: bool
) -> None:
    """That of the text in which it is not parsed, as `encode` has it, beside special ids too."""
    scores = [(name, -1.0 - len(name) / 4) for name in ("a", "b", "!", *longer)]
    library = special(unigram([("<unk>", 0.0), *scores]), *words, single_word=single)
    special(library, "<s>")
    vocab = rt.Vocabulary.load(library)
    guard, end = rt.Guard(vocab, allow_special=True), vocab.size - 1  # of "<s>"
    library.encode_special_tokens = True
    for ids in product(range(1, end + 1), repeat=3):
        expected: list[int] = []
        for is_end, run in groupby(ids, lambda i: i == end):
            text = vocab.decode_bytes(run := [*run]).decode()
            expected += run if is_end else library.encode(text, add_special_tokens=False).ids
        verdict = guard.check([*ids])
        assert (verdict.repaired.tolist(), verdict.canonical) == (expected, expected == [*ids])


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
