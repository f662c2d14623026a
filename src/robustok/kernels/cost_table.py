"""Draws at an exact total cost from a table of positions by costs: for what is rare and short."""

from __future__ import annotations

import numpy as np

from robustok.kernels.compiler.jit import njit
from robustok.kernels.random import uniform
from robustok.kernels.tables import NOT_DRAWN

TABLE = 1 << 24  # positions times costs


@njit(cache=True, nogil=True)
def draw_by_table(edges, k, draws, at):
    """Draws at distance ``k`` by the logarithm of the number of paths from each node and distance.

    ``k``: at least 0. ``draws``: `kernels.staged.Draws`, appended to ``draws.ids`` from ``at`` on.
    Returns the end, or NOT_DRAWN where the table would be too large or no path has the distance.
    """
    n = len(edges.first) - 1
    if (n + 1) * (k + 1) > TABLE:
        return np.int64(NOT_DRAWN)
    logs = np.full((n + 1, k + 1), -np.inf)
    logs[n, 0] = 0.0
    for i in range(n - 1, -1, -1):
        for e in range(edges.first[i], edges.first[i + 1]):
            j, cost = i + (edges.step[e] >> 1), edges.step[e] & 1
            for g in range(cost, k + 1):
                if logs[j, g - cost] > -np.inf:
                    logs[i, g] = np.logaddexp(logs[i, g], logs[j, g - cost])
    for d in range(len(draws.states)):
        state, i, rest = draws.states[d], np.int64(0), np.int64(k)
        while i < n:
            u, state = uniform(state)
            chosen = np.int64(-1)
            for e in range(edges.first[i], edges.first[i + 1]):
                j, cost = i + (edges.step[e] >> 1), edges.step[e] & 1
                if cost <= rest and logs[j, rest - cost] > -np.inf:
                    chosen = e
                    u -= np.exp(logs[j, rest - cost] - logs[i, rest])
                    if u < 0.0:
                        break
            if chosen < 0:
                return np.int64(NOT_DRAWN)
            draws.ids[at] = edges.token[chosen]
            at += 1
            rest -= edges.step[chosen] & 1
            i += edges.step[chosen] >> 1
        draws.ends[d] = at
    return at
