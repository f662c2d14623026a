"""Exact products: of count polynomials against numpy's, of integers against Python's."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from robustok.lattice.counting import (
    deficits,
    from_residues,
    integer_multiply,
    integer_power,
    integer_product,
    multiply,
    product,
)

counts = st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(lambda c: c[-1] > 0)


@given(counts, counts, st.integers(0, 12))
def test_multiply_is_convolution(a: list[int], b: list[int], most: int) -> None:
    assert multiply(a, b, most) == np.convolve(a, b)[: most + 1].tolist()


@given(st.integers(1, 4), counts, st.integers(0, 12))
def test_a_factor_of_zeros_gives_zeros(zeros: int, b: list[int], most: int) -> None:
    """No path of a block has a degree this low, as one of few segments."""
    b = [x << 80 for x in b]
    assert multiply([0] * zeros, b, most) == [0] * min(zeros + len(b) - 1, most + 1)


@given(st.lists(st.tuples(counts, st.integers(1, 4)), min_size=1, max_size=4))
def test_product_is_the_repeated_convolution(factors: list[tuple[list[int], int]]) -> None:
    whole = [1]
    for a, times in factors:
        for _ in range(times):
            whole = [int(x) for x in np.convolve(np.array(whole, object), np.array(a, object))]
    assert product(factors, len(whole)) == whole


def test_large_integers_are_multiplied_exactly() -> None:
    rng = random.Random(0)
    for bits in (1 << 16, 100_001, 1 << 20):
        a, b = rng.getrandbits(bits) | 1 << (bits - 1), (1 << bits) - 1
        assert integer_multiply(a, b) == a * b
        assert integer_multiply(b, b) == b * b
    assert integer_power(3, 100_000) == 3**100_000
    assert integer_product([5, 1 << 70_000, 3**50_000]) == (5 << 70_000) * 3**50_000


def test_integers_come_back_from_their_residues() -> None:
    rng = random.Random(1)
    primes = deficits(9)
    moduli = [(1 << 56) - int(d) for d in primes]
    assert all(pow(2, m - 1, m) == 1 for m in moduli)
    numbers = [0, 1, rng.getrandbits(500), (1 << 503) - 1]
    rows = np.array([[x % m for m in moduli] for x in numbers])
    assert from_residues(rows, primes) == numbers
