"""StochasTok-uni: split counts from a Dirichlet-multinomial, then uniform segmentations.

With one unit of concentration per token the counts are uniform over all ways to write N as m
ordered parts, which one pass over N stars and m - 1 bars draws (paper, section 4 and the appendix
on split counts).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.batch import borrow_batch, borrow_rows, borrow_tokens
from robustok.kernels.compiler.jit import njit
from robustok.kernels.copying import copy_to
from robustok.kernels.memory import borrow
from robustok.kernels.pairwise import MOST, is_pairwise, reachable_sizes, spans
from robustok.kernels.random import stream, uniform
from robustok.kernels.record import counts_of, degrees_of, draw, is_listed, paths_of
from robustok.kernels.stochastok import picks_of
from robustok.kernels.tables import NO_ROOM, NOT_DRAWN, borrow_store, lookup_token

# Draws of one token's segmentation under pairwise. One in 2,000 is accepted for the worst tokens
# of real vocabularies (64 equal characters), so all are rejected with probability exp(-32).
TRIES = 1 << 16


class Support(NamedTuple):
    """Which segmentations may be drawn, and scratch for the look-up and for `pairwise`."""

    pairwise: bool  # only those that repeated two-way splits reach
    key: np.ndarray  # int32 [1]
    cuts: np.ndarray  # int64 [MOST + 1]
    merged: np.ndarray  # bool [MOST + 1, MOST + 1], or [1, 1] unless ``pairwise``


@njit(cache=True, nogil=True)
def _borrow_support(support):
    """The same ``support`` without reference counts; see `memory`."""
    return Support(
        support.pairwise, borrow(support.key), borrow(support.cuts), borrow(support.merged)
    )


@njit(cache=True, nogil=True, inline="always")
def _record(tokens, store, t, support):
    """The record of token ``t`` by segments; NO_ROOM or NO_PATH.

    ``support``: `Support`; its ``key`` is overwritten. Under pairwise, what repeated splits cannot
    reach is removed: from a list the paths themselves, from a walked table only the numbers of
    segments that nothing reaches, so that its draws have to be tested.
    """
    tokens, store, support = borrow_tokens(tokens), borrow_store(store), _borrow_support(support)
    support.key[0] = t
    new = store.used[0]
    record = lookup_token(store, tokens, support.key)
    if support.pairwise and record == new:
        table = spans(tokens.trie, tokens.bytes, tokens.offsets[t], tokens.offsets[t + 1])
        if is_listed(store, record):
            _keep_pairwise(store, record, table, tokens.offsets, support.cuts, support.merged)
        else:
            reachable = reachable_sizes(table)
            for s in range(2, degrees_of(store, record) + 1):
                if not reachable[s]:
                    store.floats[counts_of(store, record) + s] = 0.0
    return record


@njit(cache=True, nogil=True)
def _keep_pairwise(store, record, table, token_offsets, cuts, merged):
    """Remove from a record's lists what repeated two-way splits cannot reach.

    ``table``: bool, the spans of the token (`pairwise.spans`). ``cuts``, ``merged``: scratch.
    """
    counts = counts_of(store, record)
    for s in range(3, degrees_of(store, record) + 1):
        base, stride = paths_of(store, record, s)
        kept = 0
        for p in range(np.int64(store.floats[counts + s])):
            path = store.ints[base + p * stride + 1 : base + p * stride + 1 + s]
            if is_pairwise(table, path, s, token_offsets, cuts, merged):
                copy_to(path, s, store.ints, base + kept * stride + 1)
                kept += 1
        store.floats[counts + s] = kept


@njit(cache=True, nogil=True, inline="always")
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


@njit(cache=True, nogil=True, inline="always")
def _segment(tokens, store, t, share, support, state, out, at):
    """Append token ``t`` in share + 1 segments, or the most below that; returns the end, the state.

    ``support``: `Support`. ``out``: int32, with space for an id for each byte of the token from
    index ``at`` on. The end is NO_ROOM or NO_PATH where the store gives no record, and NOT_DRAWN
    where TRIES draws in a row were none that two-way splits reach.
    """
    length = tokens.offsets[t + 1] - tokens.offsets[t]
    if share == 0 or length < 2 or (support.pairwise and length > MOST):
        out[at] = t
        return at + 1, state
    record = _record(tokens, store, t, support)
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
    if support.pairwise and count > 2 and not is_listed(store, record):
        table = spans(tokens.trie, tokens.bytes, tokens.offsets[t], tokens.offsets[t + 1])
        tries = 1
        while not is_pairwise(
            table, out[at:end], count, tokens.offsets, support.cuts, support.merged
        ):
            if tries == TRIES:
                return np.int64(NOT_DRAWN), state
            tries += 1
            end, state = draw(store, record, count, state, out, at)
    return end, state


@njit(cache=True, nogil=True)
def _draw_texts(tokens, store, batch, alpha, support, first, last, rows):
    """Draw texts first..last; see :func:`draw_stochastok_uniform`.

    ``alpha``: float64, splits for each token of a text. ``support``: `Support`, whose memory this
    kernel does not own.
    """
    tokens, store = borrow_tokens(tokens), borrow_store(store)
    batch, rows = borrow_batch(batch), borrow_rows(rows)
    support = _borrow_support(support)
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
                    tokens, store, batch.values[v], share, support, state, rows.ids, at
                )
                if at < 0:
                    return t if at == NO_ROOM else at
            rows.ends[(t - first) * batch.draws + d] = at
    return last


@njit(cache=True, nogil=True)
def draw_stochastok_uniform(tokens, store, batch, alpha, pairwise, first, last, rows):
    """Draw texts first..last; returns the first text the store had no space for, or ``last``.

    Or NO_PATH or NOT_DRAWN, see :func:`_segment`. ``alpha``: float64, splits for each token of a
    text (`picks_of`). ``pairwise``: bool, draw only what repeated two-way splits reach. ``rows``:
    `batch.Rows` of the texts first..last.
    """
    size = MOST + 1 if pairwise else 1
    support = Support(
        pairwise, np.empty(1, np.int32), np.empty(MOST + 1, np.int64),
        np.empty((size, size), np.bool_),
    )  # fmt: skip
    return _draw_texts(tokens, store, batch, alpha, support, first, last, rows)
