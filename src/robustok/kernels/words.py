"""Where a text falls apart: words are the stretches between positions no token spans.

Every tokenization passes through such a position, so the lattice of a text is the product of the
lattices of its words. Most of them show in two neighboring bytes that no token holds side by side;
a long stretch without one is searched for the rest by how far tokens reach.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.jit import njit
from robustok.kernels.memory import borrow
from robustok.kernels.trie import borrow_trie, child

LONG = 48  # bytes; words up to here are tabled whole, longer stretches are searched for cuts


@njit(cache=True, nogil=True)
def longest(trie, text, start, end):
    """The end of the longest token that starts at ``start``, or ``start``."""
    trie, text = borrow_trie(trie), borrow(text)
    best = start
    node = np.int32(0)
    for p in range(start, end):
        node = child(trie, node, text[p])
        if node < 0:
            break
        if trie.token[node] >= 0:
            best = p + 1
    return best


@njit(cache=True, nogil=True)
def word_ends(trie, text, start, end, ends):
    """Write the end of every word of text[start:end] to ``ends``; returns how many."""
    trie, text, ends = borrow_trie(trie), borrow(text), borrow(ends)
    count = 0
    begin = start
    p = start + 1
    while p <= end:
        if p == end or not trie.joined[np.int64(text[p - 1]) * 256 + text[p]]:
            if p - begin > LONG:
                reach = begin
                for q in range(begin, p):
                    if q > begin and reach <= q:
                        ends[count] = q
                        count += 1
                    reach = max(reach, longest(trie, text, q, p))
            ends[count] = p
            count += 1
            begin = p
        p += 1
    return count
