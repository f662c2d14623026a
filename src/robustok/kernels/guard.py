"""Id sequences cut into runs, each looked up in a table of the runs that were judged before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.jit import njit
from robustok.kernels.memory import borrow

_PRIME = np.uint64(0x100000001B3)
_MIX = np.uint64(0x9E3779B97F4A7C15)
FIXED = -1  # the run is one id that stays as it is
BAD = -2  # the run is one id that the vocabulary does not have


class Runs(NamedTuple):
    """An open hash table: entry e is the run ``ids[start[e]:start[e + 1]]``."""

    slots: np.ndarray  # int32 [power of two]: entry, or -1
    start: np.ndarray  # int64 [room for entries + 1]
    ids: np.ndarray  # int32 [room for ids]
    stands: np.ndarray  # bool [room for ids]: whether the canonical run has this token here


@njit(cache=True, nogil=True)
def spell(values, offsets, ordinary, token_bytes, token_offsets, out, row_at):
    """The bytes of all rows: a 0 for an id that is no text, and one after each row."""
    values, out, ordinary = borrow(values), borrow(out), borrow(ordinary)
    token_bytes, token_offsets = borrow(token_bytes), borrow(token_offsets)
    at = np.int64(0)
    for row in range(len(offsets) - 1):
        row_at[row] = at
        for i in range(offsets[row], offsets[row + 1]):
            t = values[i]
            if t < 0 or not ordinary[t]:
                out[at] = 0
                at += 1
                continue
            for p in range(token_offsets[t], token_offsets[t + 1]):
                out[at] = token_bytes[p]
                at += 1
        out[at] = 0
        at += 1
    row_at[-1] = at


@njit(cache=True, nogil=True)
def find_runs(values, offsets, whole, ordinary, first, last, cut, runs, entries, out):
    """Write where each run begins and its entry to ``out``; returns how many, and of entries.

    A run that is not in the table is added to it, to be judged by the caller. Rows marked
    ``whole`` are cut at fixed ids only.
    """
    values, offsets, whole = borrow(values), borrow(offsets), borrow(whole)
    first, last, ordinary = borrow(first), borrow(last), borrow(ordinary)
    count = np.int64(0)
    for row in range(len(offsets) - 1):
        i, end = offsets[row], offsets[row + 1]
        while i < end:
            t = values[i]
            begin = i
            i += 1
            if t < 0 or not ordinary[t]:
                out[count, 0] = begin
                out[count, 1] = BAD if t < 0 else FIXED
                count += 1
                continue
            key = (np.uint64(t) + _MIX) * _PRIME
            while i < end:
                u = values[i]
                if u < 0 or not ordinary[u] or (not whole[row] and cut[last[t], first[u]]):
                    break
                key = (key ^ np.uint64(u)) * _PRIME
                t = u
                i += 1
            found = _look_up(runs, key, values, begin, i, entries)
            if found == entries:
                entries += 1
            out[count, 0] = begin
            out[count, 1] = found
            count += 1
    return count, entries


@njit(cache=True, nogil=True)
def _look_up(runs, key, values, begin, end, entries):
    """The entry of a run; a new one is written at ``entries``."""
    slots, start, ids = borrow(runs.slots), borrow(runs.start), borrow(runs.ids)
    mask = len(slots) - 1
    s = np.int64((key * _MIX) >> np.uint64(20)) & mask
    while slots[s] >= 0:
        e = slots[s]
        if start[e + 1] - start[e] == end - begin:
            same = True
            for j in range(end - begin):
                if ids[start[e] + j] != values[begin + j]:
                    same = False
                    break
            if same:
                return np.int64(e)
        s = (s + 1) & mask
    slots[s] = entries
    at = start[entries]
    for j in range(end - begin):
        ids[at + j] = values[begin + j]
    start[entries + 1] = at + end - begin
    return np.int64(entries)


@njit(cache=True, nogil=True)
def judge(runs, begin, token_offsets, canonical, offsets, changed, stands, found, distance, splits):
    """Compare entries from ``begin`` on with their canonical ids; fills what is known of each.

    ``stands`` is of the canonical ids. Where they spell another text (``changed``) nothing stands.
    """
    start, ids, mine = borrow(runs.start), borrow(runs.ids), borrow(runs.stands)
    token_offsets, canonical, stands = borrow(token_offsets), borrow(canonical), borrow(stands)
    for x in range(len(offsets) - 1):
        e = begin + x
        distance[e], splits[e], found[e] = 0, 0, False
        if changed[x]:
            mine[start[e] : start[e + 1]] = False
            distance[e] = start[e + 1] - start[e]
            found[e] = True
            continue
        a = offsets[x]
        a_at, b_at, last = np.int64(0), np.int64(0), np.int64(0)
        for b in range(start[e], start[e + 1]):
            since = b_at
            b_at += token_offsets[ids[b] + 1] - token_offsets[ids[b]]
            while a_at < b_at:
                last = a_at
                a_at += token_offsets[canonical[a] + 1] - token_offsets[canonical[a]]
                a += 1
            mine[b] = a_at == b_at and last == since and canonical[a - 1] == ids[b]
            if mine[b]:
                stands[a - 1] = True
            else:
                distance[e] += 1
            splits[e] += a_at != b_at


@njit(cache=True, nogil=True)
def add_up(found, offsets, distance, splits, row_distance, row_splits):
    """Sum what is known of the runs over each row; an id that is none counts as one token off."""
    row = np.int64(0)
    for x in range(len(found)):
        while found[x, 0] >= offsets[row + 1]:
            row += 1
        e = found[x, 1]
        if e >= 0:
            row_distance[row] += distance[e]
            row_splits[row] += splits[e]
        elif e == BAD:
            row_distance[row] += 1


@njit(cache=True, nogil=True)
def mark(found, runs, total, out):
    """0 for an id that stands, 1 for one that deviates, 2 for a fixed and 3 for an unknown one."""
    start, stands, out = borrow(runs.start), borrow(runs.stands), borrow(out)
    for x in range(len(found)):
        begin = found[x, 0]
        end = found[x + 1, 0] if x + 1 < len(found) else total
        e = found[x, 1]
        for j in range(end - begin):
            if e >= 0:
                out[begin + j] = 0 if stands[start[e] + j] else 1
            else:
                out[begin + j] = 2 if e == FIXED else 3


@njit(cache=True, nogil=True)
def repair(found, values, offsets, canonical, starts, stands, out, out_stands, out_offsets):
    """Write every row with its runs in canonical form; ids that are none are left out."""
    canonical, starts, stands = borrow(canonical), borrow(starts), borrow(stands)
    out, out_stands = borrow(out), borrow(out_stands)
    at = np.int64(0)
    row = np.int64(0)
    for x in range(len(found)):
        while found[x, 0] >= offsets[row + 1]:
            row += 1
            out_offsets[row] = at
        e = found[x, 1]
        if e >= 0:
            for j in range(starts[e], starts[e + 1]):
                out[at] = canonical[j]
                out_stands[at] = stands[j]
                at += 1
        elif e == FIXED:
            out[at] = values[found[x, 0]]
            out_stands[at] = True
            at += 1
    out_offsets[row + 1 :] = at


@njit(cache=True, nogil=True)
def repaired_size(found, starts):
    """How many ids :func:`repair` writes."""
    size = np.int64(0)
    for x in range(len(found)):
        e = found[x, 1]
        size += starts[e + 1] - starts[e] if e >= 0 else e == FIXED
    return size
