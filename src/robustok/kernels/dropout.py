"""BPE-dropout: merges of one pre-token from a heap, each dropped with probability p.

Every merge that comes up is a Bernoulli trial. The number of merges kept before the first dropped
one is geometric, so one uniform number decides it: if it is at least the number of trials that a
token's pre-token takes, the canonical token stays. Otherwise the outcome of dropping only the k-th
merge is cached per token, and a second number decides whether another merge is dropped. Only the
rest, a few percent of all pre-tokens, is merged.

A long pre-token is merged by its blocks, with the same draws as from one queue. A pre-token has one
queue of merges, so which of them are dropped depends on the order of all merges of the pre-token,
which is the whole text where a tokenizer has no pre-tokens. No merge crosses the border of two
blocks of the lattice (`blocks`). Hence, for the rule of Provilkov et al.:

1. Each short block is merged alone, in the order of its own queue. These merges are its *steps*.
2. Sorted by rank and position, the steps of all blocks are in the order of the common queue.
3. The trials go through the sorted steps. A dropped step returns after the next one that is kept,
   so the two change places if they belong to different blocks and nothing else comes between.
4. Where that does not hold, the block becomes *live*: it returns to the moment before the dropped
   step, and its pairs go to a heap, from which merges are taken as without blocks. So do, from the
   beginning, long blocks and those whose steps are not sorted by rank and position.

Arguments of one meaning in this module: ``merges``: `Merges`. ``scratch``: `MergeScratch`, with
space for the symbols of the longest pre-token. ``dropout``: `Dropout`. ``pre_tokens``:
`PreTokens` of the texts of the batch. ``token``: the canonical id of a pre-token, or -1.
``blocks``: `Blocks`. ``steps``: `Steps`. ``out``: int32, with space for an id for each byte of the
pre-token from index ``at`` on: a merge only makes the sequence shorter. ``kept`` merges are kept
before the first dropped one, ``kept_after`` before the second; -1: not drawn yet.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.batch import Batch, Rows
from robustok.kernels.blocks import block_ends
from robustok.kernels.compiler import borrow, njit
from robustok.kernels.merges import (
    CELLS,
    FIRST,
    MOST_TRIALS,
    Merges,
    PreTokens,
    pop,
    push,
    rank_of,
    symbols_of,
)
from robustok.kernels.numbers import stream, uniform
from robustok.kernels.trie import Trie

SHORT = 24  # symbols of the longest block whose best pair is found by a search of all pairs
_NONE = 1 << 30  # more than any rank
_END = _NONE << 32  # more than any key of a step
_NOTHING = -1  # less than any key of a step
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
    """Push the merge of symbol ``i`` with the next one, if there is one; returns the new size.

    ``size``: entries of ``scratch.heap``, which has space for another one (see `MergeScratch`).
    """
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
def next_kept(kept_after, log_keep, state):
    """The number of merges kept before the next dropped one, and the state.

    ``kept_after``: int64, this number, or -1 where it is not drawn yet. ``log_keep``: float64, as
    in `kept_merges`. ``state``: uint64, of the random numbers.
    """
    kept = kept_after
    if kept < 0:
        u, state = uniform(state)
        kept = kept_merges(u, log_keep)
    return kept, state


@njit(inline="always")
def join(merges, scratch, n, i):
    """Merge symbol ``i`` with the next one, and set the ranks of the new pairs.

    ``n``: number of symbols of all blocks. scratch.rank[i] is a merge, so symbol i has a next one
    below n.
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
    if before[i] >= 0:
        b = before[i]
        rank[b] = rank_of(merges, token[b], token[i])


@njit(inline="always")
def apply(merges, scratch, n, size, i):
    """Merge symbol ``i`` with the next one and push the new pairs' merges; returns the heap size.

    ``n``: number of symbols that the pre-token started from. ``size``: entries of
    ``scratch.heap``. scratch.rank[i] is a merge, so symbol i has a next one below n.
    """
    join(merges, scratch, n, i)
    size = push_symbol(merges, scratch, size, i)
    if scratch.before[i] >= 0:
        size = push_symbol(merges, scratch, size, scratch.before[i])
    return size


@njit(inline="always")
def append_symbols(scratch, n, out, at):
    """Append the ids of the symbols that are left of ``n``; returns the end."""
    i = np.int64(0)
    while i < n:
        out[at] = scratch.token[i]
        at += 1
        i = np.int64(scratch.after[i])
    return at


class Blocks(NamedTuple):
    """The blocks of a pre-token; block b has the symbols first[b]:first[b + 1] of the scratch."""

    begin: int  # the first byte of the pre-token in ``dropout.text``
    end: np.ndarray  # int64 [blocks]: end byte of each
    first: np.ndarray  # int64 [blocks + 1]
    live: np.ndarray  # bool [blocks]: its pairs are in the heap, and its steps are void


class Steps(NamedTuple):
    """The merges of blocks that are merged alone; a block has fewer steps than symbols."""

    key: np.ndarray  # int64 [symbols]: rank << 32 | symbol
    other: np.ndarray  # int32 [symbols]: rank of the best other pair of the block then, or _NONE
    block: np.ndarray  # int32 [symbols]


@njit()
def _read_blocks(dropout, blocks, start, stop):
    """Write the symbols of blocks start..stop, not merged; returns their end, or -1.

    -1 where a byte has no symbol. Writes ``blocks.first`` after ``start``, which is set. A block
    has at most as many symbols as bytes, so those of the pre-token fit in the scratch.
    """
    dropout, blocks = borrow(dropout), borrow(blocks)
    scratch = dropout.scratch
    at = blocks.first[start]
    for b in range(start, stop):
        left, right = blocks.begin if b == 0 else blocks.end[b - 1], blocks.end[b]
        n = symbols_of(
            dropout.trie,
            dropout.merges,
            dropout.text,
            left,
            right,
            scratch.token[at:],
            scratch.rank[at:],
        )
        if n < 0:
            return np.int64(-1)
        for i in range(at, at + n):
            scratch.before[i], scratch.after[i] = i - 1, i + 1
        scratch.before[at] = -1
        scratch.rank[at + n - 1] = -1
        at += n
        blocks.first[b + 1] = at
    return np.int64(at)


@njit(inline="always")
def _best_pair(scratch, first, end):
    """The symbol of first..end whose pair has the lowest rank, this rank, and the next one.

    The symbol is -1 where no pair merges, and a rank that does not exist _NONE. ``first``: int64, a
    symbol that is left.
    """
    best, least, other = np.int64(-1), np.int32(_NONE), np.int32(_NONE)
    i = first
    while i < end:
        rank = scratch.rank[i]
        if 0 <= rank < other:
            if rank < least:
                best, least, other = i, rank, least
            else:
                other = rank
        i = np.int64(scratch.after[i])
    return best, least, other


@njit()
def _merge_blocks(dropout, blocks, steps, start, stop, count, until):
    """Merge blocks start..stop up to the step with key ``until`` (int64); returns a count.

    The steps are written after ``count`` others. A block that is too long, or whose steps are not
    in order, becomes live and has no steps.
    """
    dropout, blocks, steps = borrow(dropout), borrow(blocks), borrow(steps)
    scratch, merges = dropout.scratch, dropout.merges
    for b in range(start, stop):
        first, end = blocks.first[b], blocks.first[b + 1]
        count_before, previous = count, np.int64(_NOTHING)
        while end - first > 1:
            best, least, other = _best_pair(scratch, first, end)
            key = (np.int64(least) << 32) | best
            if best < 0 or key >= until:
                break
            if key <= previous or end - first > SHORT:
                blocks.live[b] = True
                count = count_before
                break
            steps.key[count], steps.other[count], steps.block[count] = key, other, b
            count += 1
            previous = key
            join(merges, scratch, end, best)
    return np.int64(count)


@njit()
def _make_live(dropout, blocks, steps, b, count, key, size):
    """Return block ``b`` to the moment before its step ``key``, and push its other pairs.

    ``count``: the number of steps, after which this writes. ``size``: entries of the heap; returns
    the new size. A block is pushed once, and a symbol has one pair, so the heap has space
    (`MergeScratch`).
    """
    dropout, blocks, steps = borrow(dropout), borrow(blocks), borrow(steps)
    scratch = dropout.scratch
    _read_blocks(dropout, blocks, b, b + 1)
    _merge_blocks(dropout, blocks, steps, b, b + 1, count, key)
    blocks.live[b] = True
    i, end = blocks.first[b], blocks.first[b + 1]
    while i < end:
        if (np.int64(scratch.rank[i]) << 32) | i != key:
            size = push_symbol(dropout.merges, scratch, size, i)
        i = np.int64(scratch.after[i])
    return np.int64(size)


@njit()
def _sorted_steps(key, merges):
    """The steps by rank, equal ones as they come: indices of ``key``, int32.

    ``key``: int64 [steps], as `Steps.key`. ``merges``: the number of ranks. Radix sort in two
    passes.
    """
    key = borrow(key)
    bits = 1
    while 1 << (2 * bits) < merges:
        bits += 1
    mask = (1 << bits) - 1
    order, sorted_once = np.empty(len(key), np.int32), np.empty(len(key), np.int32)
    low, high = np.zeros(mask + 2, np.int64), np.zeros(mask + 2, np.int64)
    for x in range(len(key)):
        low[((key[x] >> 32) & mask) + 1] += 1
        high[(key[x] >> (32 + bits)) + 1] += 1
    for d in range(mask + 1):
        low[d + 1] += low[d]
        high[d + 1] += high[d]
    for x in range(len(key)):
        d = (key[x] >> 32) & mask
        sorted_once[low[d]] = x
        low[d] += 1
    for x in sorted_once:
        d = key[x] >> (32 + bits)
        order[high[d]] = x
        high[d] += 1
    return order


@njit(inline="always")
def _skip_void(steps, live, order, t):
    """The first index of ``order`` from ``t`` on whose step is not void; len(order): there is none.

    ``live``: `Blocks.live`; the steps of a live block are void. ``order``: as for `_run_trials`.
    """
    while t < len(order) and live[steps.block[order[t]]]:
        t += 1
    return t


@njit(inline="always")
def _next_merge(scratch, live, steps, order, t, size):
    """The next merge of all blocks: its key, or _END; whether it is on the heap; t and the size.

    It stays where it is: on top of the heap or at ``order[t]``. ``t``: from where on the steps
    remain. ``size``: entries of the heap; those of pairs that are none any more are taken off.
    ``live``, ``order``: as for `_skip_void`.
    """
    t, heap = _skip_void(steps, live, order, t), scratch.heap
    while size > 0 and scratch.rank[heap[0] & 0xFFFFFFFF] != heap[0] >> 32:
        _, size = pop(heap, size)
    key = steps.key[order[t]] if t < len(order) else np.int64(_END)
    on_heap = size > 0 and heap[0] < key
    return heap[0] if on_heap else key, on_heap, t, size


@njit(inline="always")
def _exchange(steps, live, order, t, first_on_heap):
    """Let the dropped step ``order[t]`` change places with the next one; returns its new index.

    -1 where something else comes between: a merge of its own block, or ``first_on_heap`` (int64,
    the key on top of the heap, or _END). ``live``, ``order``: as for `_skip_void`.
    """
    step, later = order[t], _skip_void(steps, live, order, t + 1)
    if later == len(order):
        return np.int64(-1)
    key, block = steps.key[order[later]], steps.block[order[later]]
    if block == steps.block[step] or steps.other[step] <= key >> 32 or first_on_heap <= key:
        return np.int64(-1)
    order[later - 1], order[later] = order[later], step  # what is between them is void
    return later - 1


@njit()
def _run_trials(dropout, blocks, steps, order, size, kept, kept_after, state):
    """Drop and keep the merges of all blocks; returns the state of the random numbers.

    ``order``: int32 [steps], from `_sorted_steps`, changed in place. ``size``: entries of the heap,
    the pairs of live blocks.
    """
    dropout, blocks, steps = borrow(dropout), borrow(blocks), borrow(steps)
    order = borrow(order)
    scratch, heap, live = dropout.scratch, dropout.scratch.heap, blocks.live
    n = blocks.first[len(blocks.end)]
    t, dropped = np.int64(0), np.int64(0)
    while True:
        key, on_heap, t, size = _next_merge(scratch, live, steps, order, t, size)
        if key == _END:
            return state
        kept -= 1
        if kept >= 0:
            if on_heap:
                _, size = pop(heap, size)
                size = apply(dropout.merges, scratch, n, size, key & 0xFFFFFFFF)
            else:
                t += 1
            for x in range(dropped):
                size = push(heap, size, scratch.dropped[x])
            dropped = 0
            continue
        kept, state = next_kept(kept_after, dropout.log_keep, state)
        kept_after = np.int64(_UNKNOWN)
        if on_heap:
            _, size = pop(heap, size)
        else:
            block = steps.block[order[t]]
            first_on_heap = heap[0] if size > 0 else np.int64(_END)
            place = _exchange(steps, live, order, t, first_on_heap) if kept > 0 else np.int64(-1)
            if place >= 0:
                t = place
                continue
            size = _make_live(dropout, blocks, steps, block, len(order), key, size)
        scratch.dropped[dropped] = key
        dropped += 1


@njit()
def merge_by_blocks(dropout, begin, end, kept, kept_after, state, out, at):
    """Append the merged pre-token to ``out``; returns the end, or -1, and the state.

    The pre-token is bytes begin..end of ``dropout.text``; -1 where a byte has no symbol.
    """
    ends = np.empty(end - begin, np.int64)
    count = block_ends(dropout.trie, dropout.text, begin, end, ends)
    blocks = Blocks(begin, ends[:count], np.zeros(count + 1, np.int64), np.zeros(count, np.bool_))
    n = _read_blocks(dropout, blocks, 0, count)
    if n < 0:
        return n, state
    # A block that becomes live writes its steps once more, after the others.
    steps = Steps(
        np.empty(n + SHORT, np.int64), np.empty(n + SHORT, np.int32), np.empty(n + SHORT, np.int32)
    )
    number = _merge_blocks(dropout, blocks, steps, 0, count, 0, np.int64(_END))
    size = np.int64(0)
    for b in range(count):
        if blocks.live[b]:
            size = _make_live(dropout, blocks, steps, b, number, np.int64(_NOTHING), size)
    order = _sorted_steps(steps.key[:number], len(dropout.merges.result))
    state = _run_trials(dropout, blocks, steps, order, size, kept, kept_after, state)
    at = append_symbols(dropout.scratch, n, out, at)
    return at, state


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
            kept, state = next_kept(kept_after, dropout.log_keep, state)
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
    return append_symbols(scratch, n, out, at), trials, state


@njit()
def _dry_run(dropout, begin, end, kept):
    """Merge text[begin:end] into ``scratch.ids``, dropping only the merge after ``kept`` others.

    Returns the number of ids and of trials; -1 ids where a symbol is missing.
    """
    ids = dropout.scratch.ids
    size, trials, _ = _merge(
        dropout, begin, end, kept, np.int64(_NEVER), np.uint64(0), ids, np.int64(0)
    )
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
def _draw_pre_token(dropout, begin, end, token, by_blocks, state, out, at):
    """Append one draw of the pre-token text[begin:end]; returns the end and the state.

    ``by_blocks``: as for `merge_texts`. ``token`` is the canonical token that is exactly this
    pre-token, or -1. The end is -1 where there is no symbol for a byte.
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
    if by_blocks is not None and end - begin >= by_blocks:
        return merge_by_blocks(dropout, begin, end, kept, kept_after, state, out, at)
    at, _, state = _merge(dropout, begin, end, kept, kept_after, state, out, at)
    return at, state


@njit()
def _draw_texts(dropout, pre_tokens, batch, by_blocks, rows):
    """Draw all texts of ``batch``, whose pre-tokens are ``pre_tokens``, into ``rows``.

    ``by_blocks``: as for `merge_texts`, which this returns as. Does not own the memory of
    ``dropout``.
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
                at, state = _draw_pre_token(dropout, begin, end, token, by_blocks, state, out, at)
                if at < 0:
                    return np.int64(t)
            rows.ends[t * batch.draws + d] = at
    return np.int64(len(batch.keys))


@njit()
def merge_texts(trie, merges, pre_tokens, batch, p, rule, by_blocks, rows):
    """Draw all texts of a batch, which are bytes; returns their number.

    Or the first text with a byte for which there is no symbol. ``trie``: the tokens that
    characters are looked up in. ``pre_tokens``: those of the batch's texts; they cover each text.
    ``p``: float64, in (0, 1]. ``rule``: PROVILKOV, HF or SENTENCEPIECE. ``by_blocks``: int,
    the bytes from which on a pre-token is merged by blocks, which changes no draw; None: none is,
    and the code is left out of this kernel. ``rows``: `batch.Rows` with a place for every byte and
    draw.
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
    return _draw_texts(dropout, pre_tokens, batch, by_blocks, rows)


def draw_bpe_dropout(
    trie: Trie,
    merges: Merges,
    pre_tokens: PreTokens,
    batch: Batch,
    p: float,
    rule: int,
    by_blocks: int,
    rows: Rows,
) -> int:
    """Draw all texts of a batch, which are bytes; arguments and result are those of `merge_texts`.

    Where no pre-token is merged by blocks, by a kernel without that code: it takes half the time to
    compile.
    """
    begin, end = batch.offsets[0], batch.offsets[-1]
    blocks = None
    if rule == PROVILKOV and end - begin >= by_blocks:  # else every pre-token is shorter
        longest = np.diff(pre_tokens.end, prepend=begin).max(initial=0)
        blocks = by_blocks if longest >= by_blocks else None
    return merge_texts(trie, merges, pre_tokens, batch, p, rule, blocks, rows)
