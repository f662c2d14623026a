"""The lattice of one word, ready to draw from, kept by content because words repeat.

Tokenizations are grouped by grade: nothing (all together), the number of segments, or the distance
from a reference. A word with few of them has them listed, so that a draw is one look-up; any other
has, for every node, the number of ways on to the end by grade, so that a draw walks. Whether a
word was there already changes the time a draw takes and never its result.

A record lies in one piece, since what a draw costs is above all the cache lines it touches:
hash, sizes, stamp and local number of the row that met it last, key, ways by grade, then the list
or the nodes.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

import numpy as np

from robustok.kernels.hashing import hash_key
from robustok.kernels.jit import njit
from robustok.kernels.memory import borrow
from robustok.kernels.random import uniform
from robustok.kernels.trie import child

ALL, SEGMENTS, DISTANCE = 0, 1, 2
NO_ROOM = -1  # the store is full
NOT_DRAWN = -3  # too rare or too large to be drawn
NO_PATH = -2  # the vocabulary has no tokenization of the bytes: nothing may be drawn from a record
LISTED = 32  # tokenizations; more than these are walked
_SINGLE = 1 << 18  # ids that are looked up without a hash: a vocabulary of today, and no more
HEAD = 4  # 8-byte words of a record before its key
_BITS = np.uint64(40)
_OFFSET = np.int64((1 << 40) - 1)


class Store(NamedTuple):
    """Records in one buffer, seen as 8-byte integers and floats, as int32 and as bytes."""

    used: np.ndarray  # int64 [4]: words filled, records, stamps given, random seed of the hash
    slots: np.ndarray  # int64: hash tag and record position + 1, or 0
    single: np.ndarray  # int64 [_SINGLE]: by token id, for words that are one token; or 0
    words: np.ndarray
    floats: np.ndarray
    ints: np.ndarray
    bytes: np.ndarray


def new_store(scale: int = 1) -> Store:
    """An empty store; memory not yet touched costs nothing, ``scale`` is for rows that fill it."""
    words = np.empty(scale << 22, np.int64)
    views = (words, words.view(np.float64), words.view(np.int32), words.view(np.uint8))
    # Read at every look-up, so on cache lines of its own: beside a small array that another thread
    # writes to, it made both threads together as slow as one.
    used = np.zeros(8 + 4 + 8, np.int64)[8:12]
    # Random, so that no text can be made whose keys collide. No draw depends on it.
    used[3] = secrets.randbits(63)
    return Store(used, np.zeros(scale << 18, np.int64), np.zeros(_SINGLE, np.int64), *views)


@njit(cache=True, nogil=True)
def borrow_store(store):
    """The same store, uncounted."""
    return Store(
        borrow(store.used), borrow(store.slots), borrow(store.single), borrow(store.words),
        borrow(store.floats), borrow(store.ints), borrow(store.bytes),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def clear(store):
    store.used[0] = 0
    store.used[1] = 0
    store.slots[:] = 0
    store.single[:] = 0


@njit(cache=True, nogil=True, inline="always")
def grades_of(store, record):
    """The largest grade that has a way."""
    return (store.words[record + 1] >> 32) & 0xFFFF


@njit(cache=True, nogil=True, inline="always")
def is_listed(store, record):
    """Whether a draw is one look-up."""
    return (store.words[record + 1] >> 48) & 1 != 0


@njit(cache=True, nogil=True, inline="always")
def ways_of(store, record):
    """Where in ``floats`` the numbers of ways by grade lie."""
    return record + HEAD + (store.words[record + 1] & 0xFFFF)


@njit(cache=True, nogil=True, inline="always")
def _row(i, n, grades):
    """Numbers before those of node i: from it on no more grades are left than bytes."""
    late = max(i - (n - grades), 0)
    return i * (grades + 1) - late * (late - 1) // 2


@njit(cache=True, nogil=True, inline="always")
def _same_key(store, record, mode, key, start, end):
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
    """The record of a word that is there, or -1.

    ``key`` is what tells words apart: their bytes under ALL, the one token id under SEGMENTS, the
    reference ids under DISTANCE.
    """
    if mode != ALL and key_end - key_start == 1 and key[key_start] < _SINGLE:
        return store.single[key[key_start]] - 1
    mask = len(store.slots) - 1
    h = hash_key(store.used[3], key, key_start, key_end)
    tag = np.int64((h >> _BITS) << _BITS)
    slot = np.int64(h) & mask
    size = key_end - key_start
    record = np.int64(-1)
    while store.slots[slot] != 0:
        found = store.slots[slot]
        if (found & ~_OFFSET) == tag:
            there = (found & _OFFSET) - 1
            if store.words[there] == size and _same_key(
                store, there, mode, key, key_start, key_end
            ):
                record = there
                break
        slot = (slot + 1) & mask
    return record


@njit(cache=True, nogil=True)
def insert(store, trie, mode, key, key_start, key_end, text, start, end, token_offsets):
    """The record of a word that was not there; NO_ROOM, or NO_PATH.

    ``text[start:end]`` are the word's bytes.
    """
    if 2 * store.used[1] >= len(store.slots):
        return np.int64(NO_ROOM)
    record = _build(store, trie, mode, key, key_start, key_end, text, start, end, token_offsets)
    if record >= 0 and mode != ALL and key_end - key_start == 1 and key[key_start] < _SINGLE:
        store.single[key[key_start]] = record + 1
    elif record >= 0:
        add_slot(store, key, key_start, key_end, record)
    return record


@njit(cache=True, nogil=True)
def add_slot(store, key, key_start, key_end, record):
    """Enter a new record in the hash table, where :func:`find` finds it under its key.

    At least half of the slots are free before.
    """
    mask = len(store.slots) - 1
    h = hash_key(store.used[3], key, key_start, key_end)
    slot = np.int64(h) & mask
    while store.slots[slot] != 0:
        slot = (slot + 1) & mask
    store.slots[slot] = np.int64((h >> _BITS) << _BITS) | (record + 1)


@njit(cache=True, nogil=True, inline="always")
def lookup(store, trie, mode, key, key_start, key_end, text, start, end, token_offsets):
    """The record of a word, made if new; NO_ROOM, or NO_PATH."""
    record = find(store, mode, key, key_start, key_end)
    if record < 0:
        record = insert(store, trie, mode, key, key_start, key_end, text, start, end, token_offsets)
    return record


@njit(cache=True, nogil=True)
def _edges(trie, text, start, end):
    """first[i]:first[i + 1] are the tokens from byte i on: packed token << 32 | length * 2."""
    n = end - start
    first = np.zeros(n + 1, np.int32)
    packed = np.empty(max(64, n * 4), np.int64)
    count = 0
    for p in range(start, end):
        first[p - start] = count
        node = np.int32(0)
        for q in range(p, end):
            node = child(trie, node, text[q])
            if node < 0:
                break
            if trie.token[node] >= 0:
                if count == len(packed):
                    more = np.empty(2 * count, np.int64)
                    more[:count] = packed
                    packed = more
                packed[count] = (np.int64(trie.token[node]) << 32) | ((q + 1 - p) * 2)
                count += 1
    first[n] = count
    return first, packed


@njit(cache=True, nogil=True)
def _mark_costs(first, packed, mode, ids, id_start, id_end, token_offsets):
    """Cost 1 for every edge under SEGMENTS; under DISTANCE for those not in the reference.

    Where the reference holds a twin id (same bytes, another id than the ordinary one), its edge
    takes the twin's place, so that the reference is a path.
    """
    if mode == SEGMENTS:
        for e in range(first[-1]):
            packed[e] |= 1
    elif mode == DISTANCE:
        node = 0
        for r in range(id_start, id_end):
            t = np.int64(ids[r])
            span = token_offsets[t + 1] - token_offsets[t]
            for n in range(node, node + span):
                for e in range(first[n], first[n + 1]):
                    if n == node and (packed[e] & 0xFFFFFFFF) >> 1 == span:
                        packed[e] = (t << 32) | (span * 2)
                    else:
                        packed[e] |= 1
            node += span


@njit(cache=True, nogil=True)
def _count_ways(first, packed, grades):
    """ways[i, g]: paths from byte i to the end of grade g."""
    n = len(first) - 1
    ways = np.zeros((n + 1, grades + 1))
    ways[n, 0] = 1.0
    for i in range(n - 1, -1, -1):
        for e in range(first[i], first[i + 1]):
            cost = packed[e] & 1
            j = i + ((packed[e] & 0xFFFFFFFF) >> 1)
            for g in range(cost, min(grades, n - j + cost) + 1):
                ways[i, g] += ways[j, g - cost]
    return ways


@njit(cache=True, nogil=True)
def _list_paths(store, first, packed, grades, strides, body):
    """Write every path as (its length, its tokens) into the group of its grade."""
    n = len(first) - 1
    group = np.empty(grades + 1, np.int64)
    for g in range(grades + 1):
        group[g] = store.words[body + g] >> 16
    edge = np.empty(n + 1, np.int64)  # the edge taken at each depth of the walk
    node = np.empty(n + 1, np.int64)
    grade = np.zeros(n + 1, np.int64)
    depth = 0
    node[0] = 0
    edge[0] = first[0]
    while depth >= 0:
        if edge[depth] == first[node[depth] + 1]:
            depth -= 1
            if depth >= 0:
                edge[depth] += 1
            continue
        step = packed[edge[depth]] & 0xFFFFFFFF
        here = node[depth] + (step >> 1)
        if here < n:
            grade[depth + 1] = grade[depth] + (step & 1)
            node[depth + 1] = here
            edge[depth + 1] = first[here]
            depth += 1
            continue
        g = grade[depth] + (step & 1)
        at = group[g]
        store.ints[at] = depth + 1
        for x in range(depth + 1):
            store.ints[at + 1 + x] = packed[edge[x]] >> 32
        group[g] += strides[g]
        edge[depth] += 1


@njit(cache=True, nogil=True)
def _build(store, trie, mode, key, key_start, key_end, text, start, end, token_offsets):
    """A new record; NO_ROOM, or NO_PATH: every record has a path, on which `draw` relies."""
    n = end - start
    size = key_end - key_start
    first, packed = _edges(trie, text, start, end)
    _mark_costs(first, packed, mode, key, key_start, key_end, token_offsets)
    most = 0 if mode == ALL else n
    ways = _count_ways(first, packed, most)
    grades = most
    while grades > 0 and ways[0, grades] == 0.0:
        grades -= 1
    total = ways[0].sum()
    if total == 0.0:
        return np.int64(NO_PATH)
    listed, short = total <= LISTED, total < 2**31
    key_words = (size + 7) // 8 if mode == ALL else (size + 1) // 2
    record = store.used[0]
    body = record + HEAD + key_words + grades + 1
    strides = np.empty(grades + 1, np.int64)
    if listed:
        ints = (body + grades + 1) * 2
        for g in range(grades + 1):
            strides[g] = 1 + (min(n, g + size) if mode == DISTANCE else (g if mode else n))
            ints += np.int64(ways[0, g]) * strides[g]
        after = (ints + 1) // 2
    else:
        numbers = _row(n, n, grades) + 1
        after = body + (n + 2) // 2 + first[n] + ((numbers + 1) // 2 if short else numbers)
    if after > len(store.words):
        return np.int64(NO_ROOM)

    store.words[record] = size
    kind = np.int64(listed) | np.int64(short) << 1
    store.words[record + 1] = key_words | (n << 16) | (grades << 32) | (kind << 48)
    store.words[record + 2] = -1
    for p in range(size):
        if mode == ALL:
            store.bytes[(record + HEAD) * 8 + p] = key[key_start + p]
        else:
            store.ints[(record + HEAD) * 2 + p] = key[key_start + p]
    for g in range(grades + 1):
        store.floats[body - grades - 1 + g] = ways[0, g]
    if listed:
        ints = (body + grades + 1) * 2
        for g in range(grades + 1):
            store.words[body + g] = (ints << 16) | strides[g]
            ints += np.int64(ways[0, g]) * strides[g]
        _list_paths(store, first, packed, grades, strides, body)
    else:
        for i in range(n + 1):
            store.ints[body * 2 + i] = first[i]
        edges = body + (n + 2) // 2
        for e in range(first[n]):
            store.words[edges + e] = packed[e]
        at = edges + first[n]
        for i in range(n + 1):
            row = _row(i, n, grades)
            for g in range(min(grades, n - i) + 1):
                if short:
                    store.ints[2 * at + row + g] = np.int32(ways[i, g])
                else:
                    store.floats[at + row + g] = ways[i, g]
    store.used[0] = after
    store.used[1] += 1
    return record


@njit(cache=True, nogil=True, inline="always")
def _ways(store, short, numbers, at):
    """The number of ways at a place of a record's numbers, which are int32 where they fit."""
    return np.float64(store.ints[2 * numbers + at]) if short else store.floats[numbers + at]


@njit(cache=True, nogil=True, inline="always")
def draw(store, record, grade, state, out, at):
    """Append a uniform path of exactly this grade to ``out``; returns the end and the state.

    The record must have a way of this grade (``ways_of``): only then do the list and the nodes
    that are read belong to the record, and ``out`` needs no more room than the word has bytes.
    """
    sizes = store.words[record + 1]
    grades = (sizes >> 32) & 0xFFFF
    body = record + HEAD + (sizes & 0xFFFF) + grades + 1
    if (sizes >> 48) & 1:
        group = store.words[body + grade]
        ways = store.floats[body - grades - 1 + grade]
        source = group >> 16
        if ways > 1.0:
            u, state = uniform(state)
            source += min(np.int64(u * ways), np.int64(ways) - 1) * (group & 0xFFFF)
        for x in range(1, store.ints[source] + 1):
            out[at] = store.ints[source + x]
            at += 1
        return at, state
    n = (sizes >> 16) & 0xFFFF
    edges = body + (n + 2) // 2
    short = sizes >> 49
    numbers = edges + store.ints[body * 2 + n]
    i = np.int64(0)
    g = np.int64(grade)
    while i < n:
        u, state = uniform(state)
        left = u * _ways(store, short, numbers, _row(i, n, grades) + g)
        chosen = np.int64(-1)
        for e in range(edges + store.ints[body * 2 + i], edges + store.ints[body * 2 + i + 1]):
            step = store.words[e] & 0xFFFFFFFF
            cost = step & 1
            j = i + (step >> 1)
            if cost > g or g - cost > n - j:
                continue
            ways = _ways(store, short, numbers, _row(j, n, grades) + g - cost)
            if ways > 0.0:
                chosen = e
                left -= ways
                if left < 0.0:
                    break
        edge = store.words[chosen]
        out[at] = edge >> 32
        at += 1
        i += (edge & 0xFFFFFFFF) >> 1
        g -= edge & 1
    return at, state
