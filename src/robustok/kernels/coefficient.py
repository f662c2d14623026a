"""The logarithm of the number of paths of one total cost, in time linear in the lattice.

Paths are weighted exp(slope * cost) with the slope at which the mean cost is the wanted one
(saddle point). Their cost then has a probability, and the number of paths is that probability
times the weighted total over exp(slope * cost). A small lattice gives the probability by a table
of costs. In a large one it is a sum over the characteristic function at M equidistant angles
(inverse DFT), M wide enough that no cost aliases. The function at a node is a mean of those at
later nodes, so a pass stops once it is negligible at as many nodes as the longest edge spans:
all but some fifty passes are short.

Arguments of one meaning in this module: ``cost``: int, a total cost of at least 0. ``slope``:
float64, log z. ``z``: float64, the weight of an edge of cost 1.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.compiler.jit import njit
from robustok.kernels.long import backward, longest_edge, moments, write_backward
from robustok.kernels.newton import STEEPEST, inside, logit_step
from robustok.kernels.powers import two_to

TABLE = 1 << 20  # nodes times costs up to which a table is made
_NEGLIGIBLE = 1e-40  # squared modulus
_ALIAS = -50.0  # logarithm of the probability that may alias
_TRUSTED = 1e-3  # times 1/M; a smaller probability drowns in the rounding of the others


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def edge_probabilities(edges, z, mantissa, exponent):
    """The probability of each edge at its node under weight z**cost, float64 [edges].

    ``mantissa`` and ``exponent`` are those of `backward` for the same z.
    """
    out = np.zeros(len(edges.step))
    for i in range(len(edges.first) - 1):
        if mantissa[i] == 0.0:
            continue
        for e in range(edges.first[i], edges.first[i + 1]):
            j = i + (edges.step[e] >> 1)
            gap = exponent[j] - exponent[i]
            if mantissa[j] > 0.0 and gap >= -1000:
                scale = z if edges.step[e] & 1 else 1.0
                out[e] = mantissa[j] * scale * two_to(gap) / mantissa[i]
    return out


@njit(cache=True, nogil=True)
def _by_table(edges, probability, cost):
    """The probability of one total cost, by the probabilities of all costs up to it.

    ``probability``: float64 [edges], of each edge at its node. Keeps one row more than an edge
    spans.
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


@njit(cache=True, nogil=True)
def _by_angles(edges, probability, cost, size):
    """The probability of one total cost modulo ``size``, by the inverse DFT.

    ``probability``: float64 [edges], of each edge at its node.
    """
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


@njit(cache=True, nogil=True)
def _log_total(edges, slope):
    """The logarithm of the summed weight of all paths, exp(slope * cost) each; float64.

    ``edges``: with a path, so the sum is positive.
    """
    mantissa, exponent = backward(edges, np.exp(slope))
    return np.log(mantissa[0]) + exponent[0] * np.log(2.0)


@njit(cache=True, nogil=True)
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
