"""Schemes of other schemes: `mix`, and schedules."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import isclose, log

import pytest
from tests.oracles import samplers
from tests.oracles.chi_square import assert_distribution
from tests.oracles.vocabulary import toy

import robustok as rt
from robustok.samplers.parameters import Ramp

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
