"""Distribution of the distance of a text: per type of block, and summed over blocks.

Blocks occur as types with a number of occurrences; blocks too long to table are lattices of their
own (`longs`, a list of `lattice.Edges`). Every token that is not the reference's has weight z, so
blocks are independent; Newton's method chooses z such that the expected sum is k.

Arguments of one meaning in this module: ``types``: `Types` of the blocks of a text. ``longs``: a
list of `lattice.Edges`, or None, which leaves out the code for it. ``k``: int64, a distance of at
least 0; a float64 for the sample in `solve`. ``slope``: float64, log z. ``scratch``:
`NewtonScratch` for these types and ``longs``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.compiler import borrow, njit
from robustok.kernels.lattice import extremes, moments, write_backward
from robustok.kernels.numbers import STEEPEST, inside, logit_step
from robustok.kernels.store import counts_of, degrees_of

LANES = 8  # thresholds that are compared at once
SAMPLE = 64  # types of blocks that the first estimate of z is made from


class NewtonScratch(NamedTuple):
    """Arrays that Newton's method uses in every step."""

    powers: np.ndarray  # float64 [most distances of a type]
    mantissa: np.ndarray  # float64 [nodes of the largest of ``longs``], see `lattice.backward`
    exponent: np.ndarray  # int64 [the same]


class Types(NamedTuple):
    """The types of a text's blocks; type x has distances 0 to start[x + 1] - start[x] - 1.

    What belongs to distance d of type x is at index start[x] + d. Invariant: every type has a
    tokenization, and so have its first and its last distance.
    """

    record: np.ndarray  # int64 [types]: position of its record in the store
    times: np.ndarray  # int64 [types]: how many blocks of the text have this type
    start: np.ndarray  # int64 [types + 1]
    counts: np.ndarray  # float64 [start[-1]]: tokenizations at each distance
    probability: np.ndarray  # float64 [start[-1]]: of each distance under z, set by `_weigh`
    row: np.ndarray  # int64 [types + 1]: rows of ``threshold`` before each type; one or more each
    threshold: np.ndarray  # float64 [row[-1], LANES]: the sums of ``probability`` up to each
    # distance but the last, then 2.0; set by `accumulate`


@njit()
def read_types(store, record, times):
    """The `Types` of these records, with their counts copied from the store.

    ``record``: int64 [types], positions of records in the store. ``times``: int64 [types].
    Copied into one array because Newton's method reads them many times, and records are scattered.
    """
    store = borrow(store)
    start = np.empty(len(record) + 1, np.int64)
    row = np.empty(len(record) + 1, np.int64)
    start[0] = row[0] = 0
    for x in range(len(record)):
        degrees = degrees_of(store, record[x])
        start[x + 1] = start[x] + degrees + 1
        row[x + 1] = row[x] + max(1, (degrees + LANES - 1) // LANES)
    size = start[len(record)]
    counts = np.empty(size)
    for x in range(len(record)):
        source = counts_of(store, record[x]) - start[x]
        for at in range(start[x], start[x + 1]):
            counts[at] = store.floats[source + at]
    return Types(
        record,
        times,
        start,
        counts,
        np.empty(size),
        row,
        np.empty((row[len(record)], LANES)),
    )


@njit()
def accumulate(types):
    """Set ``threshold`` from ``probability``: a distance is the number of thresholds up to u."""
    types = borrow(types)
    types.threshold[:] = 2.0
    for x in range(len(types.record)):
        total = 0.0
        begin = types.start[x]
        for d in range(types.start[x + 1] - begin - 1):
            total += types.probability[begin + d]
            types.threshold[types.row[x] + d // LANES, d % LANES] = total


@njit()
def _weigh(types, slope, longs, scratch):
    """Set ``types.probability`` under weight exp(slope * distance).

    Returns the mean and the variance of the summed distance of all blocks and of ``longs``.
    """
    types, powers = borrow(types), borrow(scratch.powers)
    # The largest weight is 1, at distance 0 or at the farthest one: nothing overflows.
    ratio = np.exp(-abs(slope))
    powers[0] = 1.0
    for x in range(1, len(powers)):
        powers[x] = powers[x - 1] * ratio
    mean, var = 0.0, 0.0
    for x in range(len(types.times)):
        begin, size = types.start[x], types.start[x + 1] - types.start[x]
        total, first, second = 0.0, 0.0, 0.0
        for d in range(size):
            p = types.counts[begin + d] * powers[d if slope <= 0.0 else size - 1 - d]
            types.probability[begin + d] = p
            total += p
            first += p * d
            second += p * (d * d)
        scale = 1.0 / total
        for d in range(size):
            types.probability[begin + d] *= scale
        first *= scale
        mean += types.times[x] * first
        var += types.times[x] * max(second * scale - first * first, 0.0)
    if longs is not None:
        for x in range(len(longs)):
            write_backward(longs[x], np.exp(slope), scratch.mantissa, scratch.exponent)
            m, v = moments(longs[x], np.exp(slope), scratch.mantissa, scratch.exponent)
            mean += m
            var += v
    return mean, var


@njit()
def _scratch_for(types, longs):
    """`NewtonScratch` for these types and ``longs``."""
    most, nodes = np.int64(1), np.int64(0)
    for x in range(len(types.times)):
        most = max(most, types.start[x + 1] - types.start[x])
    if longs is not None:
        for x in range(len(longs)):
            nodes = max(nodes, len(longs[x].first))
    return NewtonScratch(np.empty(most), np.empty(nodes), np.empty(nodes, np.int64))


@njit()
def _newton(types, longs, k, slope, scratch):
    """log z at which the expected distance is k, to a fifth of a standard deviation.

    That is close enough: hardly a draw is rejected because of it. ``slope``: where to start. Sets
    ``types.probability`` for the result.
    """
    low, high = -STEEPEST, STEEPEST
    for _ in range(60):
        mean, var = _weigh(types, slope, longs, scratch)
        if abs(mean - k) <= 0.2 * np.sqrt(var):
            return slope
        if mean > k:
            high = slope
        else:
            low = slope
        slope = inside(low, high, slope + (k - mean) / var if var > 1e-12 else np.nan)
    _weigh(types, slope, longs, scratch)
    return slope


@njit()
def solve(types, longs, k):
    """log z for distance k, by plain Newton steps; sets ``types.probability`` for it.

    The first estimate comes from a few types, whose share of k is that of their farthest distance.
    """
    scratch = _scratch_for(types, longs)
    slope = 0.0
    if len(types.times) > 2 * SAMPLE:
        whole, part = np.int64(0), np.int64(0)
        for x in range(len(types.times)):
            farthest = (types.start[x + 1] - types.start[x] - 1) * types.times[x]
            whole += farthest
            if x < SAMPLE:
                part += farthest
        if part > 0:
            sample = Types(
                types.record,
                types.times[:SAMPLE],
                types.start,
                types.counts,
                types.probability,
                types.row,
                types.threshold,
            )
            slope = _newton(sample, None, k * part / whole, 0.0, scratch)
    return _newton(types, longs, k, slope, scratch)


@njit()
def solve_unbroken(types, longs, k):
    """As `solve`, by logit Newton steps, for texts whose distance is mostly that of ``longs``.

    ``k``: at least 1. Returns log z, and the variances of the distance of all blocks and of
    ``longs``.
    """
    scratch = _scratch_for(types, longs)
    farthest = np.int64(0)
    for x in range(len(types.times)):
        farthest += (types.start[x + 1] - types.start[x] - 1) * types.times[x]
    for x in range(len(longs)):
        _, most = extremes(longs[x])
        farthest += most[0]
    low, high = -STEEPEST, STEEPEST
    slope = STEEPEST if k >= farthest else 0.0
    mean, var = _weigh(types, slope, longs, scratch)
    for _ in range(100):
        if k >= farthest or abs(mean - k) <= 0.2 * np.sqrt(var) or high - low < 1e-12:
            break
        if mean > k:
            high = slope
        else:
            low = slope
        step = logit_step(slope, mean, var, k, farthest)
        slope = inside(low, high, step)
        mean, var = _weigh(types, slope, longs, scratch)
    _, var_blocks = _weigh(types, slope, None, scratch)
    return slope, var_blocks, var - var_blocks
