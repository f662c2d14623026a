"""BPE-dropout: merges of one pre-token from a heap, each dropped with probability p.

Every merge that comes up is a Bernoulli trial. The number of merges kept before the first dropped
one is geometric, so one uniform number decides it: if it is at least the number of trials that a
token's pre-token takes, the canonical token stays. Otherwise the outcome of dropping only the k-th
merge is cached per token, and a second number decides whether another merge is dropped. Only the
rest, a few percent of all pre-tokens, is merged.

Arguments of one meaning in this module: ``merges``: `Merges`. ``scratch``: `MergeScratch`, with
space for the symbols of the longest pre-token. ``size``: entries of its heap. ``dropout``:
`Dropout`. ``pre_tokens``: `PreTokens` of the texts of the batch. ``token``: the canonical id of a
pre-token, or -1. ``out``: int32, with space for an id for each byte of the pre-token from index
``at`` on: a merge only makes the sequence shorter. ``kept`` merges are kept before the first
dropped one, ``kept_after`` before the second; -1: not drawn yet.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.compiler import borrow, njit
from robustok.kernels.merges import (
    CELLS,
    FIRST,
    MOST_TRIALS,
    Merges,
    pop,
    push,
    rank_of,
    symbols_of,
)
from robustok.kernels.numbers import stream, uniform
from robustok.kernels.trie import Trie

PROVILKOV, HF, SENTENCEPIECE = 0, 1, 2
_NEVER = 1 << 60
_UNKNOWN = -1


class MergeScratch(NamedTuple):
    """Memory for merging one pre-token of up to n symbols.

    Invariant: n merges push fewer than 3 n entries on the heap, and each may be dropped once.
    """

    token: np.ndarray  # int32 [n]: the id of a symbol
    before: np.ndarray  # int32 [n]: the previous symbol, or -1
    after: np.ndarray  # int32 [n]: the next symbol, or n
    rank: np.ndarray  # int32 [n]: of the merge with the next symbol; -1: none, or merged away
    heap: np.ndarray  # int64 [3 n]: priority << 32 | symbol
    dropped: np.ndarray  # int64 [3 n]: entries that come back after the next merge
    ids: np.ndarray  # int32 [n]: the outcome of a trial run


class Dropout(NamedTuple):
    """All that a draw of a pre-token needs."""

    trie: Trie
    merges: Merges
    text: np.ndarray  # uint8
    rule: int  # PROVILKOV, HF or SENTENCEPIECE
    log_keep: float  # log(1 - p)
    keep: np.ndarray  # float64 [MOST_TRIALS + 1]: the probability that so many trials drop nothing
    scratch: MergeScratch


@njit(inline="always")
def push_symbol(merges, scratch, size, i):
    """Push the merge of symbol ``i`` with the next one, if there is one; returns the heap size."""
    rank = scratch.rank[i]
    if rank >= 0:
        size = push(scratch.heap, size, (np.int64(merges.priority[rank]) << 32) | i)
    return size


@njit(inline="always")
def kept_merges(u, log_keep):
    """The number of merges kept before the next dropped one, geometric; int64.

    ``u``: float64 in [0, 1), a uniform number. ``log_keep``: float64, log(1 - p), negative.
    """
    return np.int64(min(np.log(max(u, 1e-17)) / log_keep, 1e18))


@njit(inline="always")
def apply(merges, scratch, n, size, i):
    """Merge symbol ``i`` with the next one and push the new pairs' merges; returns the heap size.

    ``n``: symbols that the pre-token started from. scratch.rank[i] is a merge, so symbol i has a
    next one below n.
    """
    token, before, after, rank = scratch.token, scratch.before, scratch.after, scratch.rank
    j = after[i]
    token[i] = merges.result[rank[i]]
    after[i] = after[j]
    rank[j] = -1
    rank[i] = -1
    if after[j] < n:
        before[after[j]] = i
        rank[i] = rank_of(merges, token[i], token[after[i]])
        size = push_symbol(merges, scratch, size, i)
    if before[i] >= 0:
        b = before[i]
        rank[b] = rank_of(merges, token[b], token[i])
        size = push_symbol(merges, scratch, size, b)
    return size


@njit(forceinline=True)
def _merge(dropout, begin, end, kept, kept_after, state, out, at):
    """Merge text[begin:end] and append the result; returns the end, the trials and the state.

    The end is -1 where a byte has no symbol. The rules differ in when there is a trial and in what
    becomes of a dropped merge. `hf` has one for outdated entries too, and such an entry brings the
    dropped ones back.
    """
    dropout, out = borrow(dropout), borrow(out)
    merges, scratch, rule = dropout.merges, dropout.scratch, dropout.rule
    rank, heap = scratch.rank, scratch.heap
    n = symbols_of(dropout.trie, merges, dropout.text, begin, end, scratch.token, rank)
    if n < 0:
        return np.int64(-1), np.int64(0), state
    rank[n - 1] = -1
    size, dropped, trials = np.int64(0), np.int64(0), np.int64(0)
    for i in range(n):
        scratch.before[i], scratch.after[i] = i - 1, i + 1
        size = push_symbol(merges, scratch, size, i)
    while size > 0:
        key, size = pop(heap, size)
        i = key & 0xFFFFFFFF
        is_current = False  # whether this is the merge of its pair now
        if rank[i] >= 0 and rule == HF:
            is_current = merges.result[rank[i]] == merges.result[key >> 32]
        elif rank[i] >= 0:
            is_current = merges.priority[rank[i]] == key >> 32
        if not is_current and rule != HF:
            continue
        trials += 1
        kept -= 1
        if kept < 0:
            kept = kept_after
            if kept < 0:
                u, state = uniform(state)
                kept = kept_merges(u, dropout.log_keep)
            kept_after = np.int64(_UNKNOWN)
            if rule != SENTENCEPIECE:
                scratch.dropped[dropped] = key
                dropped += 1
            continue
        for x in range(dropped):
            size = push(heap, size, scratch.dropped[x])
        dropped = 0
        if is_current:
            size = apply(merges, scratch, n, size, i)
    i = np.int64(0)
    while i < n:
        out[at] = scratch.token[i]
        at += 1
        i = np.int64(scratch.after[i])
    return at, trials, state


@njit()
def _dry_run(dropout, begin, end, kept):
    """Merge text[begin:end] into ``scratch.ids``, dropping only the merge after ``kept`` others.

    Returns the number of ids and of trials; -1 ids where a symbol is missing.
    """
    never, state, ids = np.int64(_NEVER), np.uint64(0), dropout.scratch.ids
    size, trials, _ = _merge(dropout, begin, end, kept, never, state, ids, np.int64(0))
    return size, trials


@njit()
def _count_trials(dropout, begin, end, token):
    """Count the trials of a token, text[begin:end], and cache them; see ``Merges.trials``."""
    size, trials = _dry_run(dropout, begin, end, np.int64(_NEVER))
    if size != 1 or dropout.scratch.ids[0] != token or trials > MOST_TRIALS:
        trials = np.int64(-2)
    dropout.merges.trials[token] = trials
    return trials


@njit()
def _cache_outcome(dropout, begin, end, token, k):
    """Cache the outcome of dropping only merge ``k`` of a token; see ``Merges.outcomes``.

    The token's bytes are text[begin:end] of ``dropout``; ``k`` is below FIRST and below the
    token's trials. Only an outcome that fits CELLS cells is written. The first cell is written
    last: another thread reads the others only where it is positive.
    """
    outcomes, ids = dropout.merges.outcomes, dropout.scratch.ids
    size, trials = _dry_run(dropout, begin, end, k)
    fits = size + 2 <= CELLS and trials <= MOST_TRIALS
    if fits:
        for y in range(size):
            outcomes[token, k, y + 1] = ids[y] + 1
        outcomes[token, k, size + 1] = -1
    outcomes[token, k, 0] = trials - k if fits else -1


@njit(inline="always")
def _copy_outcome(outcomes, token, k, out, at):
    """Append the ids of an outcome; returns how many, or 0 while another thread is writing it.

    ``outcomes``: int32 [ids, FIRST, CELLS], ``Merges.outcomes``, where the outcome of merge ``k``
    of ``token`` is cached.
    """
    y = 1
    while outcomes[token, k, y] > 0:
        out[at + y - 1] = outcomes[token, k, y] - 1
        y += 1
    return y - 1 if outcomes[token, k, y] < 0 else 0


@njit(inline="always")
def _draw_pre_token(dropout, begin, end, token, state, out, at):
    """Append one draw of the pre-token text[begin:end]; returns the end and the state.

    The end is -1 where there is no symbol for a byte.
    """
    merges, keep = dropout.merges, dropout.keep
    trials = np.int64(-2)
    if token >= 0:
        trials = np.int64(merges.trials[token])
        if trials == _UNKNOWN:
            trials = _count_trials(dropout, begin, end, token)
    u, state = uniform(state)
    if trials >= 0 and u < keep[trials]:
        out[at] = token
        return at + 1, state
    kept = kept_merges(u, dropout.log_keep)
    kept_after = np.int64(_UNKNOWN)
    if trials >= 0:
        kept = min(kept, trials - 1)
        if kept < FIRST:
            if merges.outcomes[token, kept, 0] == 0:
                _cache_outcome(dropout, begin, end, token, kept)
            trials_after = np.int64(merges.outcomes[token, kept, 0]) - 1
            if trials_after >= 0:
                u, state = uniform(state)
                if u < keep[trials_after]:
                    size = _copy_outcome(merges.outcomes, token, kept, out, at)
                    if size:
                        return at + size, state
                    kept_after = np.int64(_NEVER)
                else:
                    kept_after = min(kept_merges(u, dropout.log_keep), trials_after - 1)
    at, _, state = _merge(dropout, begin, end, kept, kept_after, state, out, at)
    return at, state


@njit()
def _draw_texts(dropout, pre_tokens, batch, rows):
    """Draw all texts of ``batch``, whose pre-tokens are ``pre_tokens``, into ``rows``.

    Returns as `draw_bpe_dropout`. Does not own the memory of ``dropout``.
    """
    dropout, batch, rows = borrow(dropout), borrow(batch), borrow(rows)
    first, ends = borrow(pre_tokens.first), borrow(pre_tokens.end)
    tokens, added, out = borrow(pre_tokens.token), borrow(pre_tokens.added), rows.ids
    at = np.int64(0)
    for t in range(len(batch.keys)):
        for d in range(batch.draws):
            state = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
            end = batch.offsets[t]
            for x in range(first[t], first[t + 1]):
                begin, end = end, ends[x]
                token = tokens[x]
                if token >= 0 and added[token]:
                    out[at] = token
                    at += 1
                    continue
                at, state = _draw_pre_token(dropout, begin, end, token, state, out, at)
                if at < 0:
                    return np.int64(t)
            rows.ends[t * batch.draws + d] = at
    return np.int64(len(batch.keys))


@njit()
def draw_bpe_dropout(trie, merges, pre_tokens, batch, p, rule, rows):
    """Draw all texts of a batch, which are bytes; returns their number.

    Or the first text with a byte for which there is no symbol. ``trie``: the tokens that
    characters are looked up in. ``pre_tokens``: those of the batch's texts; they cover each text.
    ``p``: float64, in (0, 1]. ``rule``: PROVILKOV, HF or SENTENCEPIECE. ``rows``: `batch.Rows` with
    a place for every byte and draw.
    """
    log_keep = np.log1p(-p)
    keep = np.empty(MOST_TRIALS + 1)
    for x in range(MOST_TRIALS + 1):
        keep[x] = np.exp(x * log_keep) if x else 1.0
    n = np.int64(1)
    begin = batch.offsets[0]
    for x in range(len(pre_tokens.end)):
        n = max(n, pre_tokens.end[x] - begin)
        begin = pre_tokens.end[x]
    scratch = MergeScratch(
        np.empty(n, np.int32),
        np.empty(n, np.int32),
        np.empty(n, np.int32),
        np.empty(n, np.int32),
        np.empty(3 * n, np.int64),
        np.empty(3 * n, np.int64),
        np.empty(n, np.int32),
    )
    dropout = Dropout(trie, merges, batch.values, rule, log_keep, keep, scratch)
    return _draw_texts(dropout, pre_tokens, batch, rows)
