"""Exact numbers of paths through a lattice: machine integers for small blocks, residues for large.

``first`` (int64 [n + 1]) and ``step`` (int32 [edges]) are those of `kernels.long.Edges`: every edge
of node i ends in i + 1 ... n, so all node indices stay inside their arrays.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.compiler.jit import njit

EXACT = 1 << 53  # counts from here on do not fit a machine integer with room to add them
BITS = 56  # a modulus is 2**BITS minus a deficit below 2**20
_LOW = np.int64((1 << BITS) - 1)
_EDGES = 64  # edges added before the sums are reduced: 64 * 2**56 fits int64


@njit(cache=True, nogil=True)
def block_ends(first, step):
    """The end of every block, int64: a position that no edge spans ends one."""
    n = len(first) - 1
    ends = np.empty(n, np.int64)
    count, reach = 0, np.int64(0)
    for i in range(n):
        for e in range(first[i], first[i + 1]):
            reach = max(reach, i + (step[e] >> 1))
        if reach <= i + 1:
            ends[count] = i + 1
            count += 1
    return ends[:count].copy()


@njit(cache=True, nogil=True)
def block_counts(first, step, ends):
    """The number of paths through every block, int64 [blocks]; -1 for EXACT or more.

    ``ends``: int64 [blocks], those of `block_ends`.
    """
    counts = np.empty(len(ends), np.int64)
    paths = np.zeros(len(first), np.int64)  # from each node to the end of its block
    begin = np.int64(0)
    for b in range(len(ends)):
        paths[ends[b]] = 1
        fits = True
        for i in range(ends[b] - 1, begin - 1, -1):
            total = np.int64(0)
            for e in range(first[i], first[i + 1]):
                total = min(total + paths[i + (step[e] >> 1)], np.int64(EXACT))
            paths[i] = total
            fits = fits and total < EXACT
        counts[b] = paths[begin] if fits else -1
        begin = ends[b]
    return counts


@njit(cache=True, nogil=True)
def farthest(first, step):
    """The largest total cost of a path from node 0 to the end, or -1 where there is no path."""
    n = len(first) - 1
    most = np.full(n + 1, -1, np.int64)
    most[n] = 0
    for i in range(n - 1, -1, -1):
        for e in range(first[i], first[i + 1]):
            j = i + (step[e] >> 1)
            if most[j] >= 0:
                most[i] = max(most[i], most[j] + (step[e] & 1))
    return most[0]


@njit(cache=True, nogil=True)
def residues(first, step, begin, end, by_segments, degree, deficits):
    """The paths through a block by degree, modulo 2**56 - deficits; int64 [degree + 1, moduli].

    ``begin``, ``end``: nodes of the block's ends (`block_ends`); no edge between them leaves it.
    ``degree``: the largest degree. ``deficits``: int64 [moduli], each from 1 to 2**20.
    ``by_segments``: every edge costs 1. Keeps a ring of as many rows as the longest edge has bytes,
    and one. Row i holds values up to 2**56 + 2**27 in [0, degree + 1), zero above the largest
    degree of a path from i.
    """
    ring = np.int64(1)
    for e in range(first[begin], first[end]):
        ring = max(ring, np.int64(step[e] >> 1))
    ring += 1
    moduli = len(deficits)
    rows = np.zeros((ring, degree + 1, moduli), np.int64)
    top = np.full(ring, -1, np.int64)  # the largest degree of a path, -1: no path
    rows[end % ring, 0, :] = 1
    top[end % ring] = 0
    for i in range(end - 1, begin - 1, -1):
        row = rows[i % ring]
        row[:, :] = 0
        high = np.int64(-1)
        added = 0
        for e in range(first[i], first[i + 1]):
            j = (i + (step[e] >> 1)) % ring
            if top[j] < 0:
                continue
            cost = 1 if by_segments else np.int64(step[e] & 1)
            last = min(degree, top[j] + cost)
            source = rows[j]
            for d in range(cost, last + 1):
                for x in range(moduli):
                    row[d, x] += source[d - cost, x]
            high = max(high, last)
            added += 1
            if added % _EDGES == 0:
                _reduce(row, high, deficits)
        _reduce(row, high, deficits)
        top[i % ring] = high
    out = rows[begin % ring].copy()
    for d in range(degree + 1):
        for x in range(moduli):
            out[d, x] %= (np.int64(1) << BITS) - deficits[x]
    return out


@njit(cache=True, nogil=True, inline="always")
def _reduce(row, high, deficits):
    """Bring sums below 2**63 to at most 2**56 + 2**27, equal modulo 2**56 - deficits.

    ``row``: int64 [more than high, moduli]. ``high``: the last degree to reduce, or -1: none.
    ``deficits``: int64 [moduli].
    """
    for d in range(high + 1):
        for x in range(len(deficits)):
            row[d, x] = (row[d, x] & _LOW) + (row[d, x] >> BITS) * deficits[x]
