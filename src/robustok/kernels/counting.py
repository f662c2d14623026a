"""Numbers of paths through a lattice: exact ones, and the logarithm of the number of one cost.

Exact numbers are machine integers, for small blocks; `robustok.lattice` has the others.

The logarithm of the number of paths of one total cost takes time linear in the lattice. Paths are
weighted exp(slope * cost) with the slope at which the mean cost is the wanted one (saddle point).
Their cost then has a probability, and the number of paths is that probability times the weighted
total over exp(slope * cost). A small lattice gives the probability by a table of costs. In a large
one it is a sum over the characteristic function at M equidistant angles (inverse DFT), M wide
enough that no cost aliases. The function at a node is a mean of those at later nodes, so a pass
stops once it is negligible at as many nodes as the longest edge spans: all but some fifty passes
are short.

Arguments of one meaning in this module: ``first`` (int64 [n + 1]) and ``step`` (int32 [edges]) are
those of `lattice.Edges`: every edge of node i ends in i + 1 ... n, so all node indices stay inside
their arrays. ``probability``: float64 [edges], of each edge at its node. ``cost``: int, a total
cost of at least 0. ``slope``: float64, log z. ``z``: float64, the weight of an edge of cost 1.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.compiler import njit
from robustok.kernels.lattice import (
    backward,
    edge_probabilities,
    longest_edge,
    moments,
    write_backward,
)
from robustok.kernels.numbers import STEEPEST, inside, logit_step

EXACT = 1 << 53  # counts from here on do not fit a machine integer with room to add them
TABLE = 1 << 20  # nodes times costs up to which a table is made
_NEGLIGIBLE = 1e-40  # squared modulus
_ALIAS = -50.0  # logarithm of the probability that may alias
_TRUSTED = 1e-3  # times 1/M; a smaller probability drowns in the rounding of the others


@njit()
def all_block_ends(first, step):
    """The end of every block, int64: a position that no edge spans ends one."""
    n = len(first) - 1
    ends = np.empty(n, np.int64)
    count, reach = 0, np.int64(0)
    for i in range(n):
        for e in range(first[i], first[i + 1]):
            reach = max(reach, i + (step[e] >> 1))
        if reach <= i + 1:
            ends[count] = i + 1
            count += 1
    return ends[:count].copy()


@njit()
def block_counts(first, step, ends):
    """The number of paths through every block, int64 [blocks]; -1 for EXACT or more.

    ``ends``: int64 [blocks], those of `all_block_ends`.
    """
    counts = np.empty(len(ends), np.int64)
    paths = np.zeros(len(first), np.int64)  # from each node to the end of its block
    begin = np.int64(0)
    for b in range(len(ends)):
        paths[ends[b]] = 1
        fits = True
        for i in range(ends[b] - 1, begin - 1, -1):
            total = np.int64(0)
            for e in range(first[i], first[i + 1]):
                total = min(total + paths[i + (step[e] >> 1)], np.int64(EXACT))
            paths[i] = total
            fits = fits and total < EXACT
        counts[b] = paths[begin] if fits else -1
        begin = ends[b]
    return counts


@njit()
def tilt(edges, cost, farthest):
    """The slope at which the mean cost is about ``cost``, by Newton steps on the logit of the mean.

    ``edges``: with a path. ``farthest``: the largest cost of a path. Returns the slope, its
    backward pass (mantissa, exponent) and the variance of the cost.
    """
    low, high, slope = -STEEPEST, STEEPEST, 0.0
    if cost >= farthest or cost <= 0:
        slope = STEEPEST if cost > 0 else -STEEPEST
        mantissa, exponent = backward(edges, np.exp(slope))
        mean, variance = moments(edges, np.exp(slope), mantissa, exponent)
        return slope, mantissa, exponent, variance
    mantissa, exponent = backward(edges, 1.0)
    mean, variance = moments(edges, 1.0, mantissa, exponent)
    for _ in range(100):
        if abs(mean - cost) <= 0.1 * np.sqrt(variance):
            break
        if mean > cost:
            high = slope
        else:
            low = slope
        step = inside(low, high, logit_step(slope, mean, variance, cost, farthest))
        if step == slope or high - low < 1e-12:
            break
        slope = step
        write_backward(edges, np.exp(slope), mantissa, exponent)
        mean, variance = moments(edges, np.exp(slope), mantissa, exponent)
    return slope, mantissa, exponent, variance


@njit()
def _by_table(edges, probability, cost):
    """The probability of one total cost, by the probabilities of all costs up to it.

    Keeps one row more than an edge spans.
    """
    n = len(edges.first) - 1
    ring = longest_edge(edges) + 1
    rows = np.zeros((ring, cost + 1))
    rows[n % ring, 0] = 1.0
    for i in range(n - 1, -1, -1):
        row = rows[i % ring]
        row[:] = 0.0
        most = min(cost, n - i)
        for e in range(edges.first[i], edges.first[i + 1]):
            p = probability[e]
            if p > 0.0:
                source = rows[(i + (edges.step[e] >> 1)) % ring]
                if edges.step[e] & 1:
                    for d in range(1, most + 1):
                        row[d] += p * source[d - 1]
                else:
                    for d in range(most + 1):
                        row[d] += p * source[d]
    return rows[0, cost]


@njit()
def _by_angles(edges, probability, cost, size):
    """The probability of one total cost modulo ``size``, by the inverse DFT."""
    n = len(edges.first) - 1
    ring = longest_edge(edges) + 1
    real, imag = np.zeros(ring), np.zeros(ring)
    total = 1.0  # the angle 0
    for m in range(1, size // 2 + 1):
        angle = 2.0 * np.pi * m / size
        cosine, sine = np.cos(angle), np.sin(angle)
        real[:], imag[:] = 0.0, 0.0
        real[n % ring] = 1.0
        small, at, slot = 0, n, n % ring
        while at > 0 and small < ring:
            at -= 1
            slot = slot - 1 if slot > 0 else ring - 1
            x1, y1, x, y = 0.0, 0.0, 0.0, 0.0  # of edges of cost 1; of cost 0, then of all
            for e in range(edges.first[at], edges.first[at + 1]):
                s = slot + (edges.step[e] >> 1)
                if s >= ring:
                    s -= ring
                p = probability[e]
                if edges.step[e] & 1:
                    x1 += p * real[s]
                    y1 += p * imag[s]
                else:
                    x += p * real[s]
                    y += p * imag[s]
            x += x1 * cosine - y1 * sine
            y += x1 * sine + y1 * cosine
            real[slot], imag[slot] = x, y
            small = small + 1 if x * x + y * y < _NEGLIGIBLE else 0
        if small < ring:
            turn = 2.0 * np.pi * np.float64((cost * m) % size) / size
            term = real[slot] * np.cos(turn) + imag[slot] * np.sin(turn)
            total += term if 2 * m == size else 2.0 * term
    return total / size


@njit()
def _log_total(edges, slope):
    """The logarithm of the summed weight of all paths, exp(slope * cost) each; float64.

    ``edges``: with a path, so the sum is positive.
    """
    mantissa, exponent = backward(edges, np.exp(slope))
    return np.log(mantissa[0]) + exponent[0] * np.log(2.0)


@njit()
def log_coefficient(edges, cost, farthest):
    """The logarithm of the number of paths of total cost ``cost``; 1 <= cost <= farthest.

    ``edges``: with a path. ``farthest``: the largest cost of a path. -inf where a table finds none
    (or fewer than floats can hold beside the others), NaN where the probability is too small for
    the sum over angles.
    """
    slope, mantissa, exponent, variance = tilt(edges, cost, farthest)
    probability = edge_probabilities(edges, np.exp(slope), mantissa, exponent)
    total = np.log(mantissa[0]) + exponent[0] * np.log(2.0)
    n = len(edges.first) - 1
    if n * (cost + 1) <= TABLE:
        p = _by_table(edges, probability, cost)
        return np.log(p) + total - slope * cost if p > 0.0 else -np.inf
    deviation = np.sqrt(variance)
    size = np.int64(24.0 * deviation) + 64
    t = min(12.0 / max(deviation, 1.0), 5.0)
    above = _log_total(edges, slope + t) - total
    below = _log_total(edges, slope - t) - total
    while size <= farthest and (
        above - t * (cost + size) > _ALIAS or below + t * (cost - size) > _ALIAS
    ):
        size *= 2
    p = _by_angles(edges, probability, cost, min(size, farthest + 1))
    if p * size < _TRUSTED:
        return np.nan
    return np.log(p) + total - slope * cost
