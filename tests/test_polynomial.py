"""Products of count polynomials against numpy's, and logarithms against exact numbers."""

from __future__ import annotations

from math import inf, isclose, log

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from robustok.polynomial import log_coefficient, multiply, product

counts = st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(lambda c: c[-1] > 0)


@given(counts, counts, st.integers(0, 12))
def test_multiply_is_convolution(a: list[int], b: list[int], most: int) -> None:
    assert multiply(a, b, most) == np.convolve(a, b)[: most + 1].tolist()


@given(st.lists(st.tuples(counts, st.integers(1, 4)), min_size=1, max_size=4))
def test_product_and_its_logarithms(factors: list[tuple[list[int], int]]) -> None:
    whole = [1]
    for a, times in factors:
        for _ in range(times):
            whole = [int(x) for x in np.convolve(np.array(whole, object), np.array(a, object))]
    assert product(factors, len(whole)) == whole
    for g, c in enumerate(whole):
        found = log_coefficient(factors, g)
        assert found == -inf if c == 0 else isclose(found, log(c), rel_tol=1e-9, abs_tol=1e-8)
