"""One definition of canonical ids: what encoding accepts, all schemes, the guard and `log_prob` do.

Most tokenizers here are the smallest of a kind that random tokenizers found (see `fuzz`): their ids
do not always spell the text they stand for.
"""

import io
import re
from collections.abc import Callable
from importlib.util import find_spec
from itertools import groupby, product
from math import exp, fsum, isclose
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.guard.tokenizers_of import (
    METASPACE_DECODER,
    bpe_model,
    needs_normalized_contents,
    tokenizer_json,
)
from tests.guard.tokenizers_of import metaspace_tokenizer as llama
from tests.oracles.sentencepiece import trained
from tests.tokenizer.test_vocabulary import bpe as gpt2_json
from tests.tokenizer.test_vocabulary import fallback
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, processors

import robustok as rt
from robustok.errors import RobustokError
from robustok.tokenizer.data import USED_BYTES, byte_alphabet
from robustok.tokenizer.gigatoken import Strings

# The smallest tokenizers of a kind, built from a few tokens, merges and stages.

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
              "use_regex": True}  # fmt: skip
SPACED = BYTE_LEVEL | {"add_prefix_space": True, "use_regex": False}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
FIRST, WHOLE = METASPACE | {"prepend_scheme": "first"}, METASPACE | {"split": False}
PREPEND, LOWER = {"type": "Prepend", "prepend": "▁"}, {"type": "Lowercase"}
SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
MARKS = {"type": "Sequence", "normalizers": [PREPEND, SPACES]}
STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
FALLBACK = {"byte_fallback": True}
UNKNOWN = {"unk_token": "<unk>"}
NAMED = FALLBACK | UNKNOWN | {"ignore_merges": True}  # it takes a pre-token "<unk>" for the token
READS_BYTES = {"type": "ByteFallback"}
AT_SPACES = {"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated", "invert": False}


def stages(**given: Any) -> dict[str, Any]:
    """The stages of a tokenizer.json: lists are sequences."""
    names = {"norm": ("normalizer", "normalizers"), "pre": ("pre_tokenizer", "pretokenizers"),
             "decoder": ("decoder", "decoders")}  # fmt: skip
    return {
        names[key][0]: {"type": "Sequence", names[key][1]: value} if type(value) is list else value
        for key, value in given.items()
    }


def bpe(tokens: Any, *merges: str, settings: Any = (), **given: Any) -> Tokenizer:
    """A BPE of a string of tokens with spaces between, or others; a merge is two tokens."""
    names = tokens.split(" ") if isinstance(tokens, str) else tokens
    vocab = tokens if isinstance(tokens, dict) else {name: i for i, name in enumerate(names)}
    model = bpe_model(vocab, [merge.split(" ") for merge in merges], **dict(settings))
    return Tokenizer.from_str(tokenizer_json(model, **stages(**given)))


def unigram(tokens: Any, unk_id: int | None = 0, falls_back: bool = False, **given: Any) -> Any:
    """A Unigram model of tokens with their scores, in pairs."""
    model = {"type": "Unigram", "unk_id": unk_id, "byte_fallback": falls_back,
             "vocab": [*map(list, tokens)]}  # fmt: skip
    return Tokenizer.from_str(tokenizer_json(model, **stages(**given)))


def add(tokenizer: Tokenizer, *contents: str, **flags: bool) -> Tokenizer:
    flags = {"normalized": False} | flags
    adds = tokenizer.add_special_tokens if flags.get("special") else tokenizer.add_tokens
    adds([AddedToken(content, **flags) for content in contents])
    return tokenizer


def special(tokenizer: Tokenizer, *contents: str, **flags: bool) -> Tokenizer:
    return add(tokenizer, *contents, special=True, **flags)


def gpt2(normalizer: Any = None) -> Tokenizer:
    tokenizer = Tokenizer.from_str(gpt2_json())
    tokenizer.normalizer = normalizer
    return tokenizer


def t5() -> Tokenizer:
    """A Unigram without most characters, whose pre-tokenizer drops spaces and writes marks."""
    tokens = zip(["<unk>", *"▁ab", "▁a", "ab"], [0.0, -2.0, -2.0, -2.1, -2.5, -3.0], strict=True)
    pre = [{"type": "WhitespaceSplit"}, METASPACE]
    return special(unigram(tokens, pre=pre, decoder=METASPACE), "<unk>")


def before_each_text(tokenizer: Tokenizer, name: str) -> Tokenizer:
    tokenizer.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single=[name, "$A"], special_tokens=[(name, tokenizer.token_to_id(name))]
    )
    return tokenizer


def without_mark(space: str) -> Tokenizer:
    """A BPE with byte fallback and marks of spaces that are no tokens."""
    names = [*(space if b == ord(" ") else name for b, name in enumerate(BYTES)), *"ab", "ab"]
    return bpe(names, "a b", settings=FALLBACK, norm=MARKS, decoder=METASPACE_DECODER)


def whole(normalizer: Any) -> Tokenizer:
    """A byte-level BPE that merges "abc", where "ab" is an added token."""
    tokenizer = bpe([*byte_alphabet(), "ab", "abc"], "a b", "ab c", pre=BYTE_LEVEL,
                    decoder=BYTE_LEVEL)  # fmt: skip
    tokenizer.normalizer = normalizer
    return add(tokenizer, "ab")


def has_gigatoken(vocab: rt.Vocabulary) -> bool:
    """Whether gigatoken encodes for a vocabulary, where it is installed."""
    return vocab.gigatoken.reason is None or find_spec("gigatoken") is None


# One definition of canonical ids

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


# Tokens that stand where the tokenizer puts them: twins, added and unknown ones, marks, bytes


@pytest.mark.parametrize("content", ["▁", "▁a"])
@pytest.mark.parametrize("normalized", [False, True])
def test_bpe_dropout_is_refused_where_merges_need_an_added_token(
    content: str, normalized: bool
) -> None:
    tokenizer = bpe("a b ▁ ▁a ▁ab", "▁ a", "▁a b", norm=PREPEND)
    add(tokenizer, content, normalized=normalized)
    vocab = rt.Vocabulary.load(tokenizer)
    with pytest.raises(RobustokError, match=f"merges of the model need its token '▁*{content}'"):
        rt.BpeDropout(vocab, p=0.5)


@needs_normalized_contents
def test_an_added_token_that_is_a_word_stays_and_others_are_not_drawn_as_it() -> None:
    tokenizer = llama(prefix=True)
    tokenizer.add_tokens(["rest"])  # normalized: it is matched and decoded as "▁rest"
    vocab = checked(tokenizer, "the rest", "the rests")
    (i,) = vocab.data.plain_added
    assert vocab.tokens[i] == b" rest" and not vocab.ordinary[i] and vocab.readable[i]
    assert i in rt.Uniform(vocab).sample("the rest", seed=0)


def test_of_twins_the_one_that_the_model_can_see_is_in_the_vocabulary() -> None:
    names = [*BYTES, "a", " a", "▁", "▁a"]
    tokenizer = bpe(names, "▁ a", settings=FALLBACK, norm=SPACES, decoder=METASPACE_DECODER)
    vocab = checked(tokenizer, " a", "a a")
    assert vocab.ordinary[256:].tolist() == [True, False, True, True]
    draw = rt.BpeDropout(vocab, p=0.4)
    assert all(257 not in draw.sample(" a", seed=seed) for seed in range(9))


def test_the_twin_that_the_tokenizer_takes_is_in_the_vocabulary() -> None:
    names = [*sorted(byte_alphabet()), "ĠĠ", "  "]
    tokenizer = bpe(names, "Ġ Ġ", pre=BYTE_LEVEL, decoder=BYTE_LEVEL)
    add(tokenizer, "  ", normalized=True)
    vocab = checked(tokenizer, "  ", "a  b", "   a")
    assert vocab.ordinary[[256, 257]].tolist() == [False, True]
    assert {len(rt.StochasTok(vocab, alpha=1).sample("  ", seed=s)) for s in range(9)} == {2}


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


@pytest.mark.parametrize("name", ["Ġab", "©Ã"])
def test_a_placed_token_that_the_model_reads_without_its_name(name: str) -> None:
    """Draws from a text leave it in its place, as those from the ids."""
    names, merges = [*byte_alphabet(), "Ġa", "Ġab", "©Ã"], ("Ġ a", "Ġa b", "© Ã")
    tokenizer = add(bpe(names, *merges, pre=SPACED, decoder=BYTE_LEVEL), name)
    vocab = checked(tokenizer, "b ab", "éé ab")
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
    tokens, merges = [*"▁abAB0\n", "▁a", "▁ab", "bb"], ("▁ a", "▁a b", "b b")
    tokenizer = bpe(tokens, *merges, norm=[LOWER, PREPEND, SPACES], decoder=METASPACE_DECODER)
    vocab = rt.Vocabulary.load(tokenizer)
    rows = vocab.encode_continuations([" AB", "Bb", "▁ab", " ab", "bb"])
    texts = [[vocab.tokens[i].decode() for i in row] for row in rows]
    assert texts == [[" ab"], ["bb"], [" ab"], [" ab"], ["bb"]]
    assert tokenizer.encode("0 AB").ids[2:] == rows[0].tolist()


@pytest.mark.parametrize("left_out", [frozenset(range(256)) - USED_BYTES, frozenset([0xFF])])
def test_bytes_that_utf8_never_uses_need_no_token(left_out: frozenset[int]) -> None:
    letters = [c for c, byte in byte_alphabet().items() if byte not in left_out]
    names = [*letters, "ab", "‼"]
    tokenizer = bpe(names, "a b", pre=BYTE_LEVEL, decoder=BYTE_LEVEL)
    read = checked(tokenizer, "ab é 日 \U0010ffff \x00", "ab‼")
    assert has_gigatoken(read)
    assert not read.ordinary[names.index("‼")]  # outside the alphabet, where no text gives it
    assert read.tokens[names.index("‼")] == "‼".encode()


def test_many_added_tokens_are_searched_by_one_expression() -> None:
    contents = [f"<|{i / 50:.2f}|>" for i in range(1501)]
    search = Strings(contents)
    assert search.split("a<|29.98|>") == ["a", "<|29.98|>", ""]
    assert search.split("<|30.02|> 0.00|> <|") == ["<|30.02|> 0.00|> <|"]
    tokenizer = add(gpt2(), *contents)
    assert has_gigatoken(checked(tokenizer, "ab <|0.00|> b", "<|30.00|>"))


def test_scores_that_leave_no_precision_are_refused_and_small_ones_do_not_underflow() -> None:
    def of(score: float) -> rt.Sampler:
        scores = [("<unk>", 0.0), ("a", score), ("b", -2.0), ("ab", -3.0)]
        return rt.sampler("unigram", rt.Vocabulary.load(unigram(scores)))

    assert of(-2000.0).log_prob([1, 2]) == pytest.approx(-1999.0)
    with pytest.raises(RobustokError, match=r"the token 'a' has a score of -1e\+300"):
        of(-1e300).sample("ab", seed=0)
