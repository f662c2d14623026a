"""Random tokenizers of the fuzzer: each is exact in all operations, or is refused with a reason."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from fuzz.made_tokenizers import Made, random_tokenizer
from fuzz.random_tokenizers import Finding, Search, call, violated
from fuzz.tokenizer_checks import Refused, Subject, Violation, cuts_of
from tests.oracles.lattice import tokenizations
from tests.oracles.vocabulary import ENGLISH


def some_tokenizers(count: int) -> list[Made]:
    return [random_tokenizer(random.Random(seed)) for seed in range(count)]


@pytest.mark.parametrize("number", range(40))
def test_a_tokenizer_is_exact_or_refused(number: int) -> None:
    counts = call(0, number)
    assert counts["texts encoded"] or any(name.startswith("refused") for name in counts)


def test_a_script_makes_the_same_tokenizer() -> None:
    for made in some_tokenizers(60):
        try:
            expected = made.build().to_str()
        except Exception:
            continue
        names: dict = {}
        exec(made.script(), names)
        assert names["t"].to_str() == expected


def test_the_search_over_all_tokens_is_that_of_the_oracle() -> None:
    tokens = {ENGLISH.tokens[i] for i in ENGLISH.ordinary.nonzero()[0]}
    for text in (b"", b"abc", b"ab cab d", b"ccab"):
        paths = tokenizations(ENGLISH, text)
        assert cuts_of(text, tokens) == {tuple(len(ENGLISH.tokens[i]) for i in p) for p in paths}


def test_a_violation_is_made_small() -> None:
    def check(subject: Subject, text: str, counts: Counter[str]) -> None:
        contents = [one["content"] for one in subject.made.added]
        if "x" in text and "<bad>" in contents and "ab" in subject.made.tokens():
            raise Violation("an example", "this", "that", f"print({text!r})")

    made = Made(
        {"kind": "BPE", "tokens": [*"abc dx", "ab", "abc"], "merges": [["a", "b"], ["ab", "c"]],
         "unk_token": None, "byte_fallback": False, "fuse_unk": True, "ignore_merges": True},
        normalizer=[{"type": "NFC"}, {"type": "Lowercase"}],
        added=[{"content": "<other>"}, {"content": "<bad>", "lstrip": True, "normalized": True}],
    )  # fmt: skip
    arguments = ("abc x dx abc",)
    violation = violated(Subject(made), check, arguments, Counter())
    assert violation is not None
    finding = Search(check, violation).smallest(made, arguments)
    assert isinstance(finding, Finding)
    assert str(finding) == "an example | BPE | added (new)"
    assert "print('x')" in finding.script
    assert "'vocab': {'ab': 0}" in finding.script


def test_what_is_no_refusal_is_a_violation() -> None:
    def check(subject: Subject, text: str, counts: Counter[str]) -> None:
        raise ZeroDivisionError(text)

    subject = next(filter(None, map(loaded, some_tokenizers(20))))
    violation = violated(subject, check, ("a",), Counter())
    assert violation is not None
    assert "ZeroDivisionError" in violation.check


def loaded(made: Made) -> Subject | None:
    try:
        return Subject(made)
    except Refused:
        return None
