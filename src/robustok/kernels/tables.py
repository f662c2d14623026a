"""Tables of single words to draw from, kept by content because words repeat.

A record has the tokenizations of one word, grouped by degree: all together, by number of segments,
or by distance from a reference. A word with up to LISTED tokenizations has them as a list, so that
a draw is one look-up. Any other word has, for every node of its lattice, the number of paths to the
end by degree, and a draw walks through the nodes. Whether a word is already in the store changes
the time of a draw and never its result.

A record is contiguous, because a draw costs about as many cache misses as it touches cache lines.
In 8-byte slots of ``Store.words``, from position r on:

    r       size of the key: bytes (ALL) or ids (SEGMENTS, DISTANCE)
    r + 1   header, see `_pack_header`
    r + 2   stamp of the text that used the record last (`uniform-k`)
    r + 3   number of the word's type within that text
    r + 4   key: uint8 (ALL) or int32, padded to whole slots
    then    number of tokenizations by degree, float64 [degrees + 1]

    list:   int64 [degrees + 1], where the paths of each degree begin and their stride, see
            `_pack_group`; then the paths in int32: number of ids, ids, padding up to the stride
    nodes:  int32 [n + 1], the first edge of each byte, padded to whole slots; int64 [edges], token
            << 32 | step (`kernels.long.Edges`); the counts of all nodes by degree, node i having
            min(degrees, n - i) + 1 of them (`_row`), in int32 if all are below 2**31, else float64

Only this module reads offsets; others call `degrees_of`, `counts_of`, `paths_of` and so on.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

import numpy as np

from robustok.kernels.hashing import hash_key
from robustok.kernels.jit import njit
from robustok.kernels.long import edges_of, mark_reference
from robustok.kernels.memory import borrow
from robustok.kernels.random import uniform

ALL, SEGMENTS, DISTANCE = 0, 1, 2
NO_ROOM = -1  # the store is full
NO_PATH = -2  # the vocabulary has no tokenization of the bytes: nothing may be drawn from a record
NOT_DRAWN = -3  # too rare or too large to be drawn
LISTED = 32  # tokenizations; words with more are walked
_SINGLE = 1 << 18  # ids that are looked up without a hash: a vocabulary of today, and no more
HEAD = 4  # slots of a record before its key
_BITS = np.uint64(40)
_OFFSET = np.int64((1 << 40) - 1)


class Store(NamedTuple):
    """Records in one buffer, with views of it as float64, int32 and uint8.

    Invariant: a record is written only where it fits, and read only at positions that `find` or
    `insert` returned since the store was cleared.
    """

    used: np.ndarray  # int64 [4]: slots filled, records, stamps given, random seed of the hash
    slots: np.ndarray  # int64 [power of two]: hash tag (24 bits) and record position + 1, or 0
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
def borrow_store(store):
    """The same store without reference counts; see `memory`."""
    return Store(
        borrow(store.used), borrow(store.slots), borrow(store.single), borrow(store.words),
        borrow(store.floats), borrow(store.ints), borrow(store.bytes),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def clear(store):
    """Remove all records; positions of records are not valid any more."""
    store.used[0] = 0
    store.used[1] = 0
    store.slots[:] = 0
    store.single[:] = 0


@njit(cache=True, nogil=True, inline="always")
def _pack_header(key_slots, size, degrees, listed, short):
    """Slots of the key, bytes of the word, largest degree (16 bits each); is it a list; int32?"""
    return key_slots | (size << 16) | (degrees << 32) | (listed << 48) | (short << 49)


@njit(cache=True, nogil=True, inline="always")
def _key_slots(header):
    return header & 0xFFFF


@njit(cache=True, nogil=True, inline="always")
def _size(header):
    return (header >> 16) & 0xFFFF


@njit(cache=True, nogil=True, inline="always")
def _degrees(header):
    return (header >> 32) & 0xFFFF


@njit(cache=True, nogil=True, inline="always")
def _listed(header):
    return (header >> 48) & 1 != 0


@njit(cache=True, nogil=True, inline="always")
def _short(header):
    return (header >> 49) != 0


@njit(cache=True, nogil=True, inline="always")
def _body(record, header):
    """The slot after a record's counts by degree: of its groups, or of its nodes."""
    return record + HEAD + _key_slots(header) + _degrees(header) + 1


@njit(cache=True, nogil=True, inline="always")
def _pack_group(begin, stride):
    """The paths of one degree: index of the first in ``ints``, and int32s from one to the next."""
    return (begin << 16) | stride


@njit(cache=True, nogil=True, inline="always")
def _row(i, n, degrees):
    """The number of counts before those of node i, which has min(degrees, n - i) + 1."""
    late = max(i - (n - degrees), 0)
    return i * (degrees + 1) - late * (late - 1) // 2


@njit(cache=True, nogil=True, inline="always")
def degrees_of(store, record):
    """The largest degree that has a tokenization."""
    return _degrees(store.words[record + 1])


@njit(cache=True, nogil=True, inline="always")
def counts_of(store, record):
    """The index in ``store.floats`` of the number of tokenizations of degree 0."""
    return record + HEAD + _key_slots(store.words[record + 1])


@njit(cache=True, nogil=True, inline="always")
def is_listed(store, record):
    """Whether the record is a list of tokenizations."""
    return _listed(store.words[record + 1])


@njit(cache=True, nogil=True, inline="always")
def paths_of(store, record, degree):
    """The paths of one degree of a list: index of the first in ``store.ints``, and the stride.

    At that index is the number of ids, after it are the ids.
    """
    group = store.words[_body(record, store.words[record + 1]) + degree]
    return group >> 16, group & 0xFFFF


@njit(cache=True, nogil=True, inline="always")
def next_stamp(store):
    """A new stamp for a text, to mark the records that it uses."""
    store.used[2] += 1
    return store.used[2]


@njit(cache=True, nogil=True, inline="always")
def number_of(store, record, stamp):
    """The number that `set_number` gave the record under this stamp, or -1."""
    return store.words[record + 3] if store.words[record + 2] == stamp else np.int64(-1)


@njit(cache=True, nogil=True, inline="always")
def set_number(store, record, stamp, number):
    store.words[record + 2], store.words[record + 3] = stamp, number


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
    """The position of the record with key ``key[key_start:key_end]``, or -1.

    ``key``: the word's bytes under ALL (uint8), its one token id under SEGMENTS (int32), its
    reference ids under DISTANCE (int32).
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
    """Enter a new record in the hash table, where :func:`find` finds it under its key.

    At least half of the slots are free before.
    """
    mask = len(store.slots) - 1
    h = hash_key(store.used[3], key, key_start, key_end)
    slot = np.int64(h) & mask
    while store.slots[slot] != 0:
        slot = (slot + 1) & mask
    store.slots[slot] = np.int64((h >> _BITS) << _BITS) | (record + 1)


@njit(cache=True, nogil=True)
def insert(store, tokens, mode, key, text):
    """Build the record of a word that has none; returns its position, NO_ROOM or NO_PATH.

    ``key`` is the whole key as for `find`. ``text``: uint8, the word's bytes.
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
def lookup_word(store, tokens, text, start, end):
    """The record (ALL) of the word text[start:end] (uint8), built if new; NO_ROOM or NO_PATH."""
    record = find(store, ALL, text, start, end)
    if record < 0:
        word = text[start:end]
        record = insert(store, tokens, ALL, word, word)
    return record


@njit(cache=True, nogil=True, inline="always")
def lookup_token(store, tokens, key):
    """The record (SEGMENTS) of token key[0] (int32 [1]), built if new; NO_ROOM or NO_PATH."""
    record = find(store, SEGMENTS, key, 0, 1)
    if record < 0:
        text = tokens.bytes[tokens.offsets[key[0]] : tokens.offsets[key[0] + 1]]
        record = insert(store, tokens, SEGMENTS, key, text)
    return record


@njit(cache=True, nogil=True)
def _word_edges(tokens, mode, key, text):
    """The lattice of a word, where the cost of an edge is its degree."""
    edges = edges_of(tokens.trie, text, 0, len(text))
    if mode == DISTANCE:
        mark_reference(edges, key, 0, len(key), tokens.offsets)
    elif mode == ALL:
        for e in range(len(edges.step)):
            edges.step[e] -= 1
    return edges


@njit(cache=True, nogil=True)
def _count_paths(edges, degrees):
    """[i, g]: the paths from byte i to the end of degree g; float64 [n + 1, degrees + 1]."""
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
    """Append a record; NO_ROOM, or NO_PATH: every record has a path, on which `draw` relies."""
    n = len(text)
    edges = _word_edges(tokens, mode, key, text)
    degrees = 0 if mode == ALL else n
    counts = _count_paths(edges, degrees)
    while degrees > 0 and counts[0, degrees] == 0.0:
        degrees -= 1
    total = counts[0].sum()
    if total == 0.0:
        return np.int64(NO_PATH)
    listed, short = total <= LISTED, total < 2**31
    key_slots = (len(key) + 7) // 8 if mode == ALL else (len(key) + 1) // 2
    header = _pack_header(key_slots, n, degrees, np.int64(listed), np.int64(short))
    record = store.used[0]
    body = _body(record, header)
    if listed:
        strides = np.empty(degrees + 1, np.int64)  # one int32 more than the longest path
        ints = (body + degrees + 1) * 2
        for g in range(degrees + 1):
            longest = min(n, g + len(key)) if mode == DISTANCE else (g if mode == SEGMENTS else n)
            strides[g] = 1 + longest
            ints += np.int64(counts[0, g]) * strides[g]
        end = (ints + 1) // 2
        if end > len(store.words):
            return np.int64(NO_ROOM)
        _write_list(store, edges, body, counts[0], strides)
    else:
        size = _row(n, n, degrees) + 1
        end = body + (n + 2) // 2 + edges.first[n] + ((size + 1) // 2 if short else size)
        if end > len(store.words):
            return np.int64(NO_ROOM)
        _write_nodes(store, edges, body, counts, degrees, short)

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


@njit(cache=True, nogil=True)
def _write_list(store, edges, body, counts, strides):
    """Write the groups and all paths of a list, by depth-first search.

    ``counts``: float64 [degrees + 1], the paths of each degree. ``strides``: int64 [degrees + 1].
    Every step is at least a byte, so a path has at most n ids.
    """
    first, token, step = edges.first, edges.token, edges.step
    n = len(first) - 1
    group = np.empty(len(strides), np.int64)  # index in ints of the next path of each degree
    ints = (body + len(strides)) * 2
    for g in range(len(strides)):
        group[g] = ints
        store.words[body + g] = _pack_group(ints, strides[g])
        ints += np.int64(counts[g]) * strides[g]
    edge = np.empty(n + 1, np.int64)  # by depth: the edge taken, its node, the degree before it
    node = np.empty(n + 1, np.int64)
    degree = np.zeros(n + 1, np.int64)
    depth = 0
    node[0] = 0
    edge[0] = first[0]
    while depth >= 0:
        if edge[depth] == first[node[depth] + 1]:
            depth -= 1
            if depth >= 0:
                edge[depth] += 1
            continue
        e = edge[depth]
        end, g = node[depth] + (step[e] >> 1), degree[depth] + (step[e] & 1)
        if end < n:
            depth += 1
            node[depth], degree[depth], edge[depth] = end, g, first[end]
            continue
        at = group[g]
        store.ints[at] = depth + 1
        for x in range(depth + 1):
            store.ints[at + 1 + x] = token[edge[x]]
        group[g] += strides[g]
        edge[depth] += 1


@njit(cache=True, nogil=True)
def _write_nodes(store, edges, body, counts, degrees, short):
    """Write the edges and the counts (float64 [n + 1, degrees + 1 or more]) of all nodes."""
    n = len(edges.first) - 1
    for i in range(n + 1):
        store.ints[body * 2 + i] = edges.first[i]
    at = body + (n + 2) // 2
    for e in range(edges.first[n]):
        store.words[at + e] = (np.int64(edges.token[e]) << 32) | edges.step[e]
    at += edges.first[n]
    for i in range(n + 1):
        row = _row(i, n, degrees)
        for g in range(min(degrees, n - i) + 1):
            if short:
                store.ints[2 * at + row + g] = np.int32(counts[i, g])
            else:
                store.floats[at + row + g] = counts[i, g]


@njit(cache=True, nogil=True, inline="always")
def _count_at(store, short, counts, at):
    """Count number ``at`` of the nodes' counts, which begin at slot ``counts``."""
    return np.float64(store.ints[2 * counts + at]) if short else store.floats[counts + at]


@njit(cache=True, nogil=True, inline="always")
def draw(store, record, degree, state, out, at):
    """Append a uniform path of exactly this degree to ``out`` (int32); returns the end, the state.

    The record must have a path of this degree (`counts_of`): only then are the list and the nodes
    that are read those of the record, and ``out`` needs no more space than the word has bytes.
    """
    header = store.words[record + 1]
    degrees = _degrees(header)
    body = _body(record, header)
    if _listed(header):
        group = store.words[body + degree]
        count = store.floats[body - degrees - 1 + degree]
        source = group >> 16
        if count > 1.0:
            u, state = uniform(state)
            source += min(np.int64(u * count), np.int64(count) - 1) * (group & 0xFFFF)
        for x in range(1, store.ints[source] + 1):
            out[at] = store.ints[source + x]
            at += 1
        return at, state
    n = _size(header)
    edges = body + (n + 2) // 2
    short = _short(header)
    counts = edges + store.ints[body * 2 + n]
    i = np.int64(0)
    g = np.int64(degree)
    while i < n:
        u, state = uniform(state)
        left = u * _count_at(store, short, counts, _row(i, n, degrees) + g)
        chosen = np.int64(-1)
        for e in range(edges + store.ints[body * 2 + i], edges + store.ints[body * 2 + i + 1]):
            step = store.words[e] & 0xFFFFFFFF
            cost = step & 1
            j = i + (step >> 1)
            if cost > g or g - cost > n - j:
                continue
            count = _count_at(store, short, counts, _row(j, n, degrees) + g - cost)
            if count > 0.0:
                chosen = e
                left -= count
                if left < 0.0:
                    break
        edge = store.words[chosen]
        out[at] = edge >> 32
        at += 1
        i += (edge & 0xFFFFFFFF) >> 1
        g -= edge & 1
    return at, state
