"""A text cut into words and their types, the part of a draw at an exact cost that reads the text.

A word is a block of the lattice, between positions that no token spans. Equal words are one type,
whose tokenizations by degree are a record of the store. Large words are lattices of their own.

``words``: `Words`. ``ids``: int32, of which the text is ids[start:end].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.batch import borrow_tokens, spell
from robustok.kernels.compiler.jit import njit
from robustok.kernels.memory import borrow
from robustok.kernels.record import next_stamp, number_of, set_number
from robustok.kernels.tables import borrow_store, find, insert, priced_edges
from robustok.kernels.words import LONG, word_ends

TABLED = 256  # bytes of the longest word whose distances are tabled
SHORT = 24  # the same in a text of which over MOST_LARGE bytes are in longer words
MOST_LARGE = 1 << 16  # their tables take up to 1 kB a byte


class Words(NamedTuple):
    """A text cut into words: blocks of the lattice, between positions that no token spans.

    Sized for the longest text of a call: ``text`` and ``ends`` by its bytes, the others by its
    tokens. A text has at most as many words as tokens, and at most as many types as words.
    """

    text: np.ndarray  # uint8: bytes of one word
    ends: np.ndarray  # int64: cut positions within one stretch of bytes
    stop: np.ndarray  # int64: index of the token after each word
    size: np.ndarray  # int64: bytes of each word
    kind: np.ndarray  # int64: type of each word, or -1 - i for the i-th unbroken one
    record: np.ndarray  # int64: record of each type in the store
    times: np.ndarray  # int64: how often each type occurs


@njit(cache=True, nogil=True)
def _borrow_words(words):
    """The same words without reference counts; see `memory`."""
    return Words(
        borrow(words.text), borrow(words.ends), borrow(words.stop), borrow(words.size),
        borrow(words.kind), borrow(words.record), borrow(words.times),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def new_words(tokens, batch, first, last):
    """`Words` for the longest of the texts first..last."""
    most_tokens, most_bytes = np.int64(0), np.int64(0)
    for t in range(first, last):
        begin, end = batch.offsets[t], batch.offsets[t + 1]
        most_tokens = max(most_tokens, end - begin)
        size = np.int64(0)
        for v in range(begin, end):
            size += tokens.offsets[batch.values[v] + 1] - tokens.offsets[batch.values[v]]
        most_bytes = max(most_bytes, size)
    return Words(
        np.empty(most_bytes, np.uint8), np.empty(most_bytes, np.int64),
        np.empty(most_tokens, np.int64), np.empty(most_tokens, np.int64),
        np.empty(most_tokens, np.int64), np.empty(most_tokens, np.int64),
        np.empty(most_tokens, np.int64),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _cut_words(tokens, ids, start, end, words):
    """Cut the text ids[start:end] into words; returns how many, and the largest size of a type.

    A word ends where no token holds the two bytes that meet; a long one is searched for further
    cuts. Larger words are unbroken. The size depends on the text alone, never on the store, so that
    draws do not depend on the batch. Writes ``words.stop`` and ``words.size``.
    """
    tokens, ids, words = borrow_tokens(tokens), borrow(ids), _borrow_words(words)
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
            words.stop[count], words.size[count] = v + 1, size
            large += size if is_end and size > SHORT else 0
            count += is_end
            begin = v + 1 if is_end else begin
            size = 0 if is_end else size
            continue
        if is_end:
            spell(tokens.bytes, tokens.offsets, ids, begin, v + 1, words.text, 0)
            position, stop, previous = np.int64(0), begin, np.int64(0)
            for c in range(word_ends(tokens.trie, words.text, 0, size, words.ends)):
                while position < words.ends[c]:
                    position += tokens.offsets[ids[stop] + 1] - tokens.offsets[ids[stop]]
                    stop += 1
                words.stop[count], words.size[count] = stop, position - previous
                large += position - previous if position - previous > SHORT else 0
                previous = position
                count += 1
            begin = v + 1
            size = 0
    return count, np.int64(TABLED) if large <= MOST_LARGE else np.int64(SHORT)


@njit(cache=True, nogil=True)
def index_words(tokens, store, mode, ids, start, end, words, longs):
    """Cut the text ids[start:end] into words and find the type of each.

    Returns how many words and how many types, or a code of `tables` instead of the types. Unbroken
    words are appended to ``longs``, a list of `long.Edges`. ``mode``: what the degree of all
    records of the store counts. Writes ``words.kind``, ``words.record`` and ``words.times``.
    """
    tokens, store, ids, words = (
        borrow_tokens(tokens), borrow_store(store), borrow(ids), _borrow_words(words)
    )  # fmt: skip
    count, largest_type = _cut_words(tokens, ids, start, end, words)
    stamp = next_stamp(store)
    types = np.int64(0)
    begin = np.int64(start)
    for w in range(count):
        stop, size = words.stop[w], words.size[w]
        if size > largest_type:
            spell(tokens.bytes, tokens.offsets, ids, begin, stop, words.text, 0)
            longs.append(priced_edges(tokens, mode, ids, begin, stop, words.text, size))
            words.kind[w] = -len(longs)
            begin = stop
            continue
        record = find(store, mode, ids, begin, stop)
        if record < 0:
            spell(tokens.bytes, tokens.offsets, ids, begin, stop, words.text, 0)
            record = insert(store, tokens, mode, ids[begin:stop], words.text[:size])
            if record < 0:
                return count, record
        number = number_of(store, record, stamp)
        if number < 0:
            number = types
            set_number(store, record, stamp, number)
            words.record[types], words.times[types] = record, 0
            types += 1
        words.kind[w] = number
        words.times[number] += 1
        begin = stop
    return count, types
