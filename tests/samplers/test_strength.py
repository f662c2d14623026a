"""Strength is measured right, and a scheme set to a strength has it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.lattice import splits
from tests.oracles.strategies import cases
from tests.oracles.vocabulary import canonical, toy

import robustok as rt

TOY = toy([bytes([b]) for b in b"abc d"] + [b"ab", b"bc", b"abc", b" d", b"cab", b" ab"], [b"<s>"])
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
