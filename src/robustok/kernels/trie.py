"""A byte trie of the vocabulary: one hash table from (node, byte) to child.

Finds the tokens that start at a byte of a text, one look-up a byte.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.compiler.jit import njit
from robustok.kernels.hashing import slot_of
from robustok.kernels.memory import borrow


class Trie(NamedTuple):
    """Node 0 is the root; ``second`` skips the hash for the first two bytes.

    Invariant: every child is a node, below len(token), and at least one slot is free.
    """

    keys: np.ndarray  # int64 [power of two]: node * 256 + byte, or -1 for a free slot
    children: np.ndarray  # int32 [power of two]
    token: np.ndarray  # int32 [nodes]: the id that ends here, or -1
    first: np.ndarray  # int32 [256]: child of the root, or -1
    second: np.ndarray  # int32 [65536]: grandchild of the root, or -1
    joined: np.ndarray  # bool [65536]: some token holds byte a directly followed by byte b


@njit(cache=True, nogil=True)
def borrow_trie(trie):
    """The same trie without reference counts; see `memory`."""
    return Trie(
        borrow(trie.keys), borrow(trie.children), borrow(trie.token), borrow(trie.first),
        borrow(trie.second), borrow(trie.joined),
    )  # fmt: skip


@njit(cache=True, nogil=True, inline="always")
def child(trie, node, byte):
    """The child of a ``node`` along a ``byte``, or -1.

    ``node``: int, below len(trie.token). ``byte``: int in 0..255. At least one slot is free, so the
    search ends.
    """
    mask = len(trie.keys) - 1
    key = (np.int64(node) << 8) | np.int64(byte)
    s = slot_of(key, mask)
    while True:
        k = trie.keys[s]
        if k == key:
            return trie.children[s]
        if k < 0:
            return np.int32(-1)
        s = (s + 1) & mask


@njit(cache=True, nogil=True, inline="always")
def descend(trie, node, text, start, p):
    """The child of ``node`` along text[p], or -1, where text[start:p] leads from the root to it.

    As `child`, but without the hash for the first two bytes. ``node``: int, below len(trie.token).
    ``start``, ``p``: indices in ``text``, ``start`` not above ``p``.
    """
    if p == start:
        return trie.first[text[p]]
    if p == start + 1:
        return trie.second[np.int64(text[start]) * 256 + text[p]]
    return child(trie, node, text[p])


@njit(cache=True, nogil=True)
def find_token(trie, text, start, end):
    """The token whose bytes are text[start:end], or -1; ``text`` is uint8. The root's is -1."""
    node = np.int32(0)
    for p in range(start, end):
        node = descend(trie, node, text, start, p)
        if node < 0:
            return np.int32(-1)
    return trie.token[node]


@njit(cache=True, nogil=True)
def _fill(token_bytes, token_offsets, ids, keys, children, token):
    """Insert the tokens ``ids`` into empty tables; returns the number of nodes, and ``joined``.

    ``keys``: int64 [slots], all -1, and ``children``: int32 [slots]; slots are a power of two, more
    than the bytes of all tokens. ``token``: int32 [nodes or more], all -1.
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
def _shortcuts(trie):
    """Fill ``first`` and ``second``."""
    for a in range(256):
        trie.first[a] = child(trie, 0, a)
        for b in range(256):
            if trie.first[a] >= 0:
                trie.second[a * 256 + b] = child(trie, trie.first[a], b)


def build_trie(token_bytes: np.ndarray, token_offsets: np.ndarray, ids: np.ndarray) -> Trie:
    """The trie of the tokens ``ids``.

    Token t is ``token_bytes[token_offsets[t]:token_offsets[t + 1]]``.
    """
    lengths = np.diff(token_offsets)[ids]
    slots = 1 << int(max(16, 2 * int(lengths.sum()))).bit_length()
    keys = np.full(slots, -1, np.int64)
    children = np.zeros(slots, np.int32)
    token = np.full(int(lengths.sum()) + 1, -1, np.int32)
    nodes, joined = _fill(token_bytes, token_offsets, ids, keys, children, token)
    slots = 1 << int(max(16, 2 * nodes)).bit_length()
    if slots < len(keys):  # a table that fits the nodes stays in the processor's cache
        keys, children = np.full(slots, -1, np.int64), np.zeros(slots, np.int32)
        token = np.full(nodes, -1, np.int32)
        nodes, joined = _fill(token_bytes, token_offsets, ids, keys, children, token)
    first, second = np.full(256, -1, np.int32), np.full(65536, -1, np.int32)
    trie = Trie(keys, children, token[:nodes], first, second, joined)
    _shortcuts(trie)
    return trie
