"""Spec: a scheme as a value, read and normalized without a vocabulary."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import robustok as rt
from robustok.samplers.parameters import Ramp


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("stochastok", "stochastok(alpha=0.1)"),
        (" stochastok( ways=2, alpha = 1.0 ) ", "stochastok(alpha=1)"),
        ("stochastok-uniform(support='pairwise')",
         'stochastok-uniform(alpha=0.5, support="pairwise")'),
        ("uniform-k(k=3.0)", "uniform-k(k=3)"),
        ("uniform-k(k=1234567)", "uniform-k(k=1234567)"),
        ("stochastok(alpha=0.123456789)", "stochastok(alpha=0.123456789)"),
        ("unigram(temperature=2)", "unigram(temperature=2)"),
        ("bpe-dropout(rule=hf)", 'bpe-dropout(p=0.1, rule="hf")'),
        ("grampa(min_length=1)", "grampa(temperature=1)"),
        ("mix(.5 stochastok, .5 mix(.5 canonical, .5 uniform))",
         "mix(0.5 stochastok(alpha=0.1), 0.5 mix(0.5 canonical, 0.5 uniform))"),
        ("mix(.5 canonical,0.5 uniform-k(alpha=1.0))",
         "mix(0.5 canonical, 0.5 uniform-k(alpha=1))"),
        ("stochastok(alpha=0.1 -> 1e0)", "stochastok(alpha=0.1->1)"),
        ("mix(1 -> 0.5 canonical, 0->0.5 uniform-k(k=2->5))",
         "mix(1->0.5 canonical, 0->0.5 uniform-k(k=2->5))"),
    ],
)  # fmt: skip
def test_a_spec_is_normalized_without_a_vocabulary(text: str, normal: str) -> None:
    spec = rt.Spec.parse(text)
    assert str(spec) == normal
    assert rt.Spec.parse(normal) == spec == pickle.loads(pickle.dumps(spec))
    assert hash(rt.Spec.parse(normal)) == hash(spec)


def test_a_spec_is_a_value() -> None:
    spec = rt.Spec("uniform-k", {"alpha": 1})
    assert str(spec) == "uniform-k(alpha=1)"
    with pytest.raises(TypeError):
        spec.params["alpha"] = 2  # type: ignore[index]
    with pytest.raises(rt.RobustokError, match="give either alpha"):
        rt.Spec("uniform-k", {"alpha": 1, "k": 3})
    outer = rt.Spec.parse("mix(0.5 mix(0.5 canonical, 0.5 uniform), 0.5 uniform)")
    _, inner = outer.params["parts"][0]
    assert [str(part) for _, part in inner.params["parts"]] == ["canonical", "uniform"]


@pytest.mark.parametrize("value", [np.zeros((2, 2)), ["all"], 1])
def test_a_choice_that_is_no_word_is_one_line(value: Any) -> None:
    with pytest.raises(rt.RobustokError, match="support must be 'all' or 'pairwise', not"):
        rt.Spec("stochastok-uniform", {"support": value})


def test_a_ramp_is_a_value_of_a_schedule() -> None:
    spec = rt.Spec.parse("stochastok(alpha=0.1->1)")
    assert spec.params["alpha"] == Ramp(0.1, 1.0) == spec.strength
    assert spec.is_schedule
    assert [str(spec.at(x)) for x in (0, 0.5, 1)] == [
        "stochastok(alpha=0.1)", "stochastok(alpha=0.55)", "stochastok(alpha=1)",
    ]  # fmt: skip
    deep = rt.Spec.parse("mix(0.2->0.4 mix(1->0 canonical, 0->1 uniform), 0.8->0.6 canonical)")
    assert str(deep.at(0.5)) == "mix(0.3 mix(0.5 canonical, 0.5 uniform), 0.7 canonical)"
    assert not deep.at(0.5).is_schedule


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stochastok(alpha=0->20000)", "alpha must be a number from 0 to 10000"),
        ("stochastok(ways=1->3)", "ways must be a whole number from 2"),
        ("stochastok(alpha=a->b)", "alpha must be a number"),
        ("mix(1->0 canonical, 0.5 uniform)", "the weights must add up to 1"),
        ("mix()", "mix needs parts, as mix(0.5 canonical"),
        ("unigram(temprature=2)", "did you mean 'temperature'"),
        ("bpe-dropout(rule=other)", "rule must be 'provilkov' or 'hf' or 'sentencepiece'"),
        ("stochastik", "did you mean 'stochastok'"),
        ("stochastok(alfa=1)", "did you mean 'alpha'"),
        ("stochastok(alpha=nan)", "must be a number from 0 to 10000"),
        ("stochastok-uniform(alpha=10001)", "must be a number from 0 to 10000"),
        ("uniform-k(alpha=-1)", "must be a number from 0 to 10000"),
        ("uniform-k(k=2147483648)", "k must be a whole number"),
        ("stochastok(ways=1e300)", "ways must be a whole number from 2 to"),
        ("maxmatch-dropout(p=1.1)", "p must be a number from 0 to 1"),
        ("grampa(temperature=1e7)", "temperature must be a number from 1e-06"),
        ("grampa(temperature=0)", "temperature must be a number from 1e-06"),
        ("grampa(min_length=0)", "min_length must be a whole number from 1"),
        ("mix(0.5 canonical, 0.5 stochastok(alpha=inf))", "must be a number from 0 to 10000"),
        ("mix(1e300 canonical, 0.5 uniform)", "a weight must be a number from 0 to 1"),
        ("mix(0.5 uniform, 0.5 " * 9 + "uniform" + ")" * 9, "deep"),
        ("(" * 5000, "a scheme 5000 levels deep"),
        ("a" * 20_000, "a scheme of 20000 characters"),
        ("uniform-k", "give either alpha"),
        ("uniform-k(alpha=1, k=2)", "give either alpha"),
        ("uniform-k(k=1.5)", "k must be a whole number"),
        ("stochastok(alpha=1, ways=1)", "ways must be a whole number from 2 to"),
        ("stochastok-uniform(support=some)", "must be 'all' or 'pairwise'"),
        ("uniform(alpha=1)", "uniform takes none"),
        ("stochastok(1)", "write each parameter as name=value"),
        ("stochastok(", "cannot read the scheme"),
        ("mix(0.5 canonical)", "two schemes"),
        ("uniform-k(alpha=1, alpha=2)", "give alpha once"),
        ("mix(0.5 canonical, 0.6 uniform)", "add up to 1"),
        ("mix(-0.5 canonical, 1.5 uniform)", "a weight must be a number from 0 to 1"),
        ("mix(half canonical, 0.5 uniform)", "a weight and a scheme"),
        ("mix(0.5 canonical, 0.5 uniforn)", "did you mean 'uniform'"),
        ("mix(0.5 canonical, 0.5 uniform))", "parentheses do not match"),
    ],
)
def test_what_no_scheme_takes_is_refused_without_a_vocabulary(text: str, message: str) -> None:
    with pytest.raises(rt.RobustokError) as error:
        rt.Spec.parse(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@given(st.text(alphabet="umix(),.5->= klpha\"'1e", max_size=40))
def test_any_text_is_a_spec_or_an_error(text: str) -> None:
    for candidate in (text, f"mix({text})", f"stochastok(alpha={text})"):
        try:
            spec = rt.Spec.parse(candidate)
        except rt.RobustokError as error:
            assert "\n" not in str(error)
        else:
            assert str(rt.Spec.parse(str(spec))) == str(spec)


@pytest.mark.parametrize(
    "make", [rt.sampler, rt.schedule, partial(rt.at_strength, texts=["a"], splits=1)]
)
def test_exchanged_arguments_are_named(make: Any) -> None:
    vocab = rt.Vocabulary.load("demo")
    with pytest.raises(rt.RobustokError, match="exchanged: the scheme comes first"):
        make(vocab, "stochastok")
