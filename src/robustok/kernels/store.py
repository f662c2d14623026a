"""A store of records (`kernels.record`) of single blocks, kept by content because blocks repeat.

Whether a block is already in the store changes the time of a draw and never its result.

Arguments of one meaning in this module: ``mode``: ALL, SEGMENTS, DISTANCE or SPLITS of `record`,
the degree that records are grouped by. ``key``: the bytes of the block under ALL (uint8 [bytes]),
else its reference ids (int32 [ids]).
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

import numpy as np

from robustok.kernels.arrays import copy_to, hash_key
from robustok.kernels.compiler.jit import njit
from robustok.kernels.lattice import edges_of, mark_boundaries, mark_reference
from robustok.kernels.record import (
    ALL,
    DISTANCE,
    HEAD,
    LISTED,
    SEGMENTS,
    SPLITS,
    body_of,
    pack_header,
    row_of,
    write_list,
    write_nodes,
)

NO_ROOM = -1  # the store is full
NO_PATH = -2  # the vocabulary has no tokenization of the bytes: nothing may be drawn from a record
NOT_DRAWN = -3  # too rare or too large to be drawn
RARE = -4  # the text needs code that the compiled kernel leaves out
_SINGLE = 1 << 18  # ids that are looked up without a hash: a vocabulary of today, and no more
_BITS = np.uint64(36)
_OFFSET = np.int64((1 << 36) - 1)


class Store(NamedTuple):
    """Records in one buffer, with views of it as float64, int32 and uint8.

    Invariant: a record is written only where it fits, and read only at positions that `find` or
    `insert` returned since the store was cleared.
    """

    used: np.ndarray  # int64 [4]: words in use, records, stamps given, random seed of the hash
    slots: np.ndarray  # int64 [power of two]: hash tag (28 bits) and record position + 1, or 0
    single: np.ndarray  # int64 [_SINGLE]: record position + 1 by token id, for keys of one id; or 0
    words: np.ndarray  # int64: the buffer
    floats: np.ndarray  # float64: the same memory
    ints: np.ndarray  # int32: the same memory
    bytes: np.ndarray  # uint8: the same memory


def new_store(scale: int = 1) -> Store:
    """An empty store of 36 MB times ``scale``; the system provides memory as it is touched."""
    words = np.empty(scale << 22, np.int64)
    views = (words, words.view(np.float64), words.view(np.int32), words.view(np.uint8))
    # Padded to cache lines of its own to avoid false sharing with arrays of other threads.
    used = np.zeros(8 + 4 + 8, np.int64)[8:12]
    # Random, so that nobody can choose texts whose keys collide. No draw depends on it.
    used[3] = secrets.randbits(63)
    return Store(used, np.zeros(scale << 18, np.int64), np.zeros(_SINGLE, np.int64), *views)


@njit(cache=True, nogil=True)
def clear(store):
    """Remove all records; positions of records are not valid any more."""
    store.used[0] = 0
    store.used[1] = 0
    store.slots[:] = 0
    store.single[:] = 0


@njit(cache=True, nogil=True, inline="always")
def _first_slot(entry, mask):
    """The first slot to try for an entry of `Store.slots`, by the low bits of its tag alone.

    So an entry can be moved to a larger table without its key. ``mask``: the number of slots minus
    1; beyond 2**28 slots, only the first ones are tried first.
    """
    return np.int64(np.uint64(entry) >> _BITS) & mask


@njit(cache=True, nogil=True)
def _enter(slots, entry):
    """Write ``entry`` to a free slot of ``slots`` (int64 [power of two]); at least one is free."""
    mask = len(slots) - 1
    slot = _first_slot(entry, mask)
    while slots[slot] != 0:
        slot = (slot + 1) & mask
    slots[slot] = entry


@njit(cache=True, nogil=True)
def copy_records(store, larger):
    """Copy all records of ``store`` to the same positions in ``larger``, an empty store.

    ``larger`` has at least as many slots and words, so everything fits.
    """
    copy_to(store.used, len(store.used), larger.used, 0)
    copy_to(store.single, len(store.single), larger.single, 0)
    copy_to(store.words, store.used[0], larger.words, 0)
    for slot in range(len(store.slots)):
        if store.slots[slot] != 0:
            _enter(larger.slots, store.slots[slot])


@njit(cache=True, nogil=True, inline="always")
def _same_key(store, record, mode, key, start, end):
    """Whether key[start:end], as long as the record's key, is equal to it.

    ``record``: position of a record of this ``mode`` in the store.
    """
    if mode == ALL:
        at = (record + HEAD) * 8
        for p in range(start, end):
            if store.bytes[at + p - start] != key[p]:
                return False
    else:
        at = (record + HEAD) * 2
        for p in range(start, end):
            if store.ints[at + p - start] != key[p]:
                return False
    return True


@njit(cache=True, nogil=True, inline="always")
def find(store, mode, key, key_start, key_end):
    """The position of the record with key ``key[key_start:key_end]``, or -1.

    ``mode``: that of all records of the store. ``key_start``, ``key_end``: indices in ``key``, the
    first one below the second. At least one slot is free, so the search ends.
    """
    if mode != ALL and key_end - key_start == 1 and key[key_start] < _SINGLE:
        return store.single[key[key_start]] - 1
    mask = len(store.slots) - 1
    h = hash_key(store.used[3], key, key_start, key_end)
    tag = np.int64((h >> _BITS) << _BITS)
    slot = _first_slot(tag, mask)
    size = key_end - key_start
    record = np.int64(-1)
    while store.slots[slot] != 0:
        entry = store.slots[slot]
        if (entry & ~_OFFSET) == tag:
            candidate = (entry & _OFFSET) - 1
            if store.words[candidate] == size and _same_key(
                store, candidate, mode, key, key_start, key_end
            ):
                record = candidate
                break
        slot = (slot + 1) & mask
    return record


@njit(cache=True, nogil=True)
def add_slot(store, key, key_start, key_end, record):
    """Enter a new record in the hash table, where `find` finds it under key[key_start:key_end].

    ``record``: its position in the store. At least half of the slots are free before.
    """
    h = hash_key(store.used[3], key, key_start, key_end)
    _enter(store.slots, np.int64((h >> _BITS) << _BITS) | (record + 1))


@njit(cache=True, nogil=True)
def insert(store, tokens, mode, key, text):
    """Build the record of a block that has none; returns its position, NO_ROOM or NO_PATH.

    ``mode``: that of all records of the store. ``key``: the whole key. ``text``: uint8, the block's
    bytes. A store whose slots are half full takes no record, so a slot stays free.
    """
    if 2 * store.used[1] >= len(store.slots):
        return np.int64(NO_ROOM)
    record = _build(store, tokens, mode, key, text)
    if record >= 0 and mode != ALL and len(key) == 1 and key[0] < _SINGLE:
        store.single[key[0]] = record + 1
    elif record >= 0:
        add_slot(store, key, 0, len(key), record)
    return record


@njit(cache=True, nogil=True, inline="always")
def lookup_block(store, tokens, text, start, end):
    """The record (ALL) of the block text[start:end] (uint8), built if new; NO_ROOM or NO_PATH."""
    record = find(store, ALL, text, start, end)
    if record < 0:
        block = text[start:end]
        record = insert(store, tokens, ALL, block, block)
    return record


@njit(cache=True, nogil=True, forceinline=True)
def lookup_token(store, tokens, key):
    """The record (SEGMENTS) of token key[0] (int32 [1]), built if new; NO_ROOM or NO_PATH."""
    record = find(store, SEGMENTS, key, 0, 1)
    if record < 0:
        text = tokens.bytes[tokens.offsets[key[0]] : tokens.offsets[key[0] + 1]]
        record = insert(store, tokens, SEGMENTS, key, text)
    return record


@njit(cache=True, nogil=True)
def priced_edges(tokens, mode, ids, start, end, text, size):
    """The lattice of the text ids[start:end], where the cost of an edge is its degree.

    ``ids``: int32, not read under ALL and SEGMENTS. ``text``: uint8, whose first ``size`` bytes are
    those of the text. ``mode``: what the degree counts.
    """
    edges = edges_of(tokens.trie, text, 0, size)
    if mode == DISTANCE:
        mark_reference(edges, ids, start, end, tokens.offsets)
    elif mode == SPLITS:
        mark_boundaries(edges, ids, start, end, tokens.offsets)
    elif mode == ALL:
        for e in range(len(edges.step)):
            edges.step[e] -= 1
    return edges


@njit(cache=True, nogil=True)
def _count_paths(edges, degrees):
    """[i, g]: the paths from byte i to the end of degree g; float64 [n + 1, degrees + 1].

    ``edges``: those of a block of n bytes. ``degrees``: the largest degree to count.
    """
    n = len(edges.first) - 1
    counts = np.zeros((n + 1, degrees + 1))
    counts[n, 0] = 1.0
    for i in range(n - 1, -1, -1):
        for e in range(edges.first[i], edges.first[i + 1]):
            j, cost = i + (edges.step[e] >> 1), edges.step[e] & 1
            for g in range(cost, min(degrees, n - j + cost) + 1):
                counts[i, g] += counts[j, g - cost]
    return counts


@njit(cache=True, nogil=True)
def _build(store, tokens, mode, key, text):
    """Append a record; returns its position, NO_ROOM, or NO_PATH where there is no tokenization.

    Every record has a path, on which `draw` relies. ``mode`` and ``key`` are those of `insert`.
    ``text``: uint8, the block's bytes. Only a record that fits in the buffer is written.
    """
    n = len(text)
    edges = priced_edges(tokens, mode, key, 0, len(key), text, n)
    degrees = 0 if mode == ALL else n
    counts = _count_paths(edges, degrees)
    while degrees > 0 and counts[0, degrees] == 0.0:
        degrees -= 1
    total = counts[0].sum()
    if total == 0.0:
        return np.int64(NO_PATH)
    listed, short = total <= LISTED, total < 2**31
    key_slots = (len(key) + 7) // 8 if mode == ALL else (len(key) + 1) // 2
    header = pack_header(key_slots, n, degrees, np.int64(listed), np.int64(short))
    record = store.used[0]
    body = body_of(record, header)
    if listed:
        strides = np.empty(degrees + 1, np.int64)  # one int32 more than the longest path
        ints = (body + degrees + 1) * 2
        for g in range(degrees + 1):
            longest = g if mode == SEGMENTS else (n if mode == ALL else min(n, g + len(key)))
            strides[g] = 1 + longest
            ints += np.int64(counts[0, g]) * strides[g]
        end = (ints + 1) // 2
        if end > len(store.words):
            return np.int64(NO_ROOM)
        write_list(store, edges, body, counts, strides)
    else:
        size = row_of(n, n, degrees) + 1
        end = body + (n + 2) // 2 + edges.first[n] + ((size + 1) // 2 if short else size)
        if end > len(store.words):
            return np.int64(NO_ROOM)
        write_nodes(store, edges, body, counts, degrees, short)

    store.words[record] = len(key)
    store.words[record + 1] = header
    store.words[record + 2] = -1
    for p in range(len(key)):
        if mode == ALL:
            store.bytes[(record + HEAD) * 8 + p] = key[p]
        else:
            store.ints[(record + HEAD) * 2 + p] = key[p]
    for g in range(degrees + 1):
        store.floats[body - degrees - 1 + g] = counts[0, g]
    store.used[0] = end
    store.used[1] += 1
    return record
