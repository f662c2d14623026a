"""A chi-square test of draws and `log_prob` against an exact law, and how many draws it takes."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import inf, log

import pytest
from tests.oracles.lattice import Path, tokenizations

import robustok as rt

COMPILED = os.environ.get("NUMBA_DISABLE_JIT") != "1"
DRAWS = 20_000 if COMPILED else 400  # `make coverage` runs the kernels as plain Python
OF_LONG_TEXTS = DRAWS if COMPILED else 20
only_compiled = pytest.mark.skipif(not COMPILED, reason="takes minutes in plain Python")

Z = 4.27  # standard deviations of the normal that cut off one part in 100,000


def assert_distribution(
    rows: Iterable[Iterable[int]], distribution: Mapping[Path, Fraction | float]
) -> None:
    """Nothing outside the support is drawn, and chi-square is below its 1 - 1e-5 quantile.

    Seeds are fixed, so a test that passes always passes. Cells that expect under 5 draws are
    pooled; the quantile is Wilson and Hilferty's.
    """
    seen = Counter(tuple(int(i) for i in row) for row in rows)
    n = seen.total()
    strange = [path for path in seen if not distribution.get(path)]
    assert not strange, f"drawn, but outside the support: {strange[:3]}"
    pooled_seen, pooled_expected, statistic, cells = 0, 0.0, 0.0, 0
    for path, p in distribution.items():
        expected = n * float(p)
        if expected < 5:
            pooled_seen += seen[path]
            pooled_expected += expected
            continue
        statistic += (seen[path] - expected) ** 2 / expected
        cells += 1
    if pooled_expected > 0:
        statistic += (pooled_seen - pooled_expected) ** 2 / max(pooled_expected, 1.0)
        cells += 1
    free = cells - 1
    if free < 1:
        return
    limit = free * (1 - 2 / (9 * free) + Z * (2 / (9 * free)) ** 0.5) ** 3
    assert statistic < limit, f"chi-square {statistic:.1f} over {limit:.1f} at {free} degrees"


def assert_follows(
    scheme: rt.Sampler,
    text: str | Path,
    distribution: Mapping[Path, Fraction | float],
    count: int = DRAWS,
) -> None:
    """Draws of a text or of its ids by chi-square, and `log_prob` on and off the support."""
    rows = scheme.sample_batch([text], seed=11, draws=min(count, DRAWS))  # type: ignore[list-item]
    assert_distribution(rows, distribution)
    canonical = scheme.vocab.encode(text) if isinstance(text, str) else text
    for path in tokenizations(scheme.vocab, scheme.vocab.decode_bytes(canonical)):
        expected = log(distribution[path]) if distribution.get(path) else -inf
        assert scheme.log_prob(path) == pytest.approx(expected, rel=1e-9, abs=1e-9)
