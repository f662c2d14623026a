"""Distances of many words given their sum: a binary tree of convolved distributions.

A node holds the distribution of the sum of its words' distances. Rows are trimmed to what is not
negligible, so all of them together take time and memory of about the number of words, times its
logarithm. `convolve_block` is the same for few words, one word after another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.distances import NEGLIGIBLE
from robustok.kernels.jit import njit
from robustok.kernels.memory import borrow
from robustok.kernels.random import uniform


class SumTree(NamedTuple):
    """Node 1 is the root, 2 i and 2 i + 1 are the children of i; leaf t is node leaves + t.

    Node i has sum s with probability table[base[i] + s - low[i]] for low[i] <= s <= high[i].
    """

    table: np.ndarray  # float64
    base: np.ndarray  # int64 [2 * leaves]
    low: np.ndarray  # int64 [2 * leaves]
    high: np.ndarray  # int64 [2 * leaves]


@njit(cache=True, nogil=True)
def build_tree(pmf, start, block):
    """The tree over words ``block`` (indices of types whose distances begin at pmf[start])."""
    leaves = np.int64(1)
    while leaves < len(block):
        leaves *= 2
    base, low, high = (
        np.zeros(2 * leaves, np.int64),
        np.zeros(2 * leaves, np.int64),
        np.zeros(2 * leaves, np.int64),
    )
    table = np.empty(len(pmf) + 1 + 64 * len(block))
    table[: len(pmf)] = pmf
    table[len(pmf)] = 1.0
    free = np.int64(len(pmf) + 1)
    for t in range(leaves):
        if t < len(block):
            base[leaves + t] = start[block[t]]
            high[leaves + t] = start[block[t] + 1] - start[block[t]] - 1
        else:
            base[leaves + t] = len(pmf)
    for i in range(leaves - 1, 0, -1):
        a, b = 2 * i, 2 * i + 1
        width = high[a] - low[a] + high[b] - low[b] + 1
        if free + width > len(table):
            larger = np.empty(2 * len(table) + width)
            larger[:free] = table[:free]
            table = larger
        row = table[free : free + width]
        row[:] = 0.0
        right = table[base[b] : base[b] + high[b] - low[b] + 1]
        for d in range(high[a] - low[a] + 1):
            p = table[base[a] + d]
            if p > 0.0:
                into = row[d : d + len(right)]
                for s in range(len(right)):
                    into[s] += p * right[s]
        first, last = np.int64(0), width - 1
        while last > 0 and row[last] < NEGLIGIBLE:
            last -= 1
        while first < last and row[first] < NEGLIGIBLE:
            first += 1
        base[i], low[i] = free + first, low[a] + low[b] + first
        high[i] = low[a] + low[b] + last
        free += last + 1
    return SumTree(table, base, low, high)


@njit(cache=True, nogil=True)
def draw_tree(tree, block_words, total, state, distance):
    """Write the distances of the words given that they sum to ``total``; returns the state.

    ``total`` must have a positive probability at the root. Word t's goes to
    distance[block_words[t]].
    """
    table, base, low, high = (
        borrow(tree.table), borrow(tree.base), borrow(tree.low), borrow(tree.high)
    )  # fmt: skip
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
    for t in range(len(block_words)):
        distance[block_words[t]] = sums[leaves + t]
    return state
