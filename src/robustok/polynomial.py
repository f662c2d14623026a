"""Products of polynomials with counts for coefficients: exact, or as logarithms.

The tokenizations of a text by distance (or by segments) are the product of those of its words.
"""

from __future__ import annotations

from math import inf, log

import numpy as np

Counts = list[int]  # [g]: how many of grade g; Python integers of any size

_STEEPEST = 60.0  # |slope|: beyond it all weight is on the smallest or the largest grade


def multiply(a: Counts, b: Counts, most: int) -> Counts:
    """The product up to grade ``most``, exactly.

    >>> multiply([1, 2], [1, 0, 3], 2)
    [1, 2, 3]

    Both are written as one long integer each, with room for every coefficient of the product, and
    multiplied once (Kronecker substitution).
    """
    if not a or not b:
        return []
    width = ((sum(a) * sum(b)).bit_length() + 7) // 8 or 1
    packed = [
        int.from_bytes(b"".join(x.to_bytes(width, "little") for x in p[: most + 1]), "little")
        for p in (a, b)
    ]
    size = min(len(a) + len(b) - 1, most + 1)
    raw = (packed[0] * packed[1]).to_bytes((len(a) + len(b)) * width, "little")
    return [int.from_bytes(raw[i * width : (i + 1) * width], "little") for i in range(size)]


def product(factors: list[tuple[Counts, int]], most: int) -> Counts:
    """The product of powers, up to grade ``most``, exactly.

    >>> product([([1, 1], 3)], 9)
    [1, 3, 3, 1]
    """
    terms = [_power(counts, times, most) for counts, times in factors]
    while len(terms) > 1:  # small ones first, so that factors stay of like size
        terms.sort(key=len, reverse=True)
        terms = [
            multiply(terms[i], terms[i + 1], most) if i + 1 < len(terms) else terms[i]
            for i in range(0, len(terms), 2)
        ]
    return terms[0][: most + 1] if terms else [1]


def _power(counts: Counts, times: int, most: int) -> Counts:
    result: Counts = [1]
    while times:
        if times & 1:
            result = multiply(result, counts, most)
        times >>= 1
        if times:
            counts = multiply(counts, counts, most)
    return result


def log_coefficient(factors: list[tuple[Counts, int]], grade: int) -> float:
    """The logarithm of one coefficient of a product of powers, in floating point; -inf for 0.

    >>> from math import exp
    >>> round(exp(log_coefficient([([1, 1], 40)], 20)))
    137846528820

    Grades are weighted exp(slope·grade) with the slope that puts the mean at ``grade``, where the
    weighted product is largest, so nothing that matters is lost to rounding.
    """
    logs = [(np.array([log(c) if c else -inf for c in counts]), t) for counts, t in factors]
    slope = _slope(logs, grade)
    total, weighted = 0.0, np.ones(1)
    for row, times in logs:
        weights, scale = _weights(row, slope)
        total += times * scale
        for _ in range(times):
            weighted = np.convolve(weighted, weights)[: grade + 1]
    if grade >= len(weighted) or weighted[grade] <= 0.0:
        return -inf
    return log(weighted[grade]) + total - slope * grade


def _weights(row: np.ndarray, slope: float) -> tuple[np.ndarray, float]:
    """Normalized weights and the logarithm of what they were divided by."""
    tilted = row + slope * np.arange(len(row))
    top = float(tilted.max())
    weights = np.exp(tilted - top)
    total = float(weights.sum())
    return weights / total, top + log(total)


def _slope(logs: list[tuple[np.ndarray, int]], grade: int) -> float:
    low, high, slope = -_STEEPEST, _STEEPEST, 0.0
    for _ in range(80):
        mean = variance = 0.0
        for row, times in logs:
            weights, _ = _weights(row, slope)
            at = np.arange(len(row))
            first = float(weights @ at)
            mean += times * first
            variance += times * max(float(weights @ (at * at)) - first * first, 0.0)
        if abs(mean - grade) <= 0.01 * variance**0.5:
            break
        low, high = (low, slope) if mean > grade else (slope, high)
        step = slope + (grade - mean) / variance if variance > 1e-12 else inf
        slope = step if low < step < high else 0.5 * (low + high)
    return slope
