"""The automaton cuts as the library's own matcher does."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.guard.tokenizers_of import LLAMA3, byte_level
from tests.oracles.data import TOKENIZERS, data_path, real

import robustok as rt
from robustok.tokenizer.pre_tokenizer import PreTokenizer

O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
PATTERNS = {
    "gpt2": None,
    "llama3": LLAMA3,
    "o200k": O200K,
    "lazy": r"a+?b|[^b]{2,4}?\s|(?i:k+|[^s])|\p{Any}",
    "ahead": r"\p{L}+(?=\d)|\p{L}(?!!)|\w+|\W",
    "not covered": r"[a-f]+|\d{2}",
    "folded": r"(?i:kisk|[^s])|[\p{L}]|\P{L}",
}
LETTERS = "aAsSkKdDtlLreEvm'  \n\r\t\x0b129!.,_-/\u017f\u212aéÉßǅ日\u0301٣²\xa0\u2028\x85🎉\u200d"
texts = st.lists(st.text(st.sampled_from(LETTERS) | st.characters(exclude_categories=["Cs"])))


def cut_both(cutter: PreTokenizer, rows: list[bytes]) -> tuple[list[int], list[int]]:
    """The ends of pre-tokens by the automaton and by the library."""
    text, edges = b"".join(rows), np.cumsum([0, *map(len, rows)])
    whole = [i % 5 == 4 for i in range(len(rows))]
    fast = cutter.cut(np.frombuffer(text, np.uint8), edges, np.array(whole, np.bool_))
    return fast.tolist(), cutter._by_library(text, edges.tolist(), whole).tolist()


CUTTERS = {name: PreTokenizer(byte_level(p).data) for name, p in PATTERNS.items()}


@pytest.mark.parametrize("name", PATTERNS)
@given(rows=texts, broken=st.binary(max_size=6))
@example(rows=["it'ſ 'K we'LL  \n\n x", "ab" * 50, " " * 40 + "a"], broken=b"\xe6\x97")
@example(rows=["\u0130\u0131 ﬆ ŉ"], broken=b"\xed\xa0\x80\xf4\x90\x80\x80\xc0\x80")
@settings(max_examples=150)
def test_any_text(name: str, rows: list[str], broken: bytes) -> None:
    assert CUTTERS[name].automaton is not None
    fast, slow = cut_both(CUTTERS[name], [*(row.encode() for row in rows), broken + b"a" + broken])
    assert fast == slow


@given(text=st.text(st.sampled_from(LETTERS), max_size=30))
@settings(max_examples=300)
def test_possessive_repeats_of_tiktoken(text: str) -> None:
    regex = pytest.importorskip("regex")
    cutter = tiktoken_cutter(CL100K)
    ends = cutter.cut(np.frombuffer(text.encode(), np.uint8), np.array([0, len(text.encode())]))
    pre_tokens = regex.findall(CL100K.replace("$", r"\z"), text)
    assert ends.tolist() == np.cumsum([len(p.encode()) for p in pre_tokens]).tolist()


def test_tokenizers_reads_a_plus_after_braces_as_many_times() -> None:
    cutter = PreTokenizer(byte_level(r"\p{N}{1,3}+|\p{Any}").data)
    assert cutter.automaton is None
    fast, slow = cut_both(cutter, [b"1234567a"])
    assert fast == slow == [7, 8]
    number = np.frombuffer(b"1234567a", np.uint8)
    assert tiktoken_cutter(r"\p{N}{1,3}+|.").cut(number, np.array([0, 8])).tolist() == [3, 6, 7, 8]


@cache
def tiktoken_cutter(pattern: str) -> PreTokenizer:
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([b]): b for b in range(256)}
    encoding = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    cutter = PreTokenizer(rt.Vocabulary.load(encoding).data)
    assert cutter.automaton is not None
    return cutter


@pytest.mark.parametrize(
    "pattern",
    [r"(?<=a)b|.", r"\ba|.", r"(a)\1|.", "é+|.", "[à-ü]+|.", r"[\P{L}]|.", r"a$|.", r"(?>ab|a)c|.",
     r"(?:ab)++|.", "a(?!bc)|.", r"[a&&b]|.", "(?:a?)*|.", "[[:alpha:]]+|.", "(?i:kiss)|.",
     "(?i:sa|st)|.", r"(?i:\p{Lu})|.", r"(?i:[\p{Lu}])|.", "a{,2}|.", "(?:ab){2}?|.", r"[a[b]c]+|.",
     "(?#comment)a|.", r"(?i:s(?:ta|x))|.", r"(?i:s+)|.", r"\h+|."],
)  # fmt: skip
def test_a_pattern_that_is_not_understood_is_left_to_the_library(pattern: str) -> None:
    cutter = PreTokenizer(byte_level(pattern).data)
    assert cutter.automaton is None
    fast, slow = cut_both(cutter, [b"aabab \xc3\xa9c", b"cab", "Kiß stOne".encode()])
    assert fast == slow


@pytest.mark.parametrize("name", TOKENIZERS)
def test_real_tokenizers(name: str) -> None:
    lines = data_path("corpus", "hard_cases.jsonl").read_text(encoding="utf8").splitlines()
    lines += data_path("tokenizers", "reference_encodings.jsonl").read_text("utf8").splitlines()
    rows = [json.loads(line)["text"].encode() for line in lines]
    rows += [
        b"\xff\xfe caf\xc3",
        b"x" * 5000,
        b" " * 3000,
        "日本語👩‍👩‍👧".encode() * 50,
        b"it's 'stop' 12345",
    ]
    cutter = PreTokenizer(real(name).data)
    assert cutter.automaton is not None
    fast, slow = cut_both(cutter, rows)
    assert fast == slow
