"""A byte trie of the vocabulary: one hash table from (node, byte) to child.

Finds the tokens that start at a byte of a text, one look-up a byte.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.compiler.jit import njit
from robustok.kernels.hashing import slot_of
from robustok.kernels.memory import borrow

NODE_BITS = 28  # of a node
ROOT = np.int64(1)  # the root has number 0 and children
_NODE = (1 << NODE_BITS) - 1


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


@njit(cache=True, nogil=True)
def borrow_trie(trie):
    """The same trie without reference counts; see `memory`."""
    return Trie(
        borrow(trie.entries), borrow(trie.first), borrow(trie.second), borrow(trie.joined),
        trie.size, trie.longest,
    )  # fmt: skip


@njit(cache=True, nogil=True, inline="always")
def token_of(trie, node):
    """The id of the token that ends at ``node`` (int64), or -1."""
    number = node >> 1
    return np.int32(number - 1) if number <= trie.size else np.int32(-1)


@njit(cache=True, nogil=True, inline="always")
def child(trie, node, byte):
    """The child of a ``node`` (int64) along a ``byte`` (int in 0..255), or -1.

    At least one slot is free, so the search ends.
    """
    if node & 1 == 0:
        return np.int64(-1)
    mask = len(trie.entries) - 1
    key = (node >> 1) << 8 | np.int64(byte)
    s = slot_of(key, mask)
    while True:
        entry = trie.entries[s]
        if entry >> NODE_BITS == key:
            return entry & _NODE
        if entry < 0:
            return np.int64(-1)
        s = (s + 1) & mask


@njit(cache=True, nogil=True, inline="always")
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


@njit(cache=True, nogil=True)
def find_token(trie, text, start, end):
    """The token whose bytes are text[start:end], or -1; ``text`` is uint8. The root's is -1."""
    node = ROOT
    for p in range(start, end):
        node = descend(trie, node, text, start, p)
        if node < 0:
            return np.int32(-1)
    return token_of(trie, node)


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _number(keys, children, token, size):
    """The nodes of `_collect` as those of a `Trie`; int64 [nodes].

    ``keys``, ``children``: as `_collect` wrote them. ``token``: int32 [nodes]. ``size``: the ids of
    the vocabulary.
    """
    node = np.empty(len(token), np.int64)
    others = size
    for x in range(len(token)):
        others += x > 0 and token[x] < 0
        node[x] = (0 if x == 0 else token[x] + 1 if token[x] >= 0 else others) * 2
    for s in range(len(keys)):
        if keys[s] >= 0:
            node[keys[s] >> 8] |= 1
    return node


@njit(cache=True, nogil=True)
def _enter(keys, children, node, trie):
    """Enter all children in an empty ``trie``, with free slots, and fill the shortcuts.

    ``keys``, ``children``: as `_collect` wrote them. ``node``: int64 [nodes], from `_number`.
    """
    mask = len(trie.entries) - 1
    for c in range(len(keys)):
        if keys[c] >= 0:
            key = (node[keys[c] >> 8] >> 1) << 8 | (keys[c] & 0xFF)
            s = slot_of(key, mask)
            while trie.entries[s] >= 0:
                s = (s + 1) & mask
            trie.entries[s] = key << NODE_BITS | node[children[c]]
    for a in range(256):
        trie.first[a] = child(trie, ROOT, a)
        for b in range(256):
            if trie.first[a] >= 0:
                trie.second[a * 256 + b] = child(trie, np.int64(trie.first[a]), b)


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
    first, second = np.full(256, -1, np.int32), np.full(65536, -1, np.int32)
    # A table that fits the nodes stays in the processor's cache.
    entries = np.full(_slots(nodes), -1, np.int64)
    trie = Trie(entries, first, second, joined, size, int(lengths.max(initial=0)))
    _enter(keys, children, _number(keys, children, token[:nodes], size), trie)
    return trie


def _slots(entries: int) -> int:
    """Slots of a table for ``entries``: a power of two, more than 1.5 times as many."""
    return 1 << max(16, entries + entries // 2).bit_length()
