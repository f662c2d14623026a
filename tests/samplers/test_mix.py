"""Mixtures and schedules."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import isclose, log

import numpy as np
import pytest
from tests.oracles import samplers
from tests.oracles.chi_square import assert_distribution
from tests.oracles.vocabulary import toy

import robustok as rt
from robustok.samplers.schedules import is_schedule

TOY = toy([bytes([b]) for b in b"abc d"] + [b"ab", b"bc", b"abc", b" d", b"cab", b" ab"], [b"<s>"])
TEXT = "abcab d"


def test_a_mixture_is_the_mixture_of_the_laws() -> None:
    ids = tuple(TOY.encode(TEXT).tolist())
    parts = [
        (Fraction(1, 4), {ids: Fraction(1)}),
        (Fraction(3, 4), samplers.uniform_k(TOY, ids, len(ids))),
    ]
    distribution: dict[tuple[int, ...], Fraction] = Counter()  # type: ignore[assignment]
    for weight, part in parts:
        for path, p in part.items():
            distribution[path] += weight * p
    mix = rt.sampler("mix(0.25 canonical, 0.75 uniform-k(alpha=1))", TOY)
    assert mix.spec == "mix(0.25 canonical, 0.75 uniform-k(alpha=1))"
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


@pytest.mark.parametrize(
    "spec",
    ["mix(0.5 canonical, 0.5 stochastok(alpha=1))", "exactly(stochastok(alpha=1), splits=0.5)",
     "mix(0.5 uniform, 0.5 mix(0.5 canonical, 0.5 grampa(temperature=2)))",
     "grampa(temperature=2)", "maxmatch-dropout(p=0.3)"],
)  # fmt: skip
def test_a_draw_depends_on_seed_epoch_key_and_number_alone(spec: str) -> None:
    scheme = rt.sampler(spec, TOY)
    assert rt.sampler(scheme.spec, TOY).spec == scheme.spec
    texts = [TEXT * (1 + i % 5) for i in range(30)]
    keys = np.arange(100, 130)
    rows = scheme.sample_batch(texts, seed=3, draws=4, keys=keys)
    order = np.random.default_rng(0).permutation(30)
    shuffled = scheme.sample_batch([texts[i] for i in order], seed=3, draws=4, keys=keys[order])
    for place, i in enumerate(order.tolist()):
        for d in range(4):
            assert np.array_equal(rows[i * 4 + d], shuffled[place * 4 + d])
        assert np.array_equal(rows[i * 4], scheme.sample(texts[i], seed=3, key=int(keys[i])))
        assert TOY.decode_bytes(rows[i * 4]) == texts[i].encode()
    assert scheme.sample_batch(texts, seed=3, draws=4, keys=keys, epoch=1) != rows
    many = [TEXT * 40] * 400
    one = scheme.sample_batch(many, seed=9, threads=1)
    assert scheme.sample_batch(many, seed=9, threads=3) == one


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mix(0.5 canonical)", "two schemes"),
        ("mix(0.5 canonical, 0.6 uniform)", "add up to 1"),
        ("mix(-0.5 canonical, 1.5 uniform)", "a weight must be a number from 0 to 1"),
        ("mix(half canonical, 0.5 uniform)", "a weight and a scheme"),
        ("mix(0.5 canonical, 0.5 uniforn)", "did you mean 'uniform'"),
        ("mix(0.5 canonical, 0.5 uniform))", "parentheses do not match"),
        ("stochastok(alpha=0->1)", "is a schedule"),
        ("exactly(uniform)", "give one of"),
        ("exactly(uniform, splits=1, distance=1)", "give one of"),
        ("exactly(uniform, splits=-1)", "from 0 to 10000"),
    ],
)
def test_mistakes_are_errors(spec: str, message: str) -> None:
    with pytest.raises(rt.RobustokError, match=message):
        rt.sampler(spec, TOY)


def test_a_schedule_moves_in_a_line() -> None:
    spec = "mix(1->0.5 canonical, 0->0.5 uniform-k(k=2->5))"
    assert is_schedule(spec)
    assert rt.at_progress(spec, 0) == "mix(1 canonical, 0 uniform-k(k=2))"
    assert rt.at_progress(spec, 0.5) == "mix(0.75 canonical, 0.25 uniform-k(k=4))"
    assert rt.at_progress("stochastok(alpha=0.1 -> 1e0)", 0.25) == "stochastok(alpha=0.325)"
    assert rt.at_progress("uniform", 0.3) == "uniform"
    for progress in (0, 0.3, 1):
        scheme = rt.sampler(rt.at_progress(spec, progress), TOY)
        assert TOY.decode_bytes(scheme.sample(TEXT, seed=0)) == TEXT.encode()
    with pytest.raises(rt.RobustokError, match="from 0 to 1"):
        rt.at_progress(spec, 1.5)
