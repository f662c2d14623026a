"""Integers from residues (Chinese remainder theorem), and products of large ones by FFT."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np

_BITS = 56  # as in kernels.counting
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)  # decide primality below 2**64
_FFT_BITS = 1 << 16  # integers from this size on are multiplied by FFT


def deficits(count: int) -> np.ndarray:
    """The ``count`` smallest d > 0 for which 2**56 - d is prime; int64."""
    while len(_DEFICITS) < count:
        d = _DEFICITS[-1] + 2 if _DEFICITS else 1
        while not _is_prime((1 << _BITS) - d):
            d += 2
        _DEFICITS.append(d)
    return np.array(_DEFICITS[:count], np.int64)


_DEFICITS: list[int] = []


def from_residues(rows: np.ndarray, deficits: np.ndarray) -> list[int]:
    """The integers whose residues modulo 2**56 - deficits are given; ``rows``: [numbers, moduli].

    >>> from_residues(np.array([[5, 5]]), deficits(2))
    [5]

    Each integer must be below the product of the moduli.
    """
    moduli = [(1 << _BITS) - int(d) for d in deficits]
    whole = big_product(moduli)
    sums = [0] * len(rows)
    for x, modulus in enumerate(moduli):
        others = whole // modulus
        inverse = pow(others % modulus, -1, modulus)
        for g, residue in enumerate(rows[:, x].tolist()):
            sums[g] += residue * inverse % modulus * others
    return [total % whole for total in sums]


def big_product(factors: Iterable[int]) -> int:
    """The product of integers, multiplied in pairs of like size.

    >>> big_product([3, 5, 7])
    105
    """
    terms = list(factors)
    while len(terms) > 1:
        terms.sort(reverse=True)
        terms = [
            multiply_large(terms[i], terms[i + 1]) if i + 1 < len(terms) else terms[i]
            for i in range(0, len(terms), 2)
        ]
    return terms[0] if terms else 1


def power(base: int, exponent: int, modulus: int | None = None) -> int:
    """``base ** exponent``, modulo ``modulus`` where given, for an exponent of at least 1."""
    if modulus is not None or base.bit_length() * exponent < _FFT_BITS:
        return pow(base, exponent, modulus)
    half = power(base, exponent // 2)
    square = multiply_large(half, half)
    return square * base if exponent & 1 else square


def multiply_large(a: int, b: int) -> int:
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


@cache
def _small_primes() -> tuple[int, ...]:
    return tuple(p for p in range(3, 2000, 2) if all(p % q for q in range(3, int(p**0.5) + 1, 2)))


def _is_prime(n: int) -> bool:
    """Miller-Rabin with witnesses that decide every odd n between 4,000,000 and 2**64."""
    if any(n % p == 0 for p in _small_primes()):
        return False
    twos = (n - 1 & -(n - 1)).bit_length() - 1
    for witness in _WITNESSES:
        x = pow(witness, n - 1 >> twos, n)
        if x in (1, n - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True
