"""Number byte strings: equal strings get equal numbers, by an open-addressing hash table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.hashing import hash_key
from robustok.kernels.jit import njit
from robustok.kernels.memory import borrow


class Strings(NamedTuple):
    """Distinct byte strings; string e is ``text[start[e]:start[e + 1]]``.

    Invariant: start[0] is 0, and a slot holds -1 or the number of a string that was added. The
    caller of :func:`intern` makes sure that all new strings fit and that at least one slot stays
    free, so that a search ends.
    """

    slots: np.ndarray  # int32 [power of two]: the number of a string, or -1
    start: np.ndarray  # int64 [capacity + 1]
    text: np.ndarray  # uint8 [capacity in bytes]
    seed: np.uint64  # random and secret, see `hashing`


@njit(cache=True, nogil=True)
def intern(strings, count, text, ends, numbers):
    """Write the number of each string in ``text`` to ``numbers``, adding those that are new.

    ``strings``: `Strings`, with space for n more strings and ends[-1] more bytes. ``count`` is the
    number of strings in the table; returns what it is afterwards. ``text``: uint8 [bytes].
    ``ends``: int64 [n], ascending, at most len(text): string x is text[ends[x - 1]:ends[x]], the
    first one from 0. ``numbers``: int32 [n].
    """
    slots, start, kept = borrow(strings.slots), borrow(strings.start), borrow(strings.text)
    text, ends, numbers = borrow(text), borrow(ends), borrow(numbers)
    mask = len(slots) - 1
    begin = np.int64(0)
    for x in range(len(ends)):
        end = ends[x]
        slot = np.int64(hash_key(strings.seed, text, begin, end)) & mask
        e = slots[slot]
        while e >= 0:
            a = start[e]
            if start[e + 1] - a == end - begin:
                p = begin
                while p < end and kept[a + p - begin] == text[p]:
                    p += 1
                if p == end:
                    break
            slot = (slot + 1) & mask
            e = slots[slot]
        if e < 0:
            e = np.int32(count)
            slots[slot] = e
            a = start[e]
            for p in range(begin, end):
                kept[a + p - begin] = text[p]
            start[e + 1] = a + end - begin
            count += 1
        numbers[x] = e
        begin = end
    return count


@njit(cache=True, nogil=True)
def count_ids(numbers, first):
    """How many ids the strings ``numbers`` have together.

    ``numbers``: int32 [n], each below len(first) - 1. ``first``: int64 [strings + 1]: string e has
    first[e + 1] - first[e] ids.
    """
    numbers, first = borrow(numbers), borrow(first)
    total = np.int64(0)
    for x in range(len(numbers)):
        total += first[numbers[x] + 1] - first[numbers[x]]
    return total


@njit(cache=True, nogil=True)
def gather_ids(numbers, first, ids, rows, out, offsets):
    """Write the ids of the strings ``numbers`` one after another, and where each row ends.

    ``numbers``: int32 [n]. ``first``: int64 [strings + 1], and ``ids``: int32: string e has the ids
    ids[first[e]:first[e + 1]]. ``rows``: int64 [rows], ascending, at most n: row r ends before
    string rows[r]. ``out``: int32 [`count_ids`]. ``offsets``: int64 [rows], the end of each row.
    """
    numbers, first, ids = borrow(numbers), borrow(first), borrow(ids)
    rows, out, offsets = borrow(rows), borrow(out), borrow(offsets)
    at = np.int64(0)
    x = np.int64(0)
    for r in range(len(rows)):
        while x < rows[r]:
            for j in range(first[numbers[x]], first[numbers[x] + 1]):
                out[at] = ids[j]
                at += 1
            x += 1
        offsets[r] = at
