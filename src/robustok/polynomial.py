"""Exact numbers of paths by degree (distance or segments), as polynomials of blocks and products.

The tokenizations of a text by degree are the product of those of its blocks.
"""

from __future__ import annotations

import numpy as np

from robustok.errors import RobustokError
from robustok.residues import deficits, from_residues, multiply_large

Counts = list[int]  # [g]: how many of degree g; Python integers of any size

_MOST_WORK = 1 << 35  # additions that counting one block may take: about 20 seconds
_RING = 1 << 17  # numbers in the kernel's ring of rows: it stays in the cache


def paths_by_degree(first: np.ndarray, step: np.ndarray, by: str | None, most: int) -> Counts:
    """The paths through one block by degree up to ``most``; by None all of them together.

    ``first`` (int64 [n + 1]) and ``step`` (int32 [edges]) are the block's edges, as those of
    `kernels.long.Edges`. Raises RobustokError where counting would take too long.
    """
    from robustok.kernels.counting import residues
    from robustok.kernels.long import Edges, backward

    n = len(first) - 1
    mantissa, exponent = backward(Edges(first, step, step), 1.0)
    bits = float(np.log2(mantissa[0])) + float(exponent[0])
    moduli = int(bits / 55.9) + 1
    degree = 0 if by is None else min(most, n)
    if len(step) * moduli * (degree // 2 + 1) > _MOST_WORK:
        raise RobustokError(
            f"exact counts of {n} bytes without a position that no token spans take too long: use "
            "log_count(), or shorter texts"
        )
    if by is None:
        step = step & ~1
    primes = deficits(moduli)
    lanes = max(1, min(256, _RING // (((int(step.max()) >> 1) + 1) * (degree + 1))))
    parts = [
        residues(first, step, 0, n, by == "segments", degree, primes[x : x + lanes])
        for x in range(0, moduli, lanes)
    ]
    counts = from_residues(np.concatenate(parts, axis=1), primes)
    while len(counts) > 1 and not counts[-1]:
        counts.pop()
    return counts


def multiply(a: Counts, b: Counts, most: int) -> Counts:
    """The product up to degree ``most``, exactly.

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
    raw = multiply_large(*packed).to_bytes((len(a) + len(b)) * width, "little")
    return [int.from_bytes(raw[i * width : (i + 1) * width], "little") for i in range(size)]


def product(factors: list[tuple[Counts, int]], most: int) -> Counts:
    """The product of powers, up to degree ``most``, exactly.

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
