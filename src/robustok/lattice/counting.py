"""Exact numbers of paths by degree (distance or segments): products of one polynomial a block.

The counts of a text are the product of the polynomials of its blocks. A polynomial is one
long integer with room for each of its coefficients (Kronecker substitution). Products of large
integers use the FFT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from robustok.errors import RobustokError
from robustok.kernels.lattice import Edges, backward

Counts = list[int]  # [g]: how many of degree g; Python integers of any size
T = TypeVar("T")

_MOST_BYTES = 1 << 30  # of the nodes that are kept
_MOST_WORK = 1 << 37  # bytes added that counting one block may take: about a minute
_FFT_BITS = 1 << 16  # integers from this size on are multiplied by FFT


def paths_by_degree(first: np.ndarray, step: np.ndarray, by: str | None, most: int) -> Counts:
    """The number of paths through one block by degree up to ``most``; of all paths for ``by=None``.

    ``first`` (int64 [n + 1]) and ``step`` (int32 [edges]) are the block's edges, as in
    `kernels.lattice.Edges`. The counts of a node are one integer, so an edge is an addition. Only
    nodes that an edge can reach are kept. Raises RobustokError where counting would take too long.
    """
    n = len(first) - 1
    mantissa, exponent = backward(Edges(first, step, step), 1.0)
    # A node has no more paths than the first one; rounding up leaves room for the mantissa's error.
    width = (int(np.log2(mantissa[0]) + exponent[0]) + 9) // 8  # bytes
    degree = 0 if by is None else min(most, n)
    size, longest = width * (degree + 1), int(step.max()) >> 1
    if len(step) * size > _MOST_WORK or longest * size > _MOST_BYTES:
        raise RobustokError(
            f"exact counts of {n} bytes without a position that no token spans take too long: use "
            "log_count(), or shorter texts"
        )
    lengths, costs = step >> 1, {None: step * 0, "segments": step * 0 + 1}.get(by, step & 1)
    ends = (np.repeat(np.arange(n), np.diff(first)) + lengths).tolist()
    mask = (1 << 8 * size) - 1
    first_edge, cost_of = first.tolist(), costs.tolist()
    packed = [0] * n + [1]  # [i]: the paths from node i to the end, by degree
    for i in range(n - 1, -1, -1):
        sums = [0, 0]  # by the edges without and with a cost
        for e in range(first_edge[i], first_edge[i + 1]):
            sums[cost_of[e]] += packed[ends[e]]
        packed[i] = (sums[0] + (sums[1] << 8 * width)) & mask
        if i + longest <= n:
            packed[i + longest] = 0
    counts = _coefficients(packed[0], width, degree + 1)
    while len(counts) > 1 and not counts[-1]:
        counts.pop()
    return counts


def _coefficients(packed: int, width: int, size: int) -> Counts:
    """The first ``size`` coefficients of ``width`` bytes each."""
    raw = packed.to_bytes(max(size * width, (packed.bit_length() + 7) // 8), "little")
    return [int.from_bytes(raw[i * width : (i + 1) * width], "little") for i in range(size)]


def multiply(a: Counts, b: Counts, most: int) -> Counts:
    """The product up to degree ``most``, exactly.

    >>> multiply([1, 2], [1, 0, 3], 2)
    [1, 2, 3]

    Each is one long integer with room for every coefficient of the product.
    """
    size = min(len(a) + len(b) - 1, most + 1)
    bound = sum(a) * sum(b)
    if not bound:
        return [0] * size
    width = (bound.bit_length() + 7) // 8
    packed = [
        int.from_bytes(b"".join(x.to_bytes(width, "little") for x in p[: most + 1]), "little")
        for p in (a, b)
    ]
    return _coefficients(integer_multiply(*packed), width, size)


def product(factors: list[tuple[Counts, int]], most: int) -> Counts:
    """The product of powers, up to degree ``most``, exactly.

    >>> product([([1, 1], 3)], 9)
    [1, 3, 3, 1]
    """

    def times(a: Counts, b: Counts) -> Counts:
        return multiply(a, b, most)

    powers = [_power(counts, exponent, times) for counts, exponent in factors]
    return _in_pairs(powers, len, times, [1])[: most + 1]


def _in_pairs(terms: list[T], size: Any, times: Callable[[T, T], T], empty: T) -> T:
    """The product of terms, multiplied in pairs of like ``size``; ``empty`` where none."""
    while len(terms) > 1:
        terms = sorted(terms, key=size, reverse=True)
        pairs = [terms[i : i + 2] for i in range(0, len(terms), 2)]
        terms = [times(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return terms[0] if terms else empty


def _power(base: T, exponent: int, times: Callable[[T, T], T]) -> T:
    """``base`` to an exponent of at least 1, by squaring."""
    result = base
    for bit in f"{exponent:b}"[1:]:
        result = times(result, result)
        if bit == "1":
            result = times(result, base)
    return result


def integer_product(factors: Iterable[int]) -> int:
    """The product of integers.

    >>> integer_product([3, 5, 7])
    105
    """
    return _in_pairs(list(factors), None, integer_multiply, 1)


def integer_power(base: int, exponent: int) -> int:
    """``base ** exponent`` for an exponent of at least 1."""
    if base.bit_length() * exponent < _FFT_BITS:
        return base**exponent
    return _power(base, exponent, integer_multiply)


def integer_multiply(a: int, b: int) -> int:
    """The product of two integers that are not negative, in O(n log n) for large ones.

    A convolution of their bytes by a real FFT in float64. The rounding error of a coefficient is
    below 0.01 up to 2**25 bytes (coefficients are below 2**41), so rounding gives it exactly.
    """
    if min(a.bit_length(), b.bit_length()) < _FFT_BITS or max(a, b).bit_length() >> 27:
        return a * b
    x, y = (
        np.frombuffer(v.to_bytes((v.bit_length() + 7) // 8, "little"), np.uint8) for v in (a, b)
    )
    size = len(x) + len(y)
    width = _smooth(size)
    spectrum = np.fft.rfft(x, width)
    spectrum *= np.fft.rfft(y, width)
    sums = np.rint(np.fft.irfft(spectrum, width)[:size]).astype(np.int64)
    total = 0
    for plane in range(6):  # byte planes of the coefficients, each one integer
        digits = (sums >> 8 * plane).astype(np.uint8)
        total += int.from_bytes(digits.tobytes(), "little") << 8 * plane
    return total


def _smooth(size: int) -> int:
    """The smallest 2**i * 3**j (j up to 2) from ``size`` on: a fast FFT length."""
    return min(odd << max(0, -(-size // odd) - 1).bit_length() for odd in (1, 3, 9))
