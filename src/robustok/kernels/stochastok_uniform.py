"""StochasTok-uni: split counts from a Dirichlet-multinomial, then uniform segmentations.

With one unit of concentration per token the counts are uniform over all ways to write N as m
ordered parts, which one pass over N stars and m - 1 bars draws (paper, section 4 and the appendix
on split counts).

Under support="pairwise", only segmentations are drawn that come from repeated two-way splits
through tokens. Leaf sequences of many trees at once cannot be counted by a simple recursion, as one
sequence may have several trees. So a segmentation is tested (is there some tree?), and the numbers
of segments that have any are found by a recursion over spans.

``pairwise``: `Pairwise` under support="pairwise", else None. ``alpha``: float64, splits for each
token of a text. ``is_token``, ``table``: bool [n + 1, n + 1], from `spans` of a token of n bytes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.batch import copy_to
from robustok.kernels.compiler import borrow, njit
from robustok.kernels.numbers import stream, uniform
from robustok.kernels.stochastok import picks_of
from robustok.kernels.store import (
    DRAWN,
    NOT_DRAWN,
    counts_of,
    degrees_of,
    draw,
    is_listed,
    lookup_token,
    paths_of,
)
from robustok.kernels.trie import ROOT, child, token_of

MOST = 1024  # bytes of the longest token that is split: float64 holds its 2**1023 segmentations
MOST_PAIRWISE = 256  # the same under support="pairwise"
# Draws of one token's segmentation under pairwise. One in 2,000 is accepted for the worst tokens
# of real vocabularies (64 equal characters), so all are rejected with probability exp(-32).
TRIES = 1 << 16


@njit()
def spans(trie, text, start, end):
    """[i, j]: text[start + i:start + j] is a token; bool of shape [n + 1, n + 1].

    ``text``: uint8. n is end - start, at least 0.
    """
    trie, text = borrow(trie), borrow(text)
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


@njit()
def _add_sums(left, most_left, right, most_right, sums):
    """Set sums[a + b] where left[a] and right[b], for 1 <= a <= most_left and b likewise.

    ``left``, ``right``, ``sums``: bool [more than most_left + most_right].
    """
    for a in range(1, most_left + 1):
        if left[a]:
            for b in range(1, most_right + 1):
                sums[a + b] |= right[b]


@njit()
def reachable_sizes(is_token):
    """[s]: some chain of two-way splits cuts the whole into s segments; bool of shape [n + 1]."""
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
                _add_sums(sizes[i, middle], middle - i, sizes[middle, j], j - middle, sizes[i, j])
    return sizes[0, n]


class Pairwise(NamedTuple):
    """Scratch of `is_pairwise` for a segmentation into fewer than ``len(cuts)`` segments."""

    cuts: np.ndarray  # int64 [n]
    merged: np.ndarray  # bool [n, n]


@njit()
def is_pairwise(is_token, segments, count, token_offsets, scratch):
    """Whether a segmentation of a token merges into it, two segments at a time through tokens.

    ``segments``: int32 [count or more], its first ``count`` are the ids of the segments, which
    together spell the token. ``scratch``: `Pairwise` for more than ``count`` cuts. A segment has at
    least a byte, so ``count`` and the cuts are at most n.
    """
    cuts, merged = scratch
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


@njit(forceinline=True)
def _record(tokens, store, key, pairwise):
    """The record of token key[0] (int32 [1]) by segments; NO_ROOM or NO_PATH.

    Under ``pairwise``, what repeated splits cannot reach is removed when the record is new: from a
    list the paths themselves, from a walked table only the numbers of segments that nothing
    reaches, so that its draws have to be tested.
    """
    new = store.used[0]
    record = lookup_token(store, tokens, key)
    if pairwise is not None and record == new:
        t = key[0]
        table = spans(tokens.trie, tokens.bytes, tokens.offsets[t], tokens.offsets[t + 1])
        if is_listed(store, record):
            _keep_pairwise(store, record, table, tokens.offsets, pairwise)
        else:
            reachable = reachable_sizes(table)
            for s in range(2, degrees_of(store, record) + 1):
                if not reachable[s]:
                    store.floats[counts_of(store, record) + s] = 0.0
    return record


@njit()
def _keep_pairwise(store, record, table, token_offsets, scratch):
    """Remove from a record's lists what two-way splits cannot reach; ``scratch``: `Pairwise`."""
    counts = counts_of(store, record)
    for s in range(3, degrees_of(store, record) + 1):
        base, stride = paths_of(store, record, s)
        kept = 0
        for p in range(np.int64(store.floats[counts + s])):
            path = store.ints[base + p * stride + 1 : base + p * stride + 1 + s]
            if is_pairwise(table, path, s, token_offsets, scratch):
                copy_to(path, s, store.ints, base + kept * stride + 1)
                kept += 1
        store.floats[counts + s] = kept


@njit(inline="always")
def _draw_share(stars, bars, state):
    """The stars before the next bar, both in random order; returns it, what is left, the state.

    ``stars``, ``bars``: int64, how many are left; each is at least 0.
    """
    share = np.int64(0)
    if stars == 0:
        return share, stars, bars, state
    while True:
        u, state = uniform(state)
        if u * (stars + bars) >= stars:
            bars -= 1
            break
        stars -= 1
        share += 1
    return share, stars, bars, state


@njit(forceinline=True)
def _segment(tokens, store, key, share, pairwise, state, out, at):
    """Append token key[0] in share + 1 segments, or the most below; returns the end, the state.

    A token of more than MOST bytes stays whole.

    ``key``: int32 [1]. ``out``: int32, with space for an id for each byte of the token from
    index ``at`` on. The end is NO_ROOM or NO_PATH where the store gives no record, and NOT_DRAWN
    where TRIES draws in a row were none that two-way splits reach.
    """
    t = key[0]
    length = tokens.offsets[t + 1] - tokens.offsets[t]
    is_whole = length < 2 or length > MOST or (pairwise is not None and length > MOST_PAIRWISE)
    if share == 0 or is_whole:
        out[at] = t
        return at + 1, state
    record = _record(tokens, store, key, pairwise)
    if record < 0:
        return record, state
    counts = counts_of(store, record)
    count = min(share + 1, degrees_of(store, record))
    while count > 1 and store.floats[counts + count] == 0.0:
        count -= 1
    if count == 1:
        out[at] = t
        return at + 1, state
    end, state = draw(store, record, count, state, out, at)
    if pairwise is not None and count > 2 and not is_listed(store, record):
        table = spans(tokens.trie, tokens.bytes, tokens.offsets[t], tokens.offsets[t + 1])
        tries = 1
        while not is_pairwise(table, out[at:end], count, tokens.offsets, pairwise):
            if tries == TRIES:
                return np.int64(NOT_DRAWN), state
            tries += 1
            end, state = draw(store, record, count, state, out, at)
    return end, state


@njit()
def _draw_texts(tokens, store, batch, alpha, pairwise, first, last, rows):
    """Draw texts first..last; see :func:`draw_stochastok_uniform`. Does not own ``pairwise``."""
    tokens, store = borrow(tokens), borrow(store)
    batch, rows = borrow(batch), borrow(rows)
    at = np.int64(0)
    for t in range(first, last):
        b, e = batch.offsets[t], batch.offsets[t + 1]
        for d in range(batch.draws):
            state = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
            stars, bars = picks_of(alpha, e - b), e - b - 1
            for v in range(b, e):
                share = stars  # of the last token
                if v < e - 1:
                    share, stars, bars, state = _draw_share(stars, bars, state)
                at, state = _segment(
                    tokens, store, batch.values[v : v + 1], share, pairwise, state, rows.ids, at
                )
                if at < 0:
                    return np.int64(t), at
            rows.ends[(t - first) * batch.draws + d] = at
    return np.int64(last), np.int64(DRAWN)


@njit()
def draw_stochastok_uniform(tokens, store, batch, alpha, pairwise, first, last, rows):
    """Draw texts first..last; returns the text reached and a code of `store`.

    ``last`` and DRAWN, or the first text that was not drawn and why, see :func:`_segment`.
    ``pairwise``: True: draw only what repeated two-way splits reach. None: all segmentations; the
    code of the others is left out of this kernel.
    """
    scratch = None
    if pairwise is not None:
        size = MOST_PAIRWISE + 1
        scratch = Pairwise(np.empty(size, np.int64), np.empty((size, size), np.bool_))
    return _draw_texts(tokens, store, batch, alpha, scratch, first, last, rows)
