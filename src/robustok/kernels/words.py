"""Words: the blocks of a text's lattice, between positions that no token spans.

Every tokenization passes through such a position, so the lattice of a text is the product of the
lattices of its words. Two neighboring bytes that no token contains side by side show most such
positions. A longer text without them is searched for the others by the longest token at each byte.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.compiler.jit import njit
from robustok.kernels.memory import borrow
from robustok.kernels.trie import ROOT, borrow_trie, descend, token_of

LONG = 48  # bytes; shorter words are not searched for further cuts


@njit(cache=True, nogil=True)
def longest(trie, text, start, end):
    """The end of the longest token that starts at text[start] and ends at ``end`` at most.

    ``start`` where there is none. ``text``: uint8. Not from `long.edges_of`, which lists all tokens
    in memory.
    """
    trie, text = borrow_trie(trie), borrow(text)
    best = start
    node = ROOT
    for p in range(start, end):
        node = descend(trie, node, text, start, p)
        if node < 0:
            break
        if token_of(trie, node) >= 0:
            best = p + 1
    return best


@njit(cache=True, nogil=True)
def word_ends(trie, text, start, end, ends):
    """Write the end of every word of text[start:end] (uint8) to ``ends``; returns how many.

    ``ends``: int64 [end - start or more]: every word has at least a byte.
    """
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
