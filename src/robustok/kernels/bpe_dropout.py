"""BPE-dropout: merges of one pre-token from a heap, each dropped with probability p.

Every merge that comes up is a Bernoulli trial. The number of merges kept before the first dropped
one is geometric, so one uniform number decides it: if it is at least the number of trials that a
token's pre-token takes, the canonical token stays. Otherwise the outcome of dropping only the k-th
merge is cached per token, and a second number decides whether another merge is dropped. Only the
rest, a few percent of all pre-tokens, is merged.

Arguments of one meaning in this module: ``merges``: `Merges`. ``scratch``: `Scratch`, with
space for the symbols of the longest pre-token. ``dropout``: `Dropout`. ``pre_tokens``:
`PreTokens` of the texts of the batch. ``token``: the canonical id of a pre-token, or -1.
"""

from __future__ import annotations

import numpy as np

from robustok.kernels.batch import borrow_batch, borrow_rows
from robustok.kernels.compiler.jit import njit
from robustok.kernels.dropout_blocks import merge_by_blocks
from robustok.kernels.dropout_queue import (
    Dropout,
    Scratch,
    append_symbols,
    apply,
    borrow_dropout,
    kept_merges,
    next_kept,
    push_symbol,
)
from robustok.kernels.heap import pop, push
from robustok.kernels.memory import borrow
from robustok.kernels.merges import CELLS, FIRST, MOST_TRIALS, symbols_of
from robustok.kernels.pre_tokens import TO_MERGE
from robustok.kernels.random import stream, uniform

PROVILKOV, HF, SENTENCEPIECE = 0, 1, 2
_NEVER = 1 << 60
_UNKNOWN = -1


@njit(cache=True, nogil=True, inline="always")
def _merge(dropout, n, kept, kept_after, state, out, at):
    """Merge the n symbols in the scratch and append the result; returns the end, trials and state.

    ``kept`` merges are kept before the first dropped one, ``kept_after`` before the second; -1:
    not drawn yet. The rules differ in when there is a trial and in what becomes of a dropped merge.
    `hf` has one for outdated entries too, and such an entry brings the dropped ones back.
    ``out``: int32, with space for n ids from ``at`` on: a merge only makes the sequence shorter.
    """
    merges, scratch, rule = dropout.merges, dropout.scratch, dropout.rule
    rank, heap = scratch.rank, scratch.heap
    rank[n - 1] = -1
    size, dropped, trials = 0, 0, 0
    for i in range(n):
        scratch.before[i], scratch.after[i] = i - 1, i + 1
        size = push_symbol(merges, scratch, size, i)
    while size > 0:
        key, size = pop(heap, size)
        i = key & 0xFFFFFFFF
        r = rank[i]
        if rule == HF:
            valid = r >= 0 and merges.result[r] == merges.result[key >> 32]
        else:
            valid = r >= 0 and merges.priority[r] == key >> 32
            if not valid:
                continue
        trials += 1
        kept -= 1
        if kept < 0:
            kept, state = next_kept(kept_after, dropout.log_keep, state)
            kept_after = np.int64(_UNKNOWN)
            if rule != SENTENCEPIECE:
                scratch.dropped[dropped] = key
                dropped += 1
            continue
        for x in range(dropped):
            size = push(heap, size, scratch.dropped[x])
        dropped = 0
        if valid:
            size = apply(merges, scratch, n, size, i)
    at = append_symbols(scratch, n, out, at)
    return at, trials, state


@njit(cache=True, nogil=True)
def _dry_run(dropout, begin, end, kept):
    """Merge text[begin:end] into ``scratch.ids``, dropping only the merge after ``kept`` others.

    Returns the number of ids and of trials; -1 ids where a symbol is missing.
    """
    dropout = borrow_dropout(dropout)
    scratch = dropout.scratch
    n = symbols_of(
        dropout.trie, dropout.merges, dropout.text, begin, end, scratch.token, scratch.rank
    )
    if n < 0:
        return np.int64(-1), np.int64(0)
    size, trials, _ = _merge(dropout, n, kept, np.int64(_NEVER), np.uint64(0), scratch.ids, 0)
    return np.int64(size), np.int64(trials)


@njit(cache=True, nogil=True)
def _count_trials(dropout, begin, end, token):
    """Count the trials of a token, text[begin:end], and cache them; see ``Merges.trials``."""
    size, trials = _dry_run(dropout, begin, end, np.int64(_NEVER))
    if size != 1 or dropout.scratch.ids[0] != token or trials > MOST_TRIALS:
        trials = np.int64(-2)
    dropout.merges.trials[token] = trials
    return trials


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True, inline="always")
def _copy_outcome(outcomes, token, k, out, at):
    """Append the ids of an outcome; returns how many, or 0 while another thread is writing it.

    ``outcomes``: int32 [ids, FIRST, CELLS], ``Merges.outcomes``, where the outcome of merge ``k``
    of ``token`` is cached. ``out``: int32, with space for an id for each byte of the token from
    ``at`` on.
    """
    y = 1
    while outcomes[token, k, y] > 0:
        out[at + y - 1] = outcomes[token, k, y] - 1
        y += 1
    return y - 1 if outcomes[token, k, y] < 0 else 0


@njit(cache=True, nogil=True, inline="always")
def _draw_pre_token(dropout, begin, end, token, state, out, at):
    """Append one draw of the pre-token text[begin:end]; returns the end and the state.

    ``token`` is the canonical token that is exactly this pre-token, or -1. ``out``: int32, with
    space for end - begin ids from ``at`` on. The end is -1 where there is no symbol for a byte.
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
    if dropout.rule == PROVILKOV and end - begin >= dropout.by_blocks:
        return merge_by_blocks(dropout, begin, end, kept, kept_after, state, out, at)
    token_, rank = dropout.scratch.token, dropout.scratch.rank
    n = symbols_of(dropout.trie, merges, dropout.text, begin, end, token_, rank)
    if n < 0:
        return np.int64(-1), state
    at, _, state = _merge(dropout, n, kept, kept_after, state, out, at)
    return at, state


@njit(cache=True, nogil=True)
def _draw_texts(dropout, pre_tokens, batch, rows):
    """Draw all texts of ``batch``, whose pre-tokens are ``pre_tokens``, into ``rows``.

    Returns as :func:`draw_bpe_dropout`. Does not own the memory of ``dropout``.
    """
    dropout, batch, rows = borrow_dropout(dropout), borrow_batch(batch), borrow_rows(rows)
    first, ends = borrow(pre_tokens.first), borrow(pre_tokens.end)
    tokens, added, out = borrow(pre_tokens.token), borrow(pre_tokens.added), rows.ids
    at = np.int64(0)
    for t in range(len(batch.keys)):
        for d in range(batch.draws):
            state = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
            end = batch.offsets[t]
            for x in range(first[t], first[t + 1]):
                begin, end = end, ends[x]
                if tokens[x] == TO_MERGE:
                    size, _ = _dry_run(dropout, begin, end, np.int64(_NEVER))
                    tokens[x] = dropout.scratch.ids[0] if size == 1 else -1
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


@njit(cache=True, nogil=True)
def draw_bpe_dropout(trie, merges, pre_tokens, batch, p, rule, by_blocks, rows):
    """Draw all texts of a batch, which are bytes; returns their number.

    Or the first text with a byte for which there is no symbol. ``trie``: the tokens that
    characters are looked up in. ``pre_tokens``: those of the batch's texts; they cover each text.
    ``p``: float64, in (0, 1]. ``rule``: PROVILKOV, HF or SENTENCEPIECE. ``by_blocks``: int,
    the bytes from which on a pre-token is merged by blocks, which changes no draw. ``rows``:
    `batch.Rows` with a place for every byte and draw.
    """
    log_keep = np.log1p(-p)
    keep = np.empty(MOST_TRIALS + 1)
    for x in range(MOST_TRIALS + 1):
        keep[x] = np.exp(x * log_keep) if x else 1.0
    n = np.int64(1)
    begin = np.int64(0)
    for x in range(len(pre_tokens.end)):
        n = max(n, pre_tokens.end[x] - begin)
        begin = pre_tokens.end[x]
    scratch = Scratch(
        np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32),
        np.empty(3 * n, np.int64), np.empty(3 * n, np.int64), np.empty(n, np.int32),
    )  # fmt: skip
    dropout = Dropout(trie, merges, batch.values, rule, log_keep, keep, scratch, by_blocks)
    return _draw_texts(dropout, pre_tokens, batch, rows)
