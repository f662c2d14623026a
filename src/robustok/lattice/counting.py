"""Exact numbers of paths by degree (distance or segments), as polynomials of blocks and products.

The tokenizations of a text by degree are the product of those of its blocks. A large block is
counted modulo many primes; the Chinese remainder theorem gives the integers. Products of large
integers use the FFT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import gcd, prod
from typing import Any, TypeVar

import numpy as np

from robustok.errors import RobustokError
from robustok.kernels.counting import BITS, residues
from robustok.kernels.lattice import Edges, backward

Counts = list[int]  # [g]: how many of degree g; Python integers of any size
T = TypeVar("T")

_MOST_WORK = 1 << 35  # additions that counting one block may take: about 20 seconds
_RING = 1 << 17  # numbers in the kernel's ring of rows: it stays in the cache
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)  # decide primality below 2**64
_ODD_NUMBERS = prod(range(3, 300, 2))  # has a factor of most composite numbers
_FFT_BITS = 1 << 16  # integers from this size on are multiplied by FFT
_DEFICITS: list[int] = []  # those that `deficits` has computed


def paths_by_degree(first: np.ndarray, step: np.ndarray, by: str | None, most: int) -> Counts:
    """The paths through one block by degree up to ``most``; by None all of them together.

    ``first`` (int64 [n + 1]) and ``step`` (int32 [edges]) are the block's edges, as those of
    `kernels.lattice.Edges`. Raises RobustokError where counting would take too long.
    """
    n = len(first) - 1
    step = {None: step & ~1, "segments": step | 1}.get(by, step)  # the cost is the lowest bit
    edges = Edges(first, step, step)
    mantissa, exponent = backward(edges, 1.0)
    bits = float(np.log2(mantissa[0])) + float(exponent[0])
    moduli = int(bits / 55.9) + 1
    degree = 0 if by is None else min(most, n)
    if len(step) * moduli * (degree // 2 + 1) > _MOST_WORK:
        raise RobustokError(
            f"exact counts of {n} bytes without a position that no token spans take too long: use "
            "log_count(), or shorter texts"
        )
    primes = deficits(moduli)
    lanes = max(1, min(256, _RING // (((int(step.max()) >> 1) + 1) * (degree + 1))))
    parts = [residues(edges, degree, primes[x : x + lanes]) for x in range(0, moduli, lanes)]
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
    size = min(len(a) + len(b) - 1, most + 1)
    bound = sum(a) * sum(b)
    if not bound:
        return [0] * size
    width = (bound.bit_length() + 7) // 8
    packed = [
        int.from_bytes(b"".join(x.to_bytes(width, "little") for x in p[: most + 1]), "little")
        for p in (a, b)
    ]
    raw = integer_multiply(*packed).to_bytes((len(a) + len(b)) * width, "little")
    return [int.from_bytes(raw[i * width : (i + 1) * width], "little") for i in range(size)]


def product(factors: list[tuple[Counts, int]], most: int) -> Counts:
    """The product of powers, up to degree ``most``, exactly.

    >>> product([([1, 1], 3)], 9)
    [1, 3, 3, 1]
    """

    def times(a: Counts, b: Counts) -> Counts:
        return multiply(a, b, most)

    powers = [_power(counts, exponent, times) for counts, exponent in factors]
    return _in_pairs(powers, len, times, [1])[: most + 1]


def _in_pairs(terms: list[T], size: Any, times: Callable[[T, T], T], one: T) -> T:
    """The product of terms, multiplied in pairs of like ``size``; ``one`` without a term."""
    while len(terms) > 1:
        terms = sorted(terms, key=size, reverse=True)
        pairs = [terms[i : i + 2] for i in range(0, len(terms), 2)]
        terms = [times(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return terms[0] if terms else one


def _power(base: T, exponent: int, times: Callable[[T, T], T]) -> T:
    """``base`` to an exponent of at least 1, by squaring."""
    result = base
    for bit in f"{exponent:b}"[1:]:
        result = times(result, result)
        if bit == "1":
            result = times(result, base)
    return result


def deficits(count: int) -> np.ndarray:
    """The ``count`` smallest d > 0 for which 2**56 - d is prime; int64."""
    while len(_DEFICITS) < count:
        d = _DEFICITS[-1] + 2 if _DEFICITS else 1
        while not _is_prime((1 << BITS) - d):
            d += 2
        _DEFICITS.append(d)
    return np.array(_DEFICITS[:count], np.int64)


def from_residues(rows: np.ndarray, deficits: np.ndarray) -> list[int]:
    """The integers whose residues modulo 2**56 - deficits are given; ``rows``: [numbers, moduli].

    >>> from_residues(np.array([[5, 5]]), deficits(2))
    [5]

    Each integer must be below the product of the moduli.
    """
    moduli = [(1 << BITS) - int(d) for d in deficits]
    whole = integer_product(moduli)
    sums = [0] * len(rows)
    for x, modulus in enumerate(moduli):
        others = whole // modulus
        inverse = pow(others % modulus, -1, modulus)
        for g, residue in enumerate(rows[:, x].tolist()):
            sums[g] += residue * inverse % modulus * others
    return [total % whole for total in sums]


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


def _is_prime(n: int) -> bool:
    """Miller-Rabin with witnesses that decide every odd n between 4,000,000 and 2**64."""
    if gcd(n, _ODD_NUMBERS) > 1:
        return False
    twos = (n - 1 & -(n - 1)).bit_length() - 1
    powers = (pow(witness, n - 1 >> twos, n) for witness in _WITNESSES)
    return all(x == 1 or any(pow(x, 1 << i, n) == n - 1 for i in range(twos)) for x in powers)
