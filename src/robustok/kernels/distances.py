"""How the distances of a text's words add up, and the weight z that aims their sum at k.

Words come as types with how often each occurs; stretches too long to table come as edges.
"""

from __future__ import annotations

import numpy as np

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
def _farthest(edges):
    """The largest distance of a path of a long stretch."""
    n = len(edges.first) - 1
    most = np.full(n + 1, -1, np.int64)
    most[n] = 0
    for i in range(n - 1, -1, -1):
        for e in range(edges.first[i], edges.first[i + 1]):
            j = i + (edges.step[e] >> 1)
            if most[j] >= 0:
                most[i] = max(most[i], most[j] + (edges.step[e] & 1))
    return most[0]


@njit(cache=True, nogil=True)
def feasible(store, types, times, longs, k):
    """The largest distance up to k that some tokenization has."""
    most, simple, three = np.int64(0), np.int64(0), False
    for x in range(len(types)):
        w0, far = ways_of(store, types[x]), grades_of(store, types[x])
        most += far * times[x]
        whole = far >= 2
        for d in range(2, far):
            whole = whole and store.floats[w0 + d] > 0.0
        if whole:
            simple += far * times[x]
            three = three or far >= 3
    for x in range(len(longs)):  # a stretch of hundreds of bytes has every distance but 1
        far = _farthest(longs[x])
        most += far
        if far >= 3:
            simple += far
            three = True
    if k >= most:
        return most
    # Words with every distance 0, 2, 3 … add up to every sum but 1.
    if three and 2 <= k <= simple:
        return k
    can = np.zeros(k + 1, np.bool_)
    can[0] = True
    for x in range(len(types)):
        w0, far = ways_of(store, types[x]), grades_of(store, types[x])
        for _ in range(times[x]):
            for s in range(k, 0, -1):
                for d in range(1, min(far, s) + 1):
                    if can[s - d] and store.floats[w0 + d] > 0.0:
                        can[s] = True
                        break
    for x in range(len(longs)):
        far = _farthest(longs[x])
        for s in range(k, 1, -1):
            for d in range(2, min(far, s) + 1):
                if can[s - d]:
                    can[s] = True
                    break
    while not can[k]:
        k -= 1
    return k


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
    return words if words <= 48 else min(max(np.int64(words ** (2.0 / 3.0)), 48), 1024)
