"""Schemes of other schemes: `exactly`, draws of one exact strength; `mix`; schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from math import comb, isclose, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import samplers
from tests.oracles.chi_square import assert_distribution
from tests.oracles.data import real
from tests.oracles.strategies import cases
from tests.oracles.vocabulary import GAPPY, canonical, toy

import robustok as rt

TOY = toy([bytes([b]) for b in b"abc d"] + [b"ab", b"bc", b"abc", b" d", b"cab", b" ab"], [b"<s>"])
EVEN = toy([b"a", b"b", b"c", b"abc"])  # numbers of splits are even
TEXT = "abcab d"
MEASURES = {"splits": "splits", "length_ratio": "tokens"}


def exactly_uniform(
    vocab: rt.Vocabulary, measure: str, wanted: int, ids: Sequence[int]
) -> rt.Sampler:
    """The sampler that draws these ids at a strength of ``wanted``."""
    return rt.Exactly(vocab, scheme="uniform", **{measure: wanted / max(len(ids), 1)})


def test_exactly_is_the_distribution_given_the_strength() -> None:
    ids = tuple(TOY.encode(TEXT).tolist())
    whole = samplers.stochastok(TOY, ids, 1.0)
    fits = {path: p for path, p in whole.items() if len(path) == len(ids) + 2}
    distribution = {path: p / sum(fits.values()) for path, p in fits.items()}
    share = 2 / len(ids)
    for measure in (f"splits={share}", f"length_ratio={1 + share}"):
        scheme = rt.sampler(f"exactly(stochastok(alpha=1), {measure})", TOY)
        assert_distribution(scheme.sample_batch([TEXT], seed=1, draws=4000), distribution)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(
    ("vocab", "text"),
    [(TOY, b"abcab d"), (TOY, b"cabab abc"), (GAPPY, b"abcddab"), (EVEN, b"abcabcba")],
)
def test_exactly_uniform_at_every_strength(vocab: rt.Vocabulary, text: bytes, measure: str) -> None:
    ids = canonical(vocab, text)
    for wanted in range(len(text) + 2):
        rows = exactly_uniform(vocab, measure, wanted, ids).sample_batch([ids], seed=3, draws=3000)
        expected = samplers.exactly_uniform(vocab, tuple(ids), measure, wanted)
        assert_distribution(rows, expected)


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from(sorted(MEASURES)), st.integers(0, 11))
def test_exactly_uniform_over_random_vocabularies(
    case: tuple[rt.Vocabulary, bytes], measure: str, wanted: int
) -> None:
    vocab, text = case
    ids = canonical(vocab, text)
    expected = samplers.exactly_uniform(vocab, tuple(ids), measure, wanted if ids else 0)
    rows = exactly_uniform(vocab, measure, wanted, ids).sample_batch([ids], seed=5, draws=200)
    assert_distribution(rows, expected)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("text", [b"a" * 900, b"ab" * 600, b"ab" * 40_000, b"ab" * 600 + b"a" * 9])
def test_every_arrangement_of_long_and_short_tokens_is_equally_likely(
    text: bytes, measure: str
) -> None:
    """One unbroken block, or many words: which tokens are long is a uniform subset."""
    vocab = toy([b"a", b"aa"] if b"b" not in text else [b"a", b"b", b"ab"])
    ids = canonical(vocab, text)
    wanted = (2 if measure == "splits" else 6) * len(ids) // 5
    draws = 1500 if len(text) < 10_000 else 20
    drawn = exactly_uniform(vocab, measure, wanted, ids).sample_batch([ids], seed=2, draws=draws)
    lengths = np.diff(vocab.token_offsets)
    seen = []
    for row in drawn:
        assert vocab.decode_bytes(row) == text
        if b"b" in text:  # each word is long or short, at its place
            word_ends = np.cumsum(lengths[row]) % 2 == 0
            seen.append(tuple((lengths[row] == 2)[word_ends][[0, 7, -20]].astype(int)))
            assert len(row) == (len(ids) if measure == "splits" else 0) + wanted
        elif measure == "length_ratio":
            seen.append(tuple((lengths[row] == 2)[[0, 7, -1]].astype(int)))
            assert len(row) == wanted
    if not seen or draws < 1000:
        return
    slots, longs = wanted, len(text) - wanted
    if b"b" in text:
        slots = text.count(b"ab")
        longs = slots - (wanted if measure == "splits" else wanted - len(ids))
    law = {
        (x, y, z): Fraction(comb(slots - 3, longs - x - y - z), comb(slots, longs))
        for x in (0, 1)
        for y in (0, 1)
        for z in (0, 1)
    }
    assert_distribution(seen, law)


def strength_of(vocab: rt.Vocabulary, ids: Sequence[int], row: np.ndarray, measure: str) -> int:
    rows = [rt.Ragged.from_rows([x]) for x in (ids, row)]
    return int(getattr(rt.measure(vocab, *rows), MEASURES[measure])[0])


def fewest_tokens(vocab: rt.Vocabulary, text: bytes) -> int:
    tokens = {vocab.tokens[i] for i in np.flatnonzero(vocab.ordinary)}
    longest = max(map(len, tokens))
    fewest = [0]
    for end in range(1, len(text) + 1):
        begins = range(max(0, end - longest), end)
        fewest.append(1 + min(fewest[i] for i in begins if text[i:end] in tokens))
    return fewest[-1]


@pytest.mark.parametrize("measure", MEASURES)
def test_any_text_has_the_strength_or_the_nearest_one(measure: str) -> None:
    vocab = real("gpt2")
    rng = np.random.default_rng(0)
    for text in (b"\xff" * 3000, b"a" * 3000, b"he" * 2000, b"", b" ", rng.bytes(3000),
                 b"A revolution is a rapid, fundamental transformation of a society. " * 20,
                 bytes(rng.choice(list(b"acgtehilnorsu"), 6000).tolist())):  # fmt: skip
        ids = vocab.lattice(text).reference.tolist()
        least = 0 if measure == "splits" else fewest_tokens(vocab, text)
        most = len(text) - (len(ids) if measure == "splits" else 0)
        for wanted in {0, 1, least + 1, (least + most) // 2, most - 1, most, 9999 * len(ids)}:
            wanted = max(wanted, 0)
            row = exactly_uniform(vocab, measure, wanted, ids).sample(ids, seed=1)
            assert vocab.decode_bytes(row) == text
            assert strength_of(vocab, ids, row, measure) == min(max(wanted, least), most)


def test_a_gap_is_left_for_the_nearest_strength() -> None:
    ids = canonical(EVEN, b"abc" * 20_000)
    strengths = {0: 0, 1: 0, 2: 2, 4999: 4998, 39_999: 39_998, 10**6: 40_000}
    for wanted, strength in strengths.items():
        row = exactly_uniform(EVEN, "splits", wanted, ids).sample(ids, seed=4)
        assert strength_of(EVEN, ids, row, "splits") == strength


def test_exactly_takes_the_nearest_where_nothing_fits() -> None:
    row = rt.sampler("exactly(stochastok(alpha=1), splits=50)", TOY).sample("ab", seed=0)
    assert row.tolist() == [0, 1]


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
