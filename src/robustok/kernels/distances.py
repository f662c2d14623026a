"""How the distances of a text's words add up, and the weight z that aims their sum at k.

Words come as types with how often each occurs; stretches too long to table come as edges.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.feasible import flexible, largest_feasible
from robustok.kernels.jit import njit
from robustok.kernels.long import backward, moments
from robustok.kernels.memory import borrow
from robustok.kernels.tables import borrow_store, grades_of, ways_of

STEEPEST = 60.0  # |log z|: beyond it only the nearest or the farthest tokenization is left
SAMPLE = 64  # types of words that a first guess of z is made from
NEGLIGIBLE = 1e-24  # convolved probabilities below are rounding


@njit(cache=True, nogil=True)
def copy_ways(store, types, start, ways):
    """Type x's numbers of tokenizations by distance to ``ways[start[x]:start[x + 1]]``.

    In one piece and in order: the records lie anywhere, and they are weighed again and again.
    """
    store = borrow_store(store)
    for x in range(len(types)):
        w0 = ways_of(store, types[x]) - start[x]
        for at in range(start[x], start[x + 1]):
            ways[at] = store.floats[w0 + at]


@njit(cache=True, nogil=True)
def _weigh(ways, start, times, slope, longs, pmf, powers):
    """Probabilities of every type's distances under weight exp(slope·distance).

    Returns the mean and the variance of the summed distance of all words.
    """
    ways, start, times = borrow(ways), borrow(start), borrow(times)
    pmf, powers = borrow(pmf), borrow(powers)
    # The largest weight is 1, at distance 0 or at the farthest one: nothing overflows.
    ratio = np.exp(-abs(slope))
    powers[0] = 1.0
    for x in range(1, len(powers)):
        powers[x] = powers[x - 1] * ratio
    mean, var = 0.0, 0.0
    for x in range(len(times)):
        begin, size = start[x], start[x + 1] - start[x]
        total, first, second = 0.0, 0.0, 0.0
        for d in range(size):
            p = ways[begin + d] * powers[d if slope <= 0.0 else size - 1 - d]
            pmf[begin + d] = p
            total += p
            first += p * d
            second += p * (d * d)
        scale = 1.0 / total
        for d in range(size):
            pmf[begin + d] *= scale
        first *= scale
        mean += times[x] * first
        var += times[x] * max(second * scale - first * first, 0.0)
    for x in range(len(longs)):
        mantissa, exponent = backward(longs[x], np.exp(slope))
        m, v = moments(longs[x], np.exp(slope), mantissa, exponent)
        mean += m
        var += v
    return mean, var


@njit(cache=True, nogil=True)
def _newton(ways, start, times, longs, k, slope, pmf, powers):
    """log z at which the expected distance is k, close enough that hardly a draw is lost."""
    low, high = -STEEPEST, STEEPEST
    for _ in range(60):
        mean, var = _weigh(ways, start, times, slope, longs, pmf, powers)
        if abs(mean - k) <= 0.2 * np.sqrt(var):
            return slope
        if mean > k:
            high = slope
        else:
            low = slope
        step = slope + (k - mean) / var if var > 1e-12 else high + 1.0
        slope = step if low < step < high else 0.5 * (low + high)
    _weigh(ways, start, times, slope, longs, pmf, powers)
    return slope


@njit(cache=True, nogil=True)
def solve_far(ways, start, times, longs, k, pmf):
    """As `solve`, by Newton steps on the logit of the mean, which converge at both ends.

    Returns the slope, and the variances of the distance of all words and of ``longs``.
    """
    longest, farthest = np.int64(1), np.int64(0)
    for x in range(len(times)):
        longest = max(longest, start[x + 1] - start[x])
        farthest += (start[x + 1] - start[x] - 1) * times[x]
    for x in range(len(longs)):
        farthest += flexible(longs[x])[0]
    powers = np.empty(longest)
    low, high = -STEEPEST, STEEPEST
    slope = STEEPEST if k >= farthest else 0.0
    mean, var = _weigh(ways, start, times, slope, longs, pmf, powers)
    for _ in range(100):
        if k >= farthest or abs(mean - k) <= 0.2 * np.sqrt(var) or high - low < 1e-12:
            break
        if mean > k:
            high = slope
        else:
            low = slope
        slope = 0.5 * (low + high)
        if var > 0.0 and 0.0 < mean < farthest:
            gap = np.log(k / (farthest - k)) - np.log(mean / (farthest - mean))
            step = (high if mean > k else low) + gap * mean * (farthest - mean) / (farthest * var)
            if low < step < high:
                slope = step
        mean, var = _weigh(ways, start, times, slope, longs, pmf, powers)
    _, words = _weigh(ways, start, times, slope, longs[:0], pmf, powers)
    return slope, words, var - words


@njit(cache=True, nogil=True)
def solve(ways, start, times, longs, k, pmf):
    """log z for a text, and the distances of its types under it.

    A few of its words, which come first, tell nearly where it lies: they take their share of k by
    how far they can go.
    """
    types = len(times)
    longest = np.int64(1)
    for x in range(types):
        longest = max(longest, start[x + 1] - start[x])
    powers = np.empty(longest)
    slope = 0.0
    if types > 2 * SAMPLE:
        whole, part = np.int64(0), np.int64(0)
        for x in range(types):
            far = (start[x + 1] - start[x] - 1) * times[x]
            whole += far
            if x < SAMPLE:
                part += far
        if part > 0:
            share = k * part / whole
            slope = _newton(ways, start, times[:SAMPLE], longs[:0], share, 0.0, pmf, powers)
    return _newton(ways, start, times, longs, k, slope, pmf, powers)


@njit(cache=True, nogil=True)
def feasible(store, types, times, longs, k):
    """The largest distance up to k that some tokenization has, or -1 where this does not show it.

    Words with every distance 2, 3, ... up to their farthest make every sum from 2 on; whatever
    steps the other words take are bridged once the first reach further than one such step.
    """
    most, simple, three, gap = np.int64(0), np.int64(0), False, np.int64(0)
    one = k == 0
    for x in range(len(types)):
        w0, far = ways_of(store, types[x]), grades_of(store, types[x])
        most += far * times[x]
        one = one or (far >= 1 and store.floats[w0 + 1] > 0.0)
        whole = far >= 2
        for d in range(2, far):
            whole = whole and store.floats[w0 + d] > 0.0
        if whole:
            simple += far * times[x]
            three = three or far >= 3
        else:
            gap = max(gap, far)
    for x in range(len(longs)):
        far, flexible_sum, has_three, step = flexible(longs[x])
        most += far
        simple += flexible_sum
        three = three or has_three
        gap = max(gap, step)
        one = one or largest_feasible(longs[x], 1) == 1
    if k >= most:
        return most
    if k <= 1:
        return k if one else np.int64(0)
    return np.int64(k) if three and simple > gap else np.int64(-1)


@njit(cache=True, nogil=True)
def convolve_block(pmf, start, block, k, base, low, high):
    """The probabilities that words block[t:] have distances summing to s, and the largest for t=0.

    That of s is table[base[t] + s - low[t]], for s from low[t] to high[t]: rows lie end to end,
    since they hold a few hundred of the thousands of sums there could be.
    """
    pmf, base, low, high = borrow(pmf), borrow(base), borrow(low), borrow(high)
    n = len(block)
    table = np.empty(64 * (n + 1))
    table[0] = 1.0
    base[n], low[n], high[n] = 0, 0, 0
    free = np.int64(1)
    for t in range(n - 1, -1, -1):
        at, far = start[block[t]], start[block[t] + 1] - start[block[t]] - 1
        below, above = low[t + 1], min(high[t + 1] + far, k)
        width = above - below + 1
        if free + width > len(table):
            larger = np.empty(2 * len(table) + width)
            larger[:free] = table[:free]
            table = larger
        # Slices, in which the compiler sees that no index is negative: three times faster.
        row = table[free : free + width]
        ahead = table[base[t + 1] : base[t + 1] + high[t + 1] - low[t + 1] + 1]
        row[:] = 0.0
        for d in range(far + 1):
            p = pmf[at + d]
            if p > 0.0:
                reached = min(len(ahead), len(row) - d)
                into, add = row[d : d + reached], ahead[:reached]
                for s in range(reached):
                    into[s] += p * add[s]
        first, last = np.int64(0), width - 1
        while last > 0 and row[last] < NEGLIGIBLE:
            last -= 1
        while first < last and row[first] < NEGLIGIBLE:
            first += 1
        base[t], low[t], high[t] = free + first, below + first, below + last
        free += last + 1
    best = 0.0
    for s in range(high[0] - low[0] + 1):
        best = max(best, table[base[0] + s])
    return table, best


@njit(cache=True, nogil=True)
def block_size(words):
    """How many words to convolve: the table grows with it, the attempts needed shrink with it."""
    if words <= 48:
        return words
    return max(min(max(np.int64(words ** (2.0 / 3.0)), 48), 1024), words // 32)
