"""Random streams are those of SplitMix64, and each its own; rounding up is that of decimals."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np

from robustok.kernels import numbers

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    """The finalizer of SplitMix64."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_streams_are_splitmix64() -> None:
    state = numbers.stream(np.uint64(3), np.int64(1), np.int64(-5), np.int64(2), np.int64(0))
    after = (int(state) + GOLDEN) & MASK
    expected = (mix(after) >> 11) / 2**53
    u, state_after = numbers.uniform(np.uint64(state))
    assert (u, int(state_after)) == (expected, after)
    i, state_after = numbers.below(np.uint64(state), np.int64(7))
    assert (i, int(state_after)) == (int(expected * 7), after)
    assert int(numbers.mix(np.uint64(12345))) == mix(12345)


def test_each_stream_is_its_own() -> None:
    states = [
        int(numbers.stream(np.uint64(s), np.int64(e), np.int64(k), np.int64(d), np.int64(p)))
        for s in (0, 1) for e in (0, 1) for k in (0, 1, -1) for d in (0, 1) for p in (0, 1)
    ]  # fmt: skip
    assert len(set(states)) == len(states)
    u = numbers.uniforms(np.uint64(1), np.int64(0), np.arange(50), np.int64(4), np.int64(0))
    assert u.shape == (50, 4) and 0 <= u.min() < u.max() < 1
    assert numbers.mixed(3, 1) != numbers.mixed(3, 2)


def test_a_decimal_rate_is_rounded_up_exactly() -> None:
    for hundredths in range(1, 301):
        rate = float(f"{hundredths / 100:.2f}")
        for m in range(201):
            exact = ceil(Fraction(hundredths, 100) * m)
            assert numbers.rounded_up(rate, m) == exact, (rate, m)
    for rate, m in ((1e-9, 1), (0.0714285715, 14), (9999.99, 5000), (1.0, 10**9)):
        exact = ceil(Fraction(str(rate)) * m)
        assert numbers.rounded_up(rate, m) == numbers.ceil_of(rate, m) == exact
    assert numbers.ceil_of(0.28, 25) == 7
    assert numbers.ceil_of(0.0, 25) == 0
