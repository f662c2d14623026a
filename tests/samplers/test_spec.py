"""Spec: a scheme as a value; mixtures and schedules; a scheme that is set to a strength has it."""

import pickle
import re
from collections import Counter
from fractions import Fraction
from functools import partial
from math import isclose, log
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import samplers
from tests.oracles.chi_square import assert_distribution
from tests.oracles.lattice import splits
from tests.oracles.vocabulary import canonical, cases, toy

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


@pytest.mark.parametrize(("call", "message"), [
    ((None,), "a scheme is a string"),
    ((["uniform"],), "a scheme is a string"),
    (("uniform", None), "uniform: params is a dict, not None"),
    (("uniform-k", [1]), "uniform-k: params is a dict"),
    (("uniform-k", {1: 2}), "no parameter '1': choose from"),
])  # fmt: skip
def test_a_spec_of_other_types_is_one_line(call: Any, message: str) -> None:
    with pytest.raises(rt.RobustokError, match=message):
        rt.Spec(*call)


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
        ("mix(0.5*canonical, 0.5 uniform)", "not '0.5*canonical'"),
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


TOY = toy([bytes([b]) for b in b"abc d"] + [b"ab", b"bc", b"abc", b" d", b"cab", b" ab"], [b"<s>"])
TEXT = "abcab d"


@pytest.mark.parametrize(
    "spec",
    [
        "mix(0.25 canonical, 0.75 uniform-k(alpha=1))",
        "mix(0.5 mix(0.5 canonical, 0.5 uniform-k(alpha=1)), 0.5 uniform-k(alpha=1))",
        "mix(0.5 uniform-k(alpha=1), 0.5 mix(0.5 uniform-k(alpha=1), 0.5 canonical))",
    ],
)
def test_a_mixture_is_the_mixture_of_the_laws(spec: str) -> None:
    ids = tuple(TOY.encode(TEXT).tolist())
    parts = [
        (Fraction(1, 4), {ids: Fraction(1)}),
        (Fraction(3, 4), samplers.uniform_k(TOY, ids, len(ids))),
    ]
    distribution: dict[tuple[int, ...], Fraction] = Counter()  # type: ignore[assignment]
    for weight, part in parts:
        for path, p in part.items():
            distribution[path] += weight * p
    mix = rt.sampler(spec, TOY)
    assert mix.spec == spec
    assert_distribution(mix.sample_batch([TEXT], seed=1, draws=20_000), distribution)
    for path, p in distribution.items():
        assert isclose(mix.log_prob(path), log(p), rel_tol=1e-9)


def test_all_texts_of_a_row_go_by_the_same_scheme() -> None:
    text = TOY.encode(TEXT).tolist()
    special = next(iter(TOY.special))
    mix = rt.sampler("mix(0.5 canonical, 0.5 uniform-k(k=4))", TOY)
    for row in mix.sample_batch([[*text, special, *text]], seed=1, draws=50):
        cut = row.tolist().index(special)
        assert (row[:cut].tolist() == text) == (row[cut + 1 :].tolist() == text)


def test_a_schedule_moves_in_a_line() -> None:
    spec = rt.Spec.parse("mix(1->0.5 canonical, 0->0.5 uniform-k(k=2->5))")
    assert str(spec.at(0.5)) == "mix(0.75 canonical, 0.25 uniform-k(k=4))"
    moving = rt.schedule(spec, TOY)
    with pytest.raises(rt.RobustokError, match="is a schedule"):
        rt.sampler(spec, TOY)
    assert not moving.is_constant and rt.schedule("uniform", TOY).is_constant
    for progress in (0, 0.3, 1):
        scheme = moving.at(progress)
        assert scheme.spec == str(spec.at(progress))
        assert TOY.decode_bytes(scheme.sample(TEXT, seed=0)) == TEXT.encode()
    with pytest.raises(rt.RobustokError, match="from 0 to 1"):
        spec.at(1.5)


def test_a_mixture_with_a_sampler_inside_is_a_schedule_like_others() -> None:
    spec = rt.Spec(
        "mix", {"parts": [(Ramp(1, 0.5), "canonical"), (Ramp(0, 0.5), rt.sampler("uniform", TOY))]}
    )
    assert str(spec.at(1)) == "mix(0.5 canonical, 0.5 uniform)"
    assert rt.schedule(spec, TOY).at(1).spec == "mix(0.5 canonical, 0.5 uniform)"


TEXTS = ["abcab d cab abc" * (1 + i % 4) for i in range(60)]


@given(case=cases(most=30), seed=st.integers(0, 1000))
@settings(max_examples=80)
def test_measures_are_what_they_say(case, seed: int) -> None:
    vocab, text = case
    ids = canonical(vocab, text)
    rows = rt.Ragged.from_rows([ids, [], ids])
    drawn = rt.Uniform(vocab).sample_batch(rows, seed=seed, draws=2)
    strength = rt.measure(vocab, rows, drawn)
    for i, row in enumerate(drawn):
        assert strength.splits[i] == splits(vocab, rows[i // 2], row)
        assert strength.distance[i] == rt.distance(vocab, rows[i // 2], row)
        assert strength.tokens[i] == len(row)


def test_rows_that_do_not_pair_are_errors() -> None:
    canonical = TOY.encode_batch(["abc", "ab"])
    with pytest.raises(rt.RobustokError, match="do not pair"):
        rt.measure(TOY, canonical, TOY.encode_batch(["abc"] * 3))
    with pytest.raises(rt.RobustokError, match="drawn row 1"):
        rt.measure(TOY, canonical, TOY.encode_batch(["abc", "abc"]))


def test_measure_reads_bytes_and_not_lengths() -> None:
    vocab = toy([b"a", b"b", b"ab", b"ba", b"bb"], special=[b""])
    for old, new in (([0], [1]), ([2], [3]), ([2], [0, 0]), ([2, 0], [2, 1]), ([2], [2, 5, 0])):
        with pytest.raises(rt.RobustokError, match="drawn row 0"):
            rt.measure(vocab, [old], [new])
    assert rt.measure(vocab, [[2, 5, 1]], [[0, 1, 5, 1]]).distance.tolist() == [2]
    assert rt.measure(vocab, [[5, 2, 5]], [[2]]).distance.tolist() == [0]


@pytest.mark.parametrize(
    ("scheme", "target"),
    [
        ("stochastok", {"splits": 0.4}),
        ("stochastok(ways=3)", {"length_ratio": 1.5}),
        ("stochastok-uniform", {"distance": 0.8}),
        ("uniform-k", {"splits": 0.3}),
        ("grampa(min_length=1)", {"splits": 0.6}),
        ("maxmatch-dropout", {"length_ratio": 1.3}),
        ("mix(0.5 uniform, 0.5 canonical)", {"splits": 0.2}),
    ],
)
def test_a_scheme_set_to_a_strength_has_it(scheme: str, target: dict[str, float]) -> None:
    tuned = rt.at_strength(scheme, TOY, TEXTS, seed=1, **target)  # type: ignore[arg-type]
    assert tuned.name == scheme.partition("(")[0]
    canonical = TOY.encode_batch(TEXTS)
    drawn = tuned.sample_batch(canonical, seed=2, draws=5)
    mean = rt.measure(TOY, canonical, drawn).mean()
    ((name, wanted),) = target.items()
    assert abs(mean[name] - wanted) < 0.05


@pytest.mark.parametrize(
    ("scheme", "target"),
    [
        ("stochastok", {"splits": 0.01}),
        ("stochastok(ways=3)", {"length_ratio": 1.01}),
        ("stochastok-uniform", {"distance": 0.02}),
        ("uniform-k", {"splits": 0.5}),
        ("uniform-k", {"length_ratio": 1.3}),
    ],
)
def test_a_strength_that_rounding_up_skips_is_an_error_with_a_mixture_that_has_it(
    scheme: str, target: dict[str, float]
) -> None:
    texts = ["abc d", "cab abc"] * 200
    with pytest.raises(rt.RobustokError, match=r"cannot be reached.*the nearest are") as error:
        rt.at_strength(scheme, TOY, texts, seed=1, **target)  # type: ignore[arg-type]
    ((name, wanted),) = target.items()
    canonical = TOY.encode_batch(texts)
    mixed = re.search(r"mix.*\)\)", str(error.value))
    assert mixed
    drawn = rt.sampler(mixed[0], TOY).sample_batch(canonical, seed=2, draws=50)
    change = wanted - (name == "length_ratio")
    mean = rt.measure(TOY, canonical, drawn).mean()[name]
    assert abs(mean - wanted) < 0.1 * change


def test_what_few_or_short_texts_cannot_have_is_searched_and_is_an_error() -> None:
    texts = ["abc"] * 300  # of one token, without a tokenization at distance 1
    with pytest.raises(rt.RobustokError, match=r"the nearest are 0 .* and \d.*alpha=1.000"):
        rt.at_strength("uniform-k", TOY, texts, splits=0.5)
    with pytest.raises(rt.RobustokError, match=r"on these texts; it goes from 0 to (1\.0|0\.9)"):
        rt.at_strength("mix(0.5 canonical, 0.5 uniform)", TOY, texts[:1], splits=1.3)


@given(seed=st.integers(0, 10**6), target=st.floats(0.05, 0.9), count=st.integers(1, 60))
@settings(max_examples=25)
def test_a_mixture_has_its_strength_with_every_seed(seed: int, target: float, count: int) -> None:
    canonical = TOY.encode_batch(TEXTS[:count])
    mixed = rt.at_strength(
        "mix(0.5 uniform, 0.5 canonical)", TOY, TEXTS[:count], distance=target, seed=seed
    )
    weight = mixed.params["parts"][1][0]
    other = rt.Uniform(TOY).sample_batch(canonical, seed=seed + 1, draws=5000 // count)
    whole = rt.measure(TOY, canonical, other).mean()["distance"]
    assert abs(weight * whole - target) < 0.1 * target


def test_a_strength_out_of_reach_is_an_error() -> None:
    with pytest.raises(rt.RobustokError, match="cannot be reached on these texts; it goes from 0"):
        rt.at_strength("stochastok", TOY, TEXTS, splits=50)
    with pytest.raises(rt.RobustokError, match="uniform has no strength parameter"):
        rt.at_strength("uniform", TOY, TEXTS, splits=0.5)
    with pytest.raises(rt.RobustokError, match="canonical and one other"):
        rt.at_strength("mix(0.5 grampa, 0.5 uniform)", TOY, TEXTS, splits=0.5)
    with pytest.raises(rt.RobustokError, match="give one of"):
        rt.at_strength("stochastok", TOY, TEXTS)
