"""StochasTok: repeated splits of uniformly picked tokens (paper, Algorithm `stok`).

The sequence is a linked list in arrays, so that a split appends its tokens and a uniform index is a
uniform position.

Arguments of one meaning in this module: ``pairs``: `Pairs` of the vocabulary. ``nodes``:
`Nodes`, the list of one text, of whose nodes n are in use. ``alpha``: float64, picks for each
token of a text, see `picks_of`. ``strength``: `PickRate`. ``picks``: int64, how many to pick.
``first``, ``last``: the texts first..last of the batch are drawn into ``rows``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.compiler import borrow, njit
from robustok.kernels.numbers import below, ceil_of, stream, uniform
from robustok.kernels.store import DRAWN, NO_ROOM, counts_of, degrees_of, draw, lookup_token
from robustok.kernels.trie import ROOT, child, find_token, token_of

MOST_PICKS = 2.0**62
FEW = 8.0  # picks a token, up to which neither bytes nor splittable tokens are counted


class Pairs(NamedTuple):
    """The cuts of every token into two: those of token t are start[t]:start[t + 1]."""

    start: np.ndarray  # int32 [ids + 1]: half the memory that draws read out of order
    left: np.ndarray  # int32 [pairs]
    right: np.ndarray  # int32 [pairs]


class PickRate(NamedTuple):
    """The number of picks in a text of m tokens: min(ceil(alpha * m), max_picks)."""

    alpha: np.float64
    max_picks: np.int64


class Nodes(NamedTuple):
    """A linked list of tokens; node 0 is the first one.

    Invariant: the arrays have a place for every node that a text can grow to, see `_most_nodes`.
    """

    token: np.ndarray  # int32 [nodes]
    after: np.ndarray  # int32 [nodes]: the next node, or -1
    closed: np.ndarray  # bool [nodes]: known to have no expansion; empty where it is not used


@njit()
def pairs_of(trie, token_bytes, token_offsets, ordinary):
    """Every cut of an ordinary token into two tokens, as `Pairs`.

    ``ordinary``: bool [ids]. A token has fewer cuts than bytes, so the pairs fit in as many places
    as bytes.
    """
    size = len(ordinary)
    start = np.zeros(size + 1, np.int32)  # a `Trie` has fewer than 2**27 bytes of tokens
    left = np.empty(len(token_bytes), np.int32)
    right = np.empty(len(token_bytes), np.int32)
    n = 0
    for t in range(size):
        if ordinary[t]:
            b, e = token_offsets[t], token_offsets[t + 1]
            node = ROOT
            for cut in range(b + 1, e):
                node = child(trie, node, token_bytes[cut - 1])
                if node < 0:
                    break
                if token_of(trie, node) >= 0:
                    other = find_token(trie, token_bytes, cut, e)
                    if other >= 0:
                        left[n], right[n] = token_of(trie, node), other
                        n += 1
        start[t + 1] = n
    return Pairs(start, left[:n].copy(), right[:n].copy())


@njit(inline="always")
def picks_of(alpha, m):
    """ceil(alpha * m), clipped as a float: an int64 cast of more than 2**63 is undefined.

    ``m``: int, the tokens of a text.
    """
    return np.int64(min(ceil_of(alpha, m), MOST_PICKS))


@njit(inline="always")
def _picks_of_text(strength, batch, t):
    """The picks in text ``t`` of the batch, int64."""
    return min(
        picks_of(strength.alpha, batch.offsets[t + 1] - batch.offsets[t]), strength.max_picks
    )


@njit()
def _most_nodes(token_offsets, batch, alpha, added, first, last):
    """The most tokens of any of the texts first..last if each pick adds up to ``added``; int64.

    A split adds nodes and all its tokens have bytes, so a text of m tokens and b bytes never has
    more than min(m + picks * added, m + b) nodes.
    """
    token_offsets, batch = borrow(token_offsets), borrow(batch)
    most = np.int64(0)
    for t in range(first, last):
        b, e = batch.offsets[t], batch.offsets[t + 1]
        more = ceil_of(alpha, e - b) * added
        if alpha * added > FEW:
            size = np.int64(0)
            for v in range(b, e):
                size += token_offsets[batch.values[v] + 1] - token_offsets[batch.values[v]]
            more = min(more, np.float64(size))
        most = max(most, e - b + np.int64(more))
    return most


@njit(inline="always")
def _read_text(batch, t, nodes):
    """Make the list of text ``t`` of the batch in ``nodes``; returns its number of nodes."""
    b = batch.offsets[t]
    m = batch.offsets[t + 1] - b
    for i in range(m):
        nodes.token[i] = batch.values[b + i]
        nodes.after[i] = i + 1
    if m:
        nodes.after[m - 1] = -1
    return m


@njit(inline="always")
def _write_text(nodes, count, out, at):
    """Append the tokens of the ``count`` nodes to ``out`` from ``at`` on; returns the end."""
    i = np.int32(0) if count else np.int32(-1)
    while i >= 0:
        out[at] = nodes.token[i]
        at += 1
        i = nodes.after[i]
    return at


@njit(inline="always")
def _splits(pairs, token):
    """Whether a token (an id of the vocabulary) can be cut into two, as 0 or 1."""
    return np.int64(pairs.start[token + 1] > pairs.start[token])


@njit(inline="always")
def _split_one(pairs, nodes, n, state):
    """Pick one of n nodes and split it in two if it can be; returns it, the new n and the state."""
    i, state = below(state, n)
    begin = np.int64(pairs.start[nodes.token[i]])
    count = np.int64(pairs.start[nodes.token[i] + 1]) - begin
    if count:
        x, state = below(state, count)
        nodes.token[n] = pairs.right[begin + x]
        nodes.token[i] = pairs.left[begin + x]
        nodes.after[n] = nodes.after[i]
        nodes.after[i] = n
        n += 1
    return i, n, state


@njit(inline="always")
def _split_in_two(pairs, nodes, n, picks, few, state):
    """Pick nodes of the list of n nodes and split them in two; returns the number of nodes.

    Unless ``few``, picks end once no token splits any further: the rest change nothing.
    """
    if few:
        for _ in range(picks):
            _, n, state = _split_one(pairs, nodes, n, state)
        return n
    splittable = np.int64(0)
    for i in range(n):
        splittable += _splits(pairs, nodes.token[i])
    pick = np.int64(0)
    while pick < picks and splittable > 0:
        pick += 1
        size = n
        i, n, state = _split_one(pairs, nodes, n, state)
        if n > size:
            splittable += _splits(pairs, nodes.token[i]) + _splits(pairs, nodes.token[size]) - 1
    return n


@njit()
def _draw_texts(pairs, nodes, batch, strength, first, last, rows):
    """Draw texts first..last; see :func:`draw_stochastok`. Does not own the memory of ``nodes``."""
    pairs = borrow(pairs)
    nodes = borrow(nodes)
    batch, rows = borrow(batch), borrow(rows)
    at = np.int64(0)
    for t in range(first, last):
        picks = _picks_of_text(strength, batch, t)
        for d in range(batch.draws):
            state = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
            n = _read_text(batch, t, nodes)
            n = _split_in_two(pairs, nodes, n, picks, strength.alpha <= FEW, state)
            at = _write_text(nodes, n, rows.ids, at)
            rows.ends[(t - first) * batch.draws + d] = at


@njit()
def draw_stochastok(pairs, token_offsets, batch, strength, first, last, rows):
    """Draw texts first..last with splits into two tokens."""
    most = _most_nodes(token_offsets, batch, strength.alpha, 1, first, last)
    nodes = Nodes(np.empty(most + 1, np.int32), np.empty(most + 1, np.int32), np.empty(0, np.bool_))
    _draw_texts(pairs, nodes, batch, strength, first, last, rows)


@njit(inline="always")
def _expand(tokens, store, t, key, segments, state):
    """Cut token t by one of its expansions into 2..len(segments) tokens, uniform over all of them.

    Returns how many tokens were written to ``segments`` (0: no expansion, -1: the store is full)
    and the state. ``key``: int32 [1], scratch. ``segments``: int32 [most tokens].
    """
    tokens, store = borrow(tokens), borrow(store)
    key, segments = borrow(key), borrow(segments)
    if tokens.offsets[t + 1] - tokens.offsets[t] < 2:
        return np.int64(0), state
    key[0] = t
    record = lookup_token(store, tokens, key)
    if record < 0:
        return np.int64(-1), state
    counts = counts_of(store, record)
    most = min(np.int64(len(segments)), degrees_of(store, record))
    total = 0.0
    for s in range(2, most + 1):
        total += store.floats[counts + s]
    if total == 0.0:
        return np.int64(0), state
    u, state = uniform(state)
    left = u * total
    size = 2
    for s in range(2, most + 1):
        if store.floats[counts + s] > 0.0:
            size = s
            left -= store.floats[counts + s]
            if left < 0.0:
                break
    count, state = draw(store, record, size, state, segments, 0)
    return count, state


@njit(inline="always")
def _split_listed(tokens, store, nodes, n, picks, scratch, state):
    """Pick nodes of the list and expand them; returns the number of nodes, -1 if the store is full.

    ``scratch``: int32 [1], the key of a look-up, and int32 [max_segments], the tokens of an
    expansion. A pick adds up to max_segments - 1 nodes, so `_most_nodes` bounds their number.
    """
    key, segments = scratch
    splittable = np.int64(0)
    for i in range(n):
        token = nodes.token[i]
        nodes.closed[i] = tokens.offsets[token + 1] - tokens.offsets[token] < 2
        splittable += not nodes.closed[i]
    pick = np.int64(0)
    while pick < picks and splittable > 0:
        i, state = below(state, n)
        count, state = _expand(tokens, store, nodes.token[i], key, segments, state)
        if count < 0:
            return np.int64(-1)
        if count == 0 and not nodes.closed[i]:
            nodes.closed[i] = True
            splittable -= 1
        for x in range(count):
            node = i
            if x:
                node = n
                nodes.after[n] = nodes.after[i]
                nodes.after[i] = n
                n += 1
            token = segments[x]
            nodes.token[node] = token
            nodes.closed[node] = tokens.offsets[token + 1] - tokens.offsets[token] < 2
            splittable += np.int64(not nodes.closed[node]) - np.int64(x == 0)
            i = node
        pick += 1
    return n


@njit()
def draw_stochastok_listed(tokens, store, batch, strength, max_segments, first, last, rows):
    """Draw texts first..last, all expansions into up to ``max_segments`` tokens in one list.

    Returns ``last`` and DRAWN, or the first text that the store had no space for and NO_ROOM. No
    token has more segments than bytes, so ``max_segments`` is clipped to those of the longest one.
    """
    tokens, store = borrow(tokens), borrow(store)
    batch, rows = borrow(batch), borrow(rows)
    longest = np.int64(2)
    for v in range(batch.offsets[first], batch.offsets[last]):
        t = batch.values[v]
        longest = max(longest, tokens.offsets[t + 1] - tokens.offsets[t])
    max_segments = min(np.int64(max_segments), longest)
    most = _most_nodes(tokens.offsets, batch, strength.alpha, max_segments - 1, first, last)
    nodes = Nodes(
        np.empty(most + 1, np.int32), np.empty(most + 1, np.int32), np.empty(most + 1, np.bool_)
    )
    scratch = np.empty(1, np.int32), np.empty(max_segments, np.int32)
    at = np.int64(0)
    for t in range(first, last):
        picks = _picks_of_text(strength, batch, t)
        for d in range(batch.draws):
            state = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
            n = _read_text(batch, t, nodes)
            n = _split_listed(tokens, store, nodes, n, picks, scratch, state)
            if n < 0:
                return np.int64(t), np.int64(NO_ROOM)
            at = _write_text(nodes, n, rows.ids, at)
            rows.ends[(t - first) * batch.draws + d] = at
    return np.int64(last), np.int64(DRAWN)
