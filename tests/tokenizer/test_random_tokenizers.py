"""Random tokenizers of the fuzzer: each is exact in all operations, or is refused with a reason."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from fuzz.made_tokenizers import Made, random_tokenizer
from fuzz.random_tokenizers import Finding, Refused, Subject, Violation, call, cuts_of, violated
from tests.oracles.lattice import tokenizations
from tests.oracles.vocabulary import ENGLISH


def some_tokenizers(count: int) -> list[Made]:
    return [random_tokenizer(random.Random(seed)) for seed in range(count)]


@pytest.mark.parametrize("number", range(40))
def test_a_tokenizer_is_exact_or_refused(number: int) -> None:
    counts = call(0, number)
    assert counts["texts encoded"] or any(name.startswith("refused") for name in counts)


def test_the_search_over_all_tokens_is_that_of_the_oracle() -> None:
    tokens = {ENGLISH.tokens[i] for i in ENGLISH.ordinary.nonzero()[0]}
    for text in (b"", b"abc", b"ab cab d", b"ccab"):
        paths = tokenizations(ENGLISH, text)
        assert cuts_of(text, tokens) == {tuple(len(ENGLISH.tokens[i]) for i in p) for p in paths}


def test_a_finding_has_a_script_of_its_tokenizer() -> None:
    subject = next(filter(None, map(loaded, some_tokenizers(20))))
    script = Finding(subject, ("abc",), Violation("an example", "this", "that")).script
    names: dict = {}
    exec(script, names)
    assert names["t"].to_str() == subject.library.to_str()
    assert "# robustok 'that'" in script


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
