"""Distances of many words given their sum: a binary tree of convolved distributions.

A node holds the distribution of the sum of its words' distances. Rows are trimmed, so all of them
together take time and memory of about the number of words times its logarithm.
`distances.convolve_block` does the same for few words, one word after another.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.compiler.jit import njit
from robustok.kernels.copying import copy_to
from robustok.kernels.distances import borrow_types
from robustok.kernels.memory import borrow
from robustok.kernels.random import uniform
from robustok.kernels.sums import Sums, borrow_sums, enlarge, trim


@njit(cache=True, nogil=True)
def build_tree(types, kind):
    """The tree over words of types ``kind`` (int64 [words]), as `Sums` of 2 * leaves rows.

    Node 1 is the root, 2 i and 2 i + 1 are the children of node i, and word t is node leaves + t.
    Leaves are a power of two; those after the words are the sum 0. The rows of words are those of
    ``types.probability``, which the table begins with.
    """
    types, kind = borrow_types(types), borrow(kind)
    leaves = np.int64(1)
    while leaves < len(kind):
        leaves *= 2
    base = np.zeros(2 * leaves, np.int64)
    low = np.zeros(2 * leaves, np.int64)
    high = np.zeros(2 * leaves, np.int64)
    size = len(types.probability)
    table = np.empty(size + 1 + 64 * len(kind))
    copy_to(types.probability, size, table, 0)
    table[size] = 1.0
    used = np.int64(size + 1)
    for t in range(leaves):
        if t < len(kind):
            base[leaves + t] = types.start[kind[t]]
            high[leaves + t] = types.start[kind[t] + 1] - types.start[kind[t]] - 1
        else:
            base[leaves + t] = size
    for i in range(leaves - 1, 0, -1):
        a, b = 2 * i, 2 * i + 1
        width = high[a] - low[a] + high[b] - low[b] + 1
        table = enlarge(table, used, width)
        row = table[used : used + width]
        row[:] = 0.0
        right = table[base[b] : base[b] + high[b] - low[b] + 1]
        for d in range(high[a] - low[a] + 1):
            p = table[base[a] + d]
            if p > 0.0:
                target = row[d : d + len(right)]
                for s in range(len(right)):
                    target[s] += p * right[s]
        first, last = trim(row)
        base[i], low[i] = used + first, low[a] + low[b] + first
        high[i] = low[a] + low[b] + last
        used += last + 1
    return Sums(table, base, low, high)


@njit(cache=True, nogil=True)
def draw_tree(tree, total, state, words, distance):
    """Draw the distances of a tree's words given that they sum to ``total``; returns the state.

    ``tree``: `Sums` of `build_tree`. ``total`` must have a positive probability at the root.
    ``words``: int64 [words of the tree]. Word t's distance is written to distance[words[t]].
    ``distance``: int64 [words of the text].
    """
    table, base, low, high = borrow_sums(tree)
    leaves = len(base) // 2
    sums = np.zeros(2 * leaves, np.int64)
    sums[1] = total
    for i in range(1, leaves):
        a, b, s = 2 * i, 2 * i + 1, sums[i]
        begin, end = max(low[a], s - high[b]), min(high[a], s - low[b])
        whole = 0.0
        for x in range(begin, end + 1):
            whole += table[base[a] + x - low[a]] * table[base[b] + s - x - low[b]]
        u, state = uniform(state)
        left, chosen = u * whole, begin
        for x in range(begin, end + 1):
            p = table[base[a] + x - low[a]] * table[base[b] + s - x - low[b]]
            if p > 0.0:
                chosen = x
                left -= p
                if left < 0.0:
                    break
        sums[a], sums[b] = chosen, s - chosen
    for t in range(len(words)):
        distance[words[t]] = sums[leaves + t]
    return state
