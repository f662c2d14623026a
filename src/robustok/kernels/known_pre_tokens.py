"""Pre-tokens looked up in a table of those that were encoded before, and their ids put in a row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.jit import njit
from robustok.kernels.memory import borrow


class Known(NamedTuple):
    """An open hash table: entry e is the pre-token ``text[start[e]:start[e + 1]]``.

    At least one slot is free, so that a search ends. ``seed`` and ``factor`` are random and secret:
    nobody can choose texts whose pre-tokens collide. They decide only where entries are stored.
    """

    slots: np.ndarray  # int32 [power of two]: entry, or -1
    start: np.ndarray  # int64 [room for entries + 1]
    text: np.ndarray  # uint8 [room for bytes]
    seed: np.uint64
    factor: np.uint64  # odd


@njit(cache=True, nogil=True)
def find_pre_tokens(known, entries, text, ends, found):
    """Write the entry of every pre-token to ``found``; returns how many entries there are now.

    A pre-token that is not in the table is added to it, to be encoded by the caller.
    """
    slots, start, kept = borrow(known.slots), borrow(known.start), borrow(known.text)
    text, ends, found = borrow(text), borrow(ends), borrow(found)
    mask = len(slots) - 1
    begin = np.int64(0)
    for x in range(len(ends)):
        end = ends[x]
        key = known.seed
        for p in range(begin, end):
            key = (key ^ np.uint64(text[p])) * known.factor
        s = np.int64(key >> np.uint64(32)) & mask
        e = slots[s]
        while e >= 0:
            a = start[e]
            if start[e + 1] - a == end - begin:
                p = begin
                while p < end and kept[a + p - begin] == text[p]:
                    p += 1
                if p == end:
                    break
            s = (s + 1) & mask
            e = slots[s]
        if e < 0:
            e = np.int32(entries)
            slots[s] = e
            a = start[e]
            for p in range(begin, end):
                kept[a + p - begin] = text[p]
            start[e + 1] = a + end - begin
            entries += 1
        found[x] = e
        begin = end
    return entries


@njit(cache=True, nogil=True)
def count_ids(found, first):
    """How many ids the found entries have together; those of entry e are first[e]:first[e + 1]."""
    found, first = borrow(found), borrow(first)
    total = np.int64(0)
    for x in range(len(found)):
        total += first[found[x] + 1] - first[found[x]]
    return total


@njit(cache=True, nogil=True)
def gather_ids(found, first, ids, rows, out, offsets):
    """Write the ids of all found entries, and where each row ends: row r at pre-token rows[r]."""
    found, first, ids = borrow(found), borrow(first), borrow(ids)
    rows, out, offsets = borrow(rows), borrow(out), borrow(offsets)
    at = np.int64(0)
    x = np.int64(0)
    for r in range(len(rows)):
        while x < rows[r]:
            for j in range(first[found[x]], first[found[x] + 1]):
                out[at] = ids[j]
                at += 1
            x += 1
        offsets[r] = at
