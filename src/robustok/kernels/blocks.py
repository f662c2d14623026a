"""Blocks: the parts of a text between positions that no token spans, and the types of blocks.

Every tokenization passes through such a position, so the lattice of a text is the product of the
lattices of its blocks. Two neighboring bytes that no token contains side by side show most such
positions. A longer part without them is searched for the others by the longest token at each byte.

A draw at an exact distance works on types: equal blocks are one type, whose tokenizations by
distance are a record of the store. Large blocks are lattices of their own.

``blocks``: `TextBlocks`. ``ids``: int32, of which the text is ids[start:end].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.batch import spell
from robustok.kernels.compiler import borrow, njit
from robustok.kernels.store import (
    DISTANCE,
    RARE,
    find,
    insert,
    next_stamp,
    number_of,
    priced_edges,
    set_number,
)
from robustok.kernels.trie import ROOT, descend, token_of

LONG = 48  # bytes; shorter blocks are not searched for further cuts
TABLED = 256  # bytes of the longest block whose distances are tabled
SHORT = 24  # the same in a text of which over MOST_LARGE bytes are in longer blocks
MOST_LARGE = 1 << 16  # their tables take up to 1 kB a byte


@njit()
def longest(trie, text, start, end):
    """The end of the longest token that starts at text[start] and ends at ``end`` at most.

    ``start`` where there is none. ``text``: uint8. Not from `lattice.edges_of`, which lists all
    tokens in memory.
    """
    trie, text = borrow(trie), borrow(text)
    best = start
    node = ROOT
    for p in range(start, end):
        node = descend(trie, node, text, start, p)
        if node < 0:
            break
        if token_of(trie, node) >= 0:
            best = p + 1
    return best


@njit()
def block_ends(trie, text, start, end, ends):
    """Write the end of every block of text[start:end] (uint8) to ``ends``; returns how many.

    ``ends``: int64 [end - start or more]: every block has at least a byte.
    """
    trie, text, ends = borrow(trie), borrow(text), borrow(ends)
    count = 0
    begin = start
    p = start + 1
    while p <= end:
        if p == end or not trie.joined[np.int64(text[p - 1]) * 256 + text[p]]:
            if p - begin > LONG:
                reach = begin
                for q in range(begin, p):
                    if q > begin and reach <= q:
                        ends[count] = q
                        count += 1
                    reach = max(reach, longest(trie, text, q, p))
            ends[count] = p
            count += 1
            begin = p
        p += 1
    return count


class TextBlocks(NamedTuple):
    """A text cut into blocks: blocks of the lattice, between positions that no token spans.

    Sized for the longest text of a call: ``text`` and ``ends`` by its bytes, the others by its
    tokens. A text has at most as many blocks as tokens, and at most as many types as blocks.
    """

    text: np.ndarray  # uint8: bytes of one block
    ends: np.ndarray  # int64: cut positions within a part of the text
    stop: np.ndarray  # int64: index of the token after each block
    size: np.ndarray  # int64: bytes of each block
    kind: np.ndarray  # int64: type of each block, or -1 - i for the i-th unbroken one
    record: np.ndarray  # int64: record of each type in the store
    times: np.ndarray  # int64: how often each type occurs


@njit()
def new_text_blocks(tokens, batch, first, last):
    """`TextBlocks` for the longest of the texts first..last."""
    most_tokens, most_bytes = np.int64(0), np.int64(0)
    for t in range(first, last):
        begin, end = batch.offsets[t], batch.offsets[t + 1]
        most_tokens = max(most_tokens, end - begin)
        size = np.int64(0)
        for v in range(begin, end):
            size += tokens.offsets[batch.values[v] + 1] - tokens.offsets[batch.values[v]]
        most_bytes = max(most_bytes, size)
    return TextBlocks(
        np.empty(most_bytes, np.uint8),
        np.empty(most_bytes, np.int64),
        np.empty(most_tokens, np.int64),
        np.empty(most_tokens, np.int64),
        np.empty(most_tokens, np.int64),
        np.empty(most_tokens, np.int64),
        np.empty(most_tokens, np.int64),
    )


@njit()
def _cut_long(tokens, ids, start, end, size, blocks, count):
    """Cut ids[start:end], ``size`` bytes without a pair that no token holds, into blocks.

    They are written to ``blocks`` after ``count`` others. Returns the new count, and the bytes in
    those of over SHORT bytes.
    """
    tokens, ids, blocks = borrow(tokens), borrow(ids), borrow(blocks)
    spell(tokens.bytes, tokens.offsets, ids, start, end, blocks.text, 0)
    large, position, stop = np.int64(0), np.int64(0), np.int64(start)
    for c in range(block_ends(tokens.trie, blocks.text, 0, size, blocks.ends)):
        previous = position
        while position < blocks.ends[c]:
            position += tokens.offsets[ids[stop] + 1] - tokens.offsets[ids[stop]]
            stop += 1
        blocks.stop[count], blocks.size[count] = stop, position - previous
        large += position - previous if position - previous > SHORT else 0
        count += 1
    return count, large


@njit()
def _cut(tokens, ids, start, end, blocks):
    """Cut the text ids[start:end] into blocks; returns how many, and the largest size of a type.

    A block ends where no token holds the two bytes that meet; a long one is searched for further
    cuts. Larger blocks are unbroken. The size depends on the text alone, never on the store, so
    that draws do not depend on the batch. Writes ``blocks.stop`` and ``blocks.size``.
    """
    tokens, ids, blocks = borrow(tokens), borrow(ids), borrow(blocks)
    count, large = np.int64(0), np.int64(0)
    begin = start
    size = np.int64(0)
    following = tokens.border[ids[start]] if start < end else np.int64(0)
    for v in range(start, end):
        border = following
        size += border >> 16
        is_end = True
        if v + 1 < end:
            following = tokens.border[ids[v + 1]]
            is_end = not tokens.trie.joined[(border & 0xFF) << 8 | (following >> 8 & 0xFF)]
        if size <= LONG:
            # Cuts are unpredictable: written at every token, kept at a cut.
            blocks.stop[count], blocks.size[count] = v + 1, size
            large += size if is_end and size > SHORT else 0
            count += is_end
            begin = v + 1 if is_end else begin
            size = 0 if is_end else size
            continue
        if is_end:
            count, more = _cut_long(tokens, ids, begin, v + 1, size, blocks, count)
            large += more
            begin = v + 1
            size = 0
    return count, np.int64(TABLED) if large <= MOST_LARGE else np.int64(SHORT)


@njit()
def index_blocks(tokens, store, ids, start, end, blocks, longs):
    """Cut the text ids[start:end] into blocks and find the type of each.

    Returns how many blocks and how many types, or a code of `store` instead of the types. Unbroken
    blocks are appended to ``longs``, a list of `lattice.Edges`; where it is None, the code is RARE.
    The degree of all records is the distance. Writes ``blocks.kind``, ``blocks.record`` and
    ``blocks.times``.
    """
    tokens, store = borrow(tokens), borrow(store)
    ids, blocks = borrow(ids), borrow(blocks)
    count, largest_type = _cut(tokens, ids, start, end, blocks)
    stamp = next_stamp(store)
    types = np.int64(0)
    begin = np.int64(start)
    for w in range(count):
        stop, size = blocks.stop[w], blocks.size[w]
        if size > largest_type:
            if longs is None:
                return count, np.int64(RARE)
            spell(tokens.bytes, tokens.offsets, ids, begin, stop, blocks.text, 0)
            longs.append(priced_edges(tokens, DISTANCE, ids, begin, stop, blocks.text, size))
            blocks.kind[w] = -len(longs)
            begin = stop
            continue
        record = find(store, DISTANCE, ids, begin, stop)
        if record < 0:
            spell(tokens.bytes, tokens.offsets, ids, begin, stop, blocks.text, 0)
            record = insert(store, tokens, DISTANCE, ids[begin:stop], blocks.text[:size])
            if record < 0:
                return count, record
        number = number_of(store, record, stamp)
        if number < 0:
            number = types
            set_number(store, record, stamp, number)
            blocks.record[types], blocks.times[types] = record, 0
            types += 1
        blocks.kind[w] = number
        blocks.times[number] += 1
        begin = stop
    return count, types
