"""StochasTok: repeated splits of uniformly picked tokens (paper, Algorithm `stok`)."""

from __future__ import annotations

import numpy as np

from robustok.kernels.batch import borrow_batch
from robustok.kernels.jit import njit
from robustok.kernels.memory import borrow
from robustok.kernels.random import below, stream, uniform
from robustok.kernels.tables import SEGMENTS, borrow_store, clear, draw, grades_of, lookup, ways_of
from robustok.kernels.trie import borrow_trie, child

MOST_PICKS = 2.0**62
FEW = 8.0  # picks a token, up to which neither bytes nor splittable tokens are counted


@njit(cache=True, nogil=True)
def find(trie, text, start, end):
    """The token that is text[start:end], or -1."""
    node = np.int32(0)
    for p in range(start, end):
        node = child(trie, node, text[p])
        if node < 0:
            return np.int32(-1)
    return trie.token[node]


@njit(cache=True, nogil=True)
def pairs_of(trie, token_bytes, token_offsets, ordinary):
    """Every way to cut a token into two tokens: CSR over ids, left and right token."""
    size = len(ordinary)
    start = np.zeros(size + 1, np.int64)
    left = np.empty(len(token_bytes), np.int32)
    right = np.empty(len(token_bytes), np.int32)
    n = 0
    for t in range(size):
        if ordinary[t]:
            b, e = token_offsets[t], token_offsets[t + 1]
            node = np.int32(0)
            for cut in range(b + 1, e):
                node = child(trie, node, token_bytes[cut - 1])
                if node < 0:
                    break
                if trie.token[node] >= 0:
                    other = find(trie, token_bytes, cut, e)
                    if other >= 0:
                        left[n], right[n] = trie.token[node], other
                        n += 1
        start[t + 1] = n
    return start, left[:n].copy(), right[:n].copy()


@njit(cache=True, nogil=True, inline="always")
def picks_of(alpha, m):
    """ceil(alpha * m), clipped as a float: an int64 cast of more than 2**63 is undefined."""
    return np.int64(min(np.ceil(alpha * m), MOST_PICKS))


@njit(cache=True, nogil=True)
def _most_nodes(token_offsets, batch, alpha, added, first, last):
    """The most tokens of any of the texts first..last if each pick adds up to ``added``."""
    token_offsets, batch = borrow(token_offsets), borrow_batch(batch)
    most = np.int64(0)
    for t in range(first, last):
        b, e = batch.offsets[t], batch.offsets[t + 1]
        more = np.ceil(alpha * (e - b)) * added
        if alpha * added > FEW:
            size = np.int64(0)
            for v in range(b, e):
                size += token_offsets[batch.values[v] + 1] - token_offsets[batch.values[v]]
            more = min(more, np.float64(size))
        most = max(most, e - b + np.int64(more))
    return most


@njit(cache=True, nogil=True)
def draw_stochastok(start, left, right, token_offsets, batch, alpha, first, last, out, out_ends):
    """Two-way splits; the sequence is a linked list, so a uniform index is a uniform position.

    start: int64 [ids + 1]; left, right: int32 [pairs]: the pairs that token t splits into are
    start[t]:start[t + 1]. A split adds one node and both its tokens have bytes, so a text of m
    tokens and b bytes never has more than m + min(picks, b) nodes: the length of the scratch.
    With more than ``FEW`` picks a token, a text ends its picks once no token in it splits any
    further: the rest change nothing.
    """
    start, left, right, batch = borrow(start), borrow(left), borrow(right), borrow_batch(batch)
    token_offsets, out, out_ends = borrow(token_offsets), borrow(out), borrow(out_ends)
    longest = _most_nodes(token_offsets, batch, alpha, 1, first, last)
    token = np.empty(longest + 1, np.int32)
    after = np.empty(longest + 1, np.int32)
    at = np.int64(0)
    for t in range(first, last):
        b, e = batch.offsets[t], batch.offsets[t + 1]
        m = e - b
        picks = picks_of(alpha, m)
        splittable = np.int64(0 if alpha > FEW else 1)
        if alpha > FEW:
            for v in range(b, e):
                splittable += start[batch.values[v] + 1] > start[batch.values[v]]
        for d in range(batch.draws):
            state = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
            for i in range(m):
                token[i] = batch.values[b + i]
                after[i] = i + 1
            if m:
                after[m - 1] = -1
            n = m
            left_to_split = splittable
            pick = np.int64(0)
            while pick < picks and left_to_split > 0:
                pick += 1
                i, state = below(state, n)
                first_pair = start[token[i]]
                ways = start[token[i] + 1] - first_pair
                if ways:
                    x, state = below(state, ways)
                    one, two = left[first_pair + x], right[first_pair + x]
                    if alpha > FEW:
                        left_to_split += (start[one + 1] > start[one]) - 1
                        left_to_split += start[two + 1] > start[two]
                    token[n] = two
                    token[i] = one
                    after[n] = after[i]
                    after[i] = n
                    n += 1
            i = np.int32(0) if m else np.int32(-1)
            while i >= 0:
                out[at] = token[i]
                at += 1
                i = after[i]
            out_ends[(t - first) * batch.draws + d] = at
    return last


@njit(cache=True, nogil=True, inline="always")
def _split_up_to(trie, store, token_bytes, token_offsets, t, key, ways, state, pieces):
    """Cut token t by one of its expansions into 2..ways pieces, uniform over all of them.

    Returns how many pieces (0: no expansion, -1: the store is full) and the state.
    """
    trie, store, pieces = borrow_trie(trie), borrow_store(store), borrow(pieces)
    token_bytes, token_offsets, key = borrow(token_bytes), borrow(token_offsets), borrow(key)
    b, e = token_offsets[t], token_offsets[t + 1]
    if e - b < 2:
        return np.int64(0), state
    key[0] = t
    entry = lookup(store, trie, SEGMENTS, key, 0, 1, token_bytes, b, e, token_offsets)
    if entry < 0:
        return np.int64(-1), state
    w0 = ways_of(store, entry)
    most = min(np.int64(ways), grades_of(store, entry))
    total = 0.0
    for s in range(2, most + 1):
        total += store.floats[w0 + s]
    if total == 0.0:
        return np.int64(0), state
    u, state = uniform(state)
    left = u * total
    segments = 2
    for s in range(2, most + 1):
        if store.floats[w0 + s] > 0.0:
            segments = s
            left -= store.floats[w0 + s]
            if left < 0.0:
                break
    count, state = draw(store, entry, segments, state, pieces, 0)
    return count, state


@njit(cache=True, nogil=True)
def draw_stochastok_ways(
    trie, store, token_bytes, token_offsets, batch, alpha, ways, first, last, out, out_ends
):
    """As `draw_stochastok`, with all expansions into up to ``ways`` pieces listed together.

    No token has more pieces than bytes, so ``ways`` is clipped to the bytes of the longest one:
    the length of ``pieces``.
    """
    trie, store, batch = borrow_trie(trie), borrow_store(store), borrow_batch(batch)
    token_bytes, token_offsets = borrow(token_bytes), borrow(token_offsets)
    out, out_ends = borrow(out), borrow(out_ends)
    longest = np.int64(2)
    for v in range(batch.offsets[first], batch.offsets[last]):
        t = batch.values[v]
        longest = max(longest, token_offsets[t + 1] - token_offsets[t])
    ways = min(np.int64(ways), longest)
    longest = _most_nodes(token_offsets, batch, alpha, ways - 1, first, last)
    token = np.empty(longest + 1, np.int32)
    after = np.empty(longest + 1, np.int32)
    whole = np.empty(longest + 1, np.bool_)  # nodes known or too short to split no further
    pieces = np.empty(ways, np.int32)
    key = np.empty(1, np.int32)
    at = np.int64(0)
    for t in range(first, last):
        b, e = batch.offsets[t], batch.offsets[t + 1]
        m = e - b
        picks = picks_of(alpha, m)
        for d in range(batch.draws):
            state = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
            splittable = np.int64(0)
            for i in range(m):
                token[i] = batch.values[b + i]
                after[i] = i + 1
                whole[i] = token_offsets[token[i] + 1] - token_offsets[token[i]] < 2
                splittable += not whole[i]
            if m:
                after[m - 1] = -1
            n = m
            pick = np.int64(0)
            while pick < picks and splittable > 0:
                before = state
                i, state = below(state, n)
                count, state = _split_up_to(
                    trie, store, token_bytes, token_offsets, token[i], key, ways, state, pieces
                )
                if count < 0:
                    if store.used[0] == 0:
                        return t
                    clear(store)
                    state = before
                    continue
                if count:
                    token[i] = pieces[0]
                    whole[i] = token_offsets[pieces[0] + 1] - token_offsets[pieces[0]] < 2
                    splittable -= whole[i]
                    for x in range(1, count):
                        token[n] = pieces[x]
                        whole[n] = token_offsets[pieces[x] + 1] - token_offsets[pieces[x]] < 2
                        splittable += not whole[n]
                        after[n] = after[i]
                        after[i] = n
                        i = n
                        n += 1
                elif not whole[i]:
                    whole[i] = True
                    splittable -= 1
                pick += 1
            i = np.int64(0) if m else np.int64(-1)
            while i >= 0:
                out[at] = token[i]
                at += 1
                i = np.int64(after[i])
            out_ends[(t - first) * batch.draws + d] = at
    return last
