"""Which segmentations of a token come from repeated two-way splits through tokens.

Leaf sequences of many trees at once cannot be counted by a simple recursion, as one sequence may
have several trees. So a segmentation is tested (is there some tree?), and the numbers of segments
that have any are found by a recursion over spans.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.compiler.jit import njit
from robustok.kernels.memory import borrow
from robustok.kernels.trie import ROOT, borrow_trie, child, token_of

MOST = 256  # bytes of the longest token that is split under support="pairwise"


@njit(cache=True, nogil=True)
def spans(trie, text, start, end):
    """[i, j]: text[start + i:start + j] is a token; bool of shape [n + 1, n + 1].

    ``text``: uint8. n is end - start, at least 0.
    """
    trie, text = borrow_trie(trie), borrow(text)
    n = end - start
    is_token = np.zeros((n + 1, n + 1), np.bool_)
    for i in range(n):
        node = ROOT
        for j in range(i + 1, n + 1):
            node = child(trie, node, text[start + j - 1])
            if node < 0:
                break
            is_token[i, j] = token_of(trie, node) >= 0
    return is_token


@njit(cache=True, nogil=True)
def reachable_sizes(is_token):
    """[s]: some chain of two-way splits cuts the whole into s segments; bool of shape [n + 1].

    ``is_token``: bool [n + 1, n + 1], from `spans`.
    """
    n = len(is_token) - 1
    sizes = np.zeros((n + 1, n + 1, n + 1), np.bool_)
    for span in range(1, n + 1):
        for i in range(n - span + 1):
            j = i + span
            if not is_token[i, j]:
                continue
            sizes[i, j, 1] = True
            for middle in range(i + 1, j):
                if not (is_token[i, middle] and is_token[middle, j]):
                    continue
                for a in range(1, middle - i + 1):
                    if sizes[i, middle, a]:
                        for b in range(1, j - middle + 1):
                            if sizes[middle, j, b]:
                                sizes[i, j, a + b] = True
    return sizes[0, n]


@njit(cache=True, nogil=True)
def is_pairwise(is_token, segments, count, token_offsets, cuts, merged):
    """Whether a segmentation of a token merges into it, two segments at a time through tokens.

    ``is_token``: bool [n + 1, n + 1], from `spans` of the token, n bytes. ``segments``: int32
    [count or more], its first ``count`` are the ids of the segments, which together spell the
    token. ``cuts``: int64 [count + 1 or more] and ``merged``: bool [count + 1 or more, the same],
    scratch. A segment has at least a byte, so ``count`` and the cuts are at most n.
    """
    cuts[0] = 0
    for p in range(count):
        cuts[p + 1] = cuts[p] + token_offsets[segments[p] + 1] - token_offsets[segments[p]]
    for span in range(1, count + 1):
        for a in range(count - span + 1):
            ok = span == 1
            if not ok and is_token[cuts[a], cuts[a + span]]:
                for middle in range(a + 1, a + span):
                    if merged[a, middle] and merged[middle, a + span]:
                        ok = True
                        break
            merged[a, a + span] = ok
    return merged[0, count]
