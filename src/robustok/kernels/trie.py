"""A byte trie of the vocabulary: one hash table from (node, byte) to child.

Finds the tokens that start at a byte of a text, one look-up a byte.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.compiler import njit
from robustok.kernels.numbers import GOLDEN

NODE_BITS = 28  # of a node
ROOT = np.int64(1)  # the root has number 0 and children
_HALF = np.uint64(32)


class Trie(NamedTuple):
    """A node is an int64: its number * 2, and 1 if it has children.

    The root has number 0 and a token its id + 1; other nodes come after all tokens. So `token_of`
    reads no memory, and a look-up reads one word. ``second`` skips the hash for the first two
    bytes.

    Invariant: every number is below 2**27, and at least one slot is free.
    """

    entries: np.ndarray  # int64 [power of two]: (number * 256 + byte) << 28 | child, or -1 if free
    first: np.ndarray  # int32 [256]: child of the root, or -1
    second: np.ndarray  # int32 [65536]: grandchild of the root, or -1
    joined: np.ndarray  # bool [65536]: some token holds byte a directly followed by byte b
    size: int  # ids of the vocabulary
    longest: int  # bytes of the longest token


@njit(inline="always")
def slot_of(key, mask):
    """The first slot to try for an integer ``key`` (Fibonacci hashing); int64 in 0..mask.

    ``mask``: the number of slots, a power of two, minus 1.
    """
    return np.int64((np.uint64(key) * GOLDEN) >> _HALF) & mask


@njit(inline="always")
def look_up(entries, key, bits):
    """The value of an integer ``key`` in a hash table that `fill` filled; int64, or -1.

    ``entries``: int64 [power of two]: key << ``bits`` | value, or -1; one is free, so the search
    ends.
    """
    mask = len(entries) - 1
    s = slot_of(key, mask)
    while True:
        entry = entries[s]
        if entry >> bits == key:
            return entry & ((1 << bits) - 1)
        if entry < 0:
            return np.int64(-1)
        s = (s + 1) & mask


@njit()
def fill(entries, keys, values, bits):
    """Enter all ``keys`` with their ``values``, of two equal keys the last one.

    ``entries``: int64 [power of two], all -1, as `look_up` reads it; more than there are keys.
    ``keys``, ``values``: int64 [keys], values below 2**``bits``.
    """
    mask = len(entries) - 1
    for x in range(len(keys)):
        s = slot_of(keys[x], mask)
        while entries[s] >= 0 and entries[s] >> bits != keys[x]:
            s = (s + 1) & mask
        entries[s] = keys[x] << bits | values[x]


@njit(inline="always")
def token_of(trie, node):
    """The id of the token that ends at ``node`` (int64), or -1."""
    number = node >> 1
    return np.int32(number - 1) if number <= trie.size else np.int32(-1)


@njit(inline="always")
def child(trie, node, byte):
    """The child of a ``node`` (int64) along a ``byte`` (int in 0..255), or -1."""
    if node & 1 == 0:
        return np.int64(-1)
    return look_up(trie.entries, (node >> 1) << 8 | np.int64(byte), NODE_BITS)


@njit(inline="always")
def descend(trie, node, text, start, p):
    """The child of ``node`` along text[p], or -1, where text[start:p] leads from the root to it.

    As `child`, but without the hash for the first two bytes. ``node``: int64. ``start``, ``p``:
    indices in ``text``, ``start`` not above ``p``.
    """
    if p == start:
        return np.int64(trie.first[text[p]])
    if p == start + 1:
        return np.int64(trie.second[np.int64(text[start]) * 256 + text[p]])
    return child(trie, node, text[p])


@njit()
def find_token(trie, text, start, end):
    """The token whose bytes are text[start:end], or -1; ``text`` is uint8. The root's is -1."""
    node = ROOT
    for p in range(start, end):
        node = descend(trie, node, text, start, p)
        if node < 0:
            return np.int32(-1)
    return token_of(trie, node)


@njit()
def _collect(token_bytes, token_offsets, ids, keys, children, token):
    """Insert the tokens ``ids`` into empty tables; returns the number of nodes, and ``joined``.

    ``keys``: int64 [slots], all -1, for parent * 256 + byte, and ``children``: int32 [slots]; slots
    are a power of two, more than the bytes of all tokens. ``token``: int32 [nodes or more], all -1.
    Nodes are counted in the order of insertion, and the root is 0.
    """
    mask = len(keys) - 1
    nodes = 1
    joined = np.zeros(65536, np.bool_)
    for t in ids:
        node = np.int64(0)
        for p in range(token_offsets[t], token_offsets[t + 1]):
            byte = np.int64(token_bytes[p])
            if p > token_offsets[t]:
                joined[np.int64(token_bytes[p - 1]) * 256 + byte] = True
            key = (node << 8) | byte
            s = slot_of(key, mask)
            while keys[s] >= 0 and keys[s] != key:
                s = (s + 1) & mask
            if keys[s] < 0:
                keys[s] = key
                children[s] = nodes
                nodes += 1
            node = np.int64(children[s])
        token[node] = t
    return nodes, joined


def _number(parent: np.ndarray, token: np.ndarray, size: int) -> np.ndarray:
    """The nodes of `_collect` as those of a `Trie`; int64 [nodes].

    ``parent``: int64, the nodes that have a child. ``token``: int32 [nodes]. ``size``: the ids of
    the vocabulary.
    """
    is_other = token < 0
    is_other[0] = False  # the root
    number = np.where(is_other, size + np.cumsum(is_other), token.astype(np.int64) + 1)
    number[0] = 0
    node = number * 2
    node[parent] |= 1
    return node


def build_trie(token_bytes: np.ndarray, token_offsets: np.ndarray, ids: np.ndarray) -> Trie:
    """The trie of the tokens ``ids``, each of a byte or more.

    Token t is ``token_bytes[token_offsets[t]:token_offsets[t + 1]]``.
    """
    size = len(token_offsets) - 1
    lengths = np.diff(token_offsets)[ids]
    total = int(lengths.sum())
    if size + total >= 1 << (NODE_BITS - 1):
        raise ValueError(f"a vocabulary of {size} tokens with {total} bytes is too large")
    slots = _slots(total)
    keys, children = np.full(slots, -1, np.int64), np.zeros(slots, np.int32)
    token = np.full(total + 1, -1, np.int32)
    nodes, joined = _collect(token_bytes, token_offsets, ids, keys, children, token)
    used = np.flatnonzero(keys >= 0)
    parent, byte, child_of = keys[used] >> 8, keys[used] & 0xFF, children[used]
    node = _number(parent, token[:nodes], size)
    first, second = np.full(256, -1, np.int32), np.full(65536, -1, np.int32)
    of_root = parent == 0
    first[byte[of_root]] = node[child_of[of_root]]
    byte_of = np.full(nodes, -1, np.int64)  # of each child of the root
    byte_of[child_of[of_root]] = byte[of_root]
    after = byte_of[parent] >= 0
    second[byte_of[parent[after]] * 256 + byte[after]] = node[child_of[after]]
    # A table that fits the nodes stays in the processor's cache.
    entries = np.full(_slots(nodes), -1, np.int64)
    fill(entries, (node[parent] >> 1) << 8 | byte, node[child_of], NODE_BITS)
    return Trie(entries, first, second, joined, size, int(lengths.max(initial=0)))


def _slots(entries: int) -> int:
    """Slots of a table for ``entries``: a power of two, more than 1.5 times as many."""
    return 1 << max(16, entries + entries // 2).bit_length()
