"""Numbers: random streams, rounding up, exact powers of two, and steps of Newton's method.

The random generator is SplitMix64, which is counter-based: the n-th number of a stream hashes
(key, n). A stream belongs to one (seed, epoch, row key, draw number, part), so a draw does not
depend on threads, batches, processes or order. Source: Steele, Lea, Flood 2014.

Newton's method finds the weight z = exp(slope) at which a mean distance is the target. Its callers
compute mean and variance of the distance under z**distance, which are the mean's value and
derivative in the slope. The mean increases with the slope, so a bracket holds the solution.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.compiler import njit

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_UNIT = 1.0 / 9007199254740992.0  # 2**-53
_BIAS = np.int64(1023)
_MANTISSA_BITS = np.int64(52)
_BELOW = 1.0 - 2.0**-50
STEEPEST = 60.0  # |slope|: beyond it only the nearest or the farthest path has weight


@njit(inline="always")
def mix(z):
    """The finalizer of SplitMix64, a bijection; ``z``: uint64."""
    z = (z ^ (z >> _S30)) * _M1
    z = (z ^ (z >> _S27)) * _M2
    return z ^ (z >> _S31)


@njit()
def stream(seed, epoch, key, draw, part):
    """The first state of the stream of one (seed, epoch, key, draw, part of a row); uint64.

    ``seed``: uint64. ``epoch``: int64. ``key``: int64, of a row. ``draw``: int64, the number of the
    draw. ``part``: int64, the number of a text within its row.
    """
    s = mix(np.uint64(seed) + GOLDEN)
    s = mix(s ^ (np.uint64(epoch) * _M1 + GOLDEN))
    s = mix(s ^ (np.uint64(key) * _M2 + GOLDEN))
    s = mix(s ^ (np.uint64(draw) * GOLDEN + _M1))
    return mix(s ^ (np.uint64(part) * _M1 + _M2))


@njit(inline="always")
def uniform(state):
    """A float64 in [0, 1) and the ``state`` after it."""
    state = state + GOLDEN
    return np.float64(mix(state) >> _S11) * _UNIT, state


@njit(inline="always")
def below(state, n):
    """An integer in [0, n), int64, and the ``state`` after it; uneven by at most n / 2**53.

    ``n``: at least 1.
    """
    state = state + GOLDEN
    i = np.int64(np.float64(mix(state) >> _S11) * _UNIT * n)
    return min(i, n - 1), state


@njit()
def uniforms(seed, epoch, keys, draws, part):
    """One uniform number for each key and draw, float64 [keys, draws].

    ``keys``: int64 [keys]. ``draws``: how many for each key. ``seed``, ``epoch`` and ``part`` are
    those of `stream`.
    """
    out = np.empty((len(keys), draws))
    for k in range(len(keys)):
        for d in range(draws):
            out[k, d], _ = uniform(stream(seed, epoch, keys[k], d, part))
    return out


def mixed(key: int, draw: int) -> int:
    """A key for one draw of a row, as int64."""
    state = stream(np.uint64(0), np.int64(0), np.int64(key), np.int64(draw), np.int64(0))
    return int(np.uint64(state).astype(np.int64))


def rounded_up(rate, m):
    """ceil(rate * m), float64, of the decimal number that ``rate`` (float64) was read from.

    0.28 * 25 is above 7 as a float. What rounding adds, a share of at most 2**-52, is less than
    what the factor takes off. ``m``: int64.
    """
    return np.ceil(rate * m * _BELOW)


ceil_of = njit(inline="always")(rounded_up)


@njit(inline="always")
def two_to(exponent):
    """2.0 ** ``exponent``, for an int64 in -1022..1024; float64."""
    return np.int64((exponent + _BIAS) << _MANTISSA_BITS).view(np.float64)


@njit(inline="always")
def exponent_of(x):
    """The largest int64 e with 2.0 ** e <= ``x``, a positive float64 of at least 2.0 ** -1022."""
    return (np.float64(x).view(np.int64) >> _MANTISSA_BITS) - _BIAS


@njit()
def inside(low, high, step):
    """The Newton step where it is inside the bracket, else the middle of the bracket.

    ``low``, ``high``: float64, the ends of the bracket. ``step``: float64, the slope after the
    step; NaN is not inside.
    """
    return step if low < step < high else 0.5 * (low + high)


@njit()
def logit_step(slope, mean, variance, target, farthest):
    """The slope after a Newton step on the logit of mean / farthest; NaN where it has no step.

    Converges at both ends, where the mean flattens and plain Newton steps overshoot. ``mean``,
    ``variance``: those of the distance at ``slope``. ``farthest``: the largest distance.
    ``target``: the wanted mean, from 0 to ``farthest``, both exclusive.
    """
    if variance <= 0.0 or mean <= 0.0 or mean >= farthest:
        return np.nan
    gap = np.log(target / (farthest - target)) - np.log(mean / (farthest - mean))
    return slope + gap * mean * (farthest - mean) / (farthest * variance)
