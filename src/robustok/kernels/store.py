"""A store of records: the tokenizations of single blocks, kept because blocks repeat.

Whether a block is already in the store changes the time of a draw and never its result.

A record has the tokenizations of one block, grouped by degree: all together, by number of segments,
or by distance from a reference. A block with up to LISTED tokenizations has them as a list, so that
a draw is one look-up. Any other block has, for every node of its lattice, the number of paths to
the end by degree, and a draw walks through the nodes.

A record is contiguous, because a draw costs about as many cache misses as it touches cache lines.
In 8-byte slots of ``Store.words``, from position r on:

    r       size of the key: bytes (ALL) or ids (SEGMENTS, DISTANCE)
    r + 1   header, see `pack_header`
    r + 2   stamp of the text that used the record last (`uniform-k`)
    r + 3   number of the block's type within that text
    r + 4   key: uint8 (ALL) or int32, padded to whole slots
    then    number of tokenizations by degree, float64 [degrees + 1]

    list:   int64 [degrees + 1], where the paths of each degree begin << 16 | their stride, see
            `paths_of`; then the paths in int32: number of ids, ids, padding up to the stride
    nodes:  int32 [n + 1], the first edge of each byte, padded to whole slots; int64 [edges], token
            << 32 | step (`kernels.lattice.Edges`); the counts of all nodes by degree, node i having
            min(degrees, n - i) + 1 (`row_of`), in int32 if all are below 2**31, else in float64

Other modules ask `degrees_of`, `counts_of`, `paths_of` and so on for what is where in a record.
`kernels.walk` has records of its own: of this layout they share the size and the key.

Arguments of one meaning in this module: ``mode``: ALL, SEGMENTS or DISTANCE, the degree that
records are grouped by. ``key``: the bytes of the block under ALL (uint8 [bytes]), else its
reference ids (int32 [ids]). ``record``: int64, the position of a record in ``Store.words``.
``header``: int64, from `pack_header`. ``degrees``: the largest degree that has a tokenization.
``degree``: int64 in 0..degrees, both included. Invariant: a position is used only until the store
is cleared, and all of a record is inside ``Store.words``.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

import numpy as np

from robustok.kernels.batch import copy_to
from robustok.kernels.compiler import njit
from robustok.kernels.lattice import edges_of, mark_reference
from robustok.kernels.numbers import GOLDEN, uniform

ALL, SEGMENTS, DISTANCE = 0, 1, 2
LISTED = 32  # tokenizations; blocks with more are walked
COPIED = 8  # ids of a listed tokenization that are copied at once
HEAD = 4  # slots of a record before its key
# Codes of the kernels that draw from a store, and of records in place of a position.
DRAWN = 0  # all texts are drawn
NO_ROOM = -1  # the store is full
NO_PATH = -2  # the vocabulary has no tokenization of the bytes: nothing may be drawn from a record
NOT_DRAWN = -3  # too rare or too large to be drawn
RARE = -4  # the text needs code that the compiled kernel leaves out
_SINGLE = 1 << 18  # ids that are looked up without a hash: a vocabulary of today, and no more
_TAG_BITS = np.uint64(36)
_OFFSET = np.int64((1 << 36) - 1)
_HALF = np.uint64(32)
_ODD = np.uint64(1)


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


@njit()
def clear(store):
    """Remove all records; positions of records are not valid any more."""
    store.used[0] = 0
    store.used[1] = 0
    store.slots[:] = 0
    store.single[:] = 0


@njit(inline="always")
def hash_key(seed, key, start, end):
    """A hash of key[start:end], uint64.

    ``key``: uint8 [bytes], or int32 [ids], none of them negative.
    A polynomial whose factor follows from the secret ``seed``. Its high bits depend on the whole
    key, so they are folded into the low ones.
    """
    h = np.uint64(seed)
    factor = (h * GOLDEN) | _ODD
    for p in range(start, end):
        h = (h ^ np.uint64(key[p])) * factor
    return h ^ (h >> _HALF)


@njit(inline="always")
def _first_slot(entry, mask):
    """The first slot to try for an entry of `Store.slots`, by the low bits of its tag alone.

    So an entry can be moved to a larger table without its key. ``mask``: the number of slots minus
    1; beyond 2**28 slots, only the first ones are tried first.
    """
    return np.int64(np.uint64(entry) >> _TAG_BITS) & mask


@njit()
def _enter(slots, entry):
    """Write ``entry`` to a free slot of ``slots`` (int64 [power of two]); at least one is free."""
    mask = len(slots) - 1
    slot = _first_slot(entry, mask)
    while slots[slot] != 0:
        slot = (slot + 1) & mask
    slots[slot] = entry


@njit()
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


@njit(inline="always")
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


@njit(inline="always")
def find(store, mode, key, key_start, key_end):
    """The position of the record with key ``key[key_start:key_end]``, or -1.

    ``mode``: that of all records of the store. ``key_start``, ``key_end``: indices in ``key``, the
    first one below the second. At least one slot is free, so the search ends.
    """
    if mode != ALL and key_end - key_start == 1 and key[key_start] < _SINGLE:
        return store.single[key[key_start]] - 1
    mask = len(store.slots) - 1
    h = hash_key(store.used[3], key, key_start, key_end)
    tag = np.int64((h >> _TAG_BITS) << _TAG_BITS)
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


@njit()
def add_slot(store, key, key_start, key_end, record):
    """Enter a new record in the hash table, where `find` finds it under key[key_start:key_end].

    ``record``: its position in the store. At least half of the slots are free before.
    """
    h = hash_key(store.used[3], key, key_start, key_end)
    _enter(store.slots, np.int64((h >> _TAG_BITS) << _TAG_BITS) | (record + 1))


@njit()
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


@njit(forceinline=True)
def lookup_token(store, tokens, key):
    """The record (SEGMENTS) of token key[0] (int32 [1]), built if new; NO_ROOM or NO_PATH."""
    record = find(store, SEGMENTS, key, 0, 1)
    if record < 0:
        text = tokens.bytes[tokens.offsets[key[0]] : tokens.offsets[key[0] + 1]]
        record = insert(store, tokens, SEGMENTS, key, text)
    return record


@njit()
def priced_edges(tokens, mode, ids, start, end, text, size):
    """The lattice of the text ids[start:end], where the cost of an edge is its degree.

    ``ids``: int32, not read under ALL and SEGMENTS. ``text``: uint8, whose first ``size`` bytes are
    those of the text. ``mode``: what the degree counts.
    """
    edges = edges_of(tokens.trie, text, 0, size)
    if mode == DISTANCE:
        mark_reference(edges, ids, start, end, tokens.offsets)
    elif mode == ALL:
        for e in range(len(edges.step)):
            edges.step[e] -= 1
    return edges


@njit()
def _count_paths(edges, degrees):
    """[i, g]: the paths from byte i to the end of degree g; float64 [n + 1, degrees + 1].

    ``edges``: those of a block of n bytes. ``degrees``: the largest degree to count. Of more than
    1,024 bytes a number may be infinite; those of the smallest degrees are not.
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


@njit()
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


@njit(inline="always")
def pack_header(key_slots, size, degrees, listed, short):
    """The header of a record, int64: ``key_slots``, ``size``, ``degrees`` and two flags.

    ``key_slots``: 8-byte slots of the key. ``size``: bytes of the block. ``degrees``: the largest
    degree with a tokenization. These three are below 2**16. ``listed``: 1 if the record is a list,
    else 0. ``short``: 1 if the counts of the nodes are int32, else 0.
    """
    return key_slots | (size << 16) | (degrees << 32) | (listed << 48) | (short << 49)


@njit(inline="always")
def unpack_header(header):
    """The arguments of `pack_header`, the flags as bools."""
    listed, short = (header >> 48) & 1 != 0, (header >> 49) != 0
    return header & 0xFFFF, (header >> 16) & 0xFFFF, (header >> 32) & 0xFFFF, listed, short


@njit(inline="always")
def body_of(record, header):
    """The slot after a record's counts by degree: of its groups, or of its nodes."""
    key_slots, _, degrees, _, _ = unpack_header(header)
    return record + HEAD + key_slots + degrees + 1


@njit(inline="always")
def row_of(i, n, degrees):
    """The number of counts before those of node ``i``, which has min(degrees, n - i) + 1.

    ``i``: in 0..n, both included. ``n``: bytes of the block, at least ``degrees``.
    """
    late = max(i - (n - degrees), 0)
    return i * (degrees + 1) - late * (late - 1) // 2


@njit(inline="always")
def degrees_of(store, record):
    """The largest degree that has a tokenization."""
    return unpack_header(store.words[record + 1])[2]


@njit(inline="always")
def counts_of(store, record):
    """The index in ``store.floats`` of the number of tokenizations of degree 0."""
    return record + HEAD + unpack_header(store.words[record + 1])[0]


@njit(inline="always")
def is_listed(store, record):
    """Whether the record is a list of tokenizations."""
    return unpack_header(store.words[record + 1])[3]


@njit(inline="always")
def paths_of(store, record, degree):
    """The paths of one degree of a list: index of the first in ``store.ints``, and the stride.

    At that index is the number of ids, after it are the ids.
    """
    group = store.words[body_of(record, store.words[record + 1]) + degree]
    return group >> 16, group & 0xFFFF


@njit(inline="always")
def next_stamp(store):
    """A new stamp for a text, to mark the records that it uses."""
    store.used[2] += 1
    return store.used[2]


@njit(inline="always")
def number_of(store, record, stamp):
    """The number that `set_number` gave the record under this stamp, or -1.

    ``stamp``: int64, from `next_stamp`.
    """
    return store.words[record + 3] if store.words[record + 2] == stamp else np.int64(-1)


@njit(inline="always")
def set_number(store, record, stamp, number):
    """Give the record a number under a stamp.

    ``number``: int64, at least 0. ``stamp``: int64, from `next_stamp`.
    """
    store.words[record + 2], store.words[record + 3] = stamp, number


@njit()
def write_list(store, edges, body, counts, strides):
    """Write the groups and all paths of a list, by depth-first search of nodes that reach the end.

    ``edges``: those of the block, n bytes. ``body``: the slot to write from (`body_of`).
    ``counts``: float64 [n + 1, degrees + 1 or more], the paths from each node by degree.
    ``strides``: int64 [degrees + 1], int32s for a path of each degree, one more than the ids of the
    longest. Every step is at least a byte, so a path has at most n ids. The caller makes sure that
    groups and paths fit in the store.
    """
    first, token, step = edges.first, edges.token, edges.step
    n = len(first) - 1
    group = np.empty(len(strides), np.int64)  # index in ints of the next path of each degree
    ints = (body + len(strides)) * 2
    for g in range(len(strides)):
        group[g] = ints
        store.words[body + g] = (ints << 16) | strides[g]
        ints += np.int64(counts[0, g]) * strides[g]
    reaches_end = np.empty(n + 1, np.bool_)
    for i in range(n + 1):
        reaches_end[i] = counts[i].sum() > 0.0
    edge, node, degree = 0, 1, 2
    stack = np.empty((n + 1, 3), np.int64)  # by depth: the edge, its node, the degree before it
    stack[0, edge], stack[0, node], stack[0, degree] = first[0], 0, 0
    depth = 0
    while depth >= 0:
        e = stack[depth, edge]
        if e == first[stack[depth, node] + 1]:
            depth -= 1
            if depth >= 0:
                stack[depth, edge] += 1
            continue
        end, g = stack[depth, node] + (step[e] >> 1), stack[depth, degree] + (step[e] & 1)
        if not reaches_end[end]:
            stack[depth, edge] += 1
            continue
        if end < n:
            depth += 1
            stack[depth, edge], stack[depth, node], stack[depth, degree] = first[end], end, g
            continue
        at = group[g]
        store.ints[at] = depth + 1
        for x in range(depth + 1):
            store.ints[at + 1 + x] = token[stack[x, edge]]
        group[g] += strides[g]
        stack[depth, edge] += 1


@njit()
def write_nodes(store, edges, body, counts, degrees, short):
    """Write the edges and the counts of all nodes.

    ``edges``: those of the block, n bytes. ``body``: the slot to write from (`body_of`).
    ``counts``: float64 [n + 1, degrees + 1 or more]. ``degrees``: the largest degree. ``short``:
    write the counts as int32, else as float64. The caller makes sure that all of them fit in the
    store.
    """
    n = len(edges.first) - 1
    for i in range(n + 1):
        store.ints[body * 2 + i] = edges.first[i]
    at = body + (n + 2) // 2
    for e in range(edges.first[n]):
        store.words[at + e] = (np.int64(edges.token[e]) << 32) | edges.step[e]
    at += edges.first[n]
    for i in range(n + 1):
        row = row_of(i, n, degrees)
        for g in range(min(degrees, n - i) + 1):
            if short:
                store.ints[2 * at + row + g] = np.int32(counts[i, g])
            else:
                store.floats[at + row + g] = counts[i, g]


@njit(inline="always")
def _count_at(store, short, counts, at):
    """Count number ``at`` of the nodes' counts, which begin at slot ``counts``; float64.

    ``short``: the counts are int32, else float64. ``at`` is at most `row_of` of the last
    node.
    """
    return np.float64(store.ints[2 * counts + at]) if short else store.floats[counts + at]


@njit(inline="always")
def draw(store, record, degree, state, out, at):
    """Append a uniform path of exactly this degree to ``out``; returns the end, the state.

    ``record``: int64, its position in the store. ``out``: int32, with space for an id for each byte
    of the block from index ``at`` on; ids after the returned end may be overwritten. The record
    must have a path of this ``degree`` (`counts_of`): only then are the list and the nodes that are
    read those of the record, and ``out`` needs no more space than the block has bytes.
    """
    header = store.words[record + 1]
    _, n, degrees, listed, short = unpack_header(header)
    body = body_of(record, header)
    if listed:
        group = store.words[body + degree]
        count = store.floats[body - degrees - 1 + degree]
        u, after = uniform(state)
        state = after if count > 1.0 else state
        chosen = min(np.int64(u * count), np.int64(count) - 1)
        source = (group >> 16) + chosen * (group & 0xFFFF)
        size = np.int64(store.ints[source])
        if size <= COPIED and at + COPIED <= len(out) and source + COPIED < len(store.ints):
            # A fixed number of ids, without unpredictable branches; later ones overwrite the rest.
            a, b = np.uint64(at), np.uint64(source + 1)
            for x in range(COPIED):
                out[a + np.uint64(x)] = store.ints[b + np.uint64(x)]
        else:
            for x in range(size):
                out[at + x] = store.ints[source + 1 + x]
        return at + size, state
    edges = body + (n + 2) // 2
    counts = edges + store.ints[body * 2 + n]
    i = np.int64(0)
    g = np.int64(degree)
    while i < n:
        u, state = uniform(state)
        left = u * _count_at(store, short, counts, row_of(i, n, degrees) + g)
        chosen = np.int64(-1)
        for e in range(edges + store.ints[body * 2 + i], edges + store.ints[body * 2 + i + 1]):
            step = store.words[e] & 0xFFFFFFFF
            cost = step & 1
            j = i + (step >> 1)
            if cost > g or g - cost > n - j:
                continue
            count = _count_at(store, short, counts, row_of(j, n, degrees) + g - cost)
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
