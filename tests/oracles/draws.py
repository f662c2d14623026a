"""Numbers of draws, and what a draw depends on, for every scheme."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable

import numpy as np
import pytest

import robustok as rt

COMPILED = os.environ.get("NUMBA_DISABLE_JIT") != "1"
DRAWS = 20_000 if COMPILED else 400  # `make coverage` runs the kernels as plain Python
only_compiled = pytest.mark.skipif(not COMPILED, reason="takes minutes in plain Python")


def assert_draws_of_keys(make: Callable[[], rt.Sampler], text: str) -> None:
    """Draws depend on seed, epoch, key and number: not on the order, the batch or the object.

    ``make`` gives a new sampler, and repetitions of ``text`` are drawn.
    """
    scheme = make()
    texts = [text * (1 + i % 5) for i in range(40)]
    keys = np.arange(100, 140)
    rows = scheme.sample_batch(texts, seed=3, draws=4, keys=keys)
    order = np.random.default_rng(0).permutation(40)
    shuffled = scheme.sample_batch([texts[i] for i in order], seed=3, draws=4, keys=keys[order])
    fresh, pickled = make(), pickle.loads(pickle.dumps(scheme))
    for place, i in enumerate(order.tolist()):
        for d in range(4):
            assert np.array_equal(rows[i * 4 + d], shuffled[place * 4 + d])
        for other in (fresh, pickled):
            alone = other.sample(texts[i], seed=3, key=int(keys[i]))
            assert np.array_equal(rows[i * 4], alone)
    for seed, epoch in ((4, 0), (3, 1)):
        assert scheme.sample_batch(texts, draws=4, keys=keys, seed=seed, epoch=epoch) != rows
    assert scheme.sample_batch(texts, seed=3, draws=4, keys=keys + 1) != rows
