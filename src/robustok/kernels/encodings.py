"""Rewrites the state of a `tokenizers.Encoding`, which is JSON, for other ids of the same bytes.

The lists of the canonical ids are read, both id sequences are walked byte by byte, and the lists of
the new ids are written. A new token has the word of the canonical token that its first byte belongs
to, and the offsets of the characters that its first and its last byte belong to.

Characters are counted by canonical token. Where its bytes touch as many characters as its offsets
span, each lead byte begins the next one; a space that the tokenizer put before the text shares the
span of the first character. Otherwise the normalizer changed the text, and all bytes have the
offsets of the token.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.batch import copy_to
from robustok.kernels.compiler import borrow, njit
from robustok.kernels.json_ids import write_number

_QUOTE, _BACKSLASH, _COMMA, _OPEN, _CLOSE, _ZERO, _NINE, _N, _SPACE = (ord(c) for c in '"\\,[]09n ')
# What stands before each list of the state, and after the last one.
_IDS, _TYPES, _STRINGS, _WORDS, _OFFSETS, _SPECIAL, _ATTENTION, _END = (
    np.frombuffer(text, np.uint8)
    for text in (
        b'{"ids":[', b'],"type_ids":[', b'],"tokens":[', b'],"words":[', b'],"offsets":[',
        b'],"special_tokens_mask":[', b'],"attention_mask":[',
        b'],"overflowing":[],"sequence_ranges":{}}',
    )
)  # fmt: skip
_NULL = np.frombuffer(b"null", np.uint8)
_MOST = np.int64(10**15)  # larger numbers are read as this one
_FRAME = 256  # at least the bytes of what stands before and after the lists
_NUMBERS = 112  # at least those of a token without its string: 5 numbers of 16 digits, commas


class Lists(NamedTuple):
    """The lists of an encoding, an entry a token, as far as they follow from no id."""

    strings: np.ndarray  # int64 [tokens, 2]: where the token string begins and ends in the state
    words: np.ndarray  # int64 [tokens]: -1 for null
    offsets: np.ndarray  # int64 [tokens, 2]: in characters


@njit()
def rewrite(state, old, new, token_bytes, token_offsets, names, name_offsets, type_id):
    """The state of an encoding after its ids ``old`` became ``new``, uint8 [bytes].

    ``state``: uint8 [bytes], as `Encoding.__getstate__` returns it. ``old``, ``new``: int32 [ids],
    of the vocabulary, that spell the same bytes, a token without bytes counted as one. ``names``:
    uint8 [bytes], all token strings in JSON. ``name_offsets``: int64 [vocabulary + 1]; the string
    of id i is names[name_offsets[i]:name_offsets[i + 1] - 1]. ``type_id``: int64, of all tokens.

    Returns no bytes where ``state`` is not what this release of the library writes for ``old``, or
    the ids have another number of bytes: every position is compared with the ends of the arrays.
    """
    state, old, new = borrow(state), borrow(old), borrow(new)
    token_bytes, token_offsets = borrow(token_bytes), borrow(token_offsets)
    names, name_offsets = borrow(names), borrow(name_offsets)
    m, n = len(old), len(new)
    given = Lists(np.empty((m, 2), np.int64), np.empty(m, np.int64), np.empty((m, 2), np.int64))
    lists = Lists(np.empty((n, 2), np.int64), np.empty(n, np.int64), np.empty((n, 2), np.int64))
    if not _read(state, old, given):
        return np.empty(0, np.uint8)
    if not _align(old, new, token_bytes, token_offsets, given, lists):
        return np.empty(0, np.uint8)
    capacity = np.int64(_FRAME + len(state) + _NUMBERS * n)
    for t in new:
        capacity += name_offsets[t + 1] - name_offsets[t]
    out = np.empty(capacity, np.uint8)
    end = _write(state, new, names, name_offsets, type_id, lists, out)
    return out[:end]


@njit()
def _read(state, old, given):
    """Read the lists of ``old`` from ``state`` to ``given``, `Lists`; returns whether they are all.

    ``state`` and ``old`` are those of `rewrite`.
    """
    state, old, given = borrow(state), borrow(old), borrow(given)
    at = _read_numbers(state, np.int64(0), _IDS, given.words)
    if (given.words != old).any():
        return False
    at = _read_numbers(state, at, _TYPES, given.words)
    at = _after(state, at, _STRINGS)
    for i in range(len(old)):
        given.strings[i, 0] = at + (i > 0)
        at += (i > 0) + 1
        while at < len(state) and state[at] != _QUOTE:
            at += 2 if state[at] == _BACKSLASH else 1
        at = min(at + 1, np.int64(len(state)))
        given.strings[i, 1] = at
    at = _read_numbers(state, at, _WORDS, given.words)
    at = _after(state, at, _OFFSETS)
    for i in range(len(old)):
        given.offsets[i, 0], at = _number(state, at + (i > 0) + 1)
        given.offsets[i, 1], at = _number(state, at + 1)
        at += 1
    return _after(state, at, _SPECIAL) < len(state)


@njit()
def _read_numbers(state, at, head, numbers):
    """Read ``numbers`` (int64 [tokens]), commas between them, after ``head``; returns the end.

    ``state``: uint8 [bytes]. ``head``: uint8 [bytes], what stands at ``state[at]``.
    """
    at = _after(state, at, head)
    for i in range(len(numbers)):
        numbers[i], at = _number(state, at + (i > 0))
    return at


@njit()
def _after(state, at, text):
    """The end of ``text`` (uint8 [bytes]) at ``state[at]``, that of the state for other bytes."""
    state, text = borrow(state), borrow(text)
    if at + len(text) > len(state):
        return len(state)
    for i in range(len(text)):
        if state[at + i] != text[i]:
            return len(state)
    return at + len(text)


@njit()
def _number(state, at):
    """The digits at ``state[at]`` (uint8 [bytes]) as an int64, -1 for null, and where they end."""
    if at < len(state) and state[at] == _N:
        return np.int64(-1), at + 4
    number = np.int64(0)
    while at < len(state) and _ZERO <= state[at] <= _NINE:
        number = min(number * 10 + np.int64(state[at]) - _ZERO, _MOST)
        at += 1
    return number, at


@njit()
def _align(old, new, token_bytes, token_offsets, given, lists):
    """Fill the lists of the new ids from those of the canonical ones.

    The string of a token that is not the canonical one begins at -1. Returns whether both sequences
    have equally many bytes. ``given``: `Lists` of ``old``. ``lists``: `Lists` of ``new``. ``old``
    and ``new``: int32 [ids], those of `rewrite`.
    """
    old, new, given, lists = borrow(old), borrow(new), borrow(given), borrow(lists)
    token_bytes, token_offsets = borrow(token_bytes), borrow(token_offsets)
    j = np.int64(-1)  # the canonical token
    at = end = np.int64(0)  # its next byte and its end in token_bytes
    low = high = np.int64(0)  # the span of its last character
    space = np.int64(0)  # 1 until the first character after a space that was put before the text
    is_counted = False
    for i in range(len(new)):
        begins = at == end
        first = j + np.int64(begins)
        for b in range(_size(token_offsets, new[i])):
            if at == end:
                j += 1
                if j == len(old):
                    return False
                at = token_offsets[old[j]]
                end = at + _size(token_offsets, old[j])
                low, high = given.offsets[j, 0], given.offsets[j, 1]
                touched = _touched(token_bytes, at, token_offsets[old[j] + 1])
                added = touched > 0 and touched - (high - low) == 1
                space = np.int64(added and token_bytes[at] == _SPACE)
                is_counted = touched > 0 and touched - (high - low) == space
                if is_counted:
                    high = low + 1
            elif is_counted and _is_lead(token_bytes[at]):
                low += 1 - space
                high += 1 - space
                space = np.int64(0)
            if b == 0:
                lists.offsets[i, 0] = low
            at += 1
        lists.offsets[i, 1] = max(lists.offsets[i, 0], high)
        lists.words[i] = given.words[first]
        lists.strings[i, 0] = -1
        if begins and at == end and first == j and old[j] == new[i]:
            lists.strings[i] = given.strings[j]
            lists.offsets[i] = given.offsets[j]
    return at == end and j == len(old) - 1


@njit(inline="always")
def _size(token_offsets, token):
    """The bytes of a token (an id of the vocabulary), one for a token without any; int64."""
    return max(token_offsets[token + 1] - token_offsets[token], 1)


@njit(inline="always")
def _is_lead(byte):
    """Whether a byte (uint8) begins a character."""
    return byte & 0xC0 != 0x80


@njit()
def _touched(token_bytes, begin, end):
    """The characters, int64, that the bytes from ``begin`` to ``end`` belong to."""
    token_bytes = borrow(token_bytes)
    count = np.int64(0)
    for at in range(begin, end):
        count += at == begin or _is_lead(token_bytes[at])
    return count


@njit()
def _write(state, new, names, name_offsets, type_id, lists, out):
    """Write the state of ``new`` to ``out`` (uint8 [capacity]); returns where it ends.

    The capacity is that of `rewrite`: a string of the state is copied at most once. ``lists``:
    `Lists` of ``new``. ``state``, ``new``, ``names``, ``name_offsets`` and ``type_id`` are those of
    `rewrite`.
    """
    state, new, lists, out = borrow(state), borrow(new), borrow(lists), borrow(out)
    names, name_offsets = borrow(names), borrow(name_offsets)
    n = len(new)
    end = _write_numbers(_IDS, new.astype(np.int64), out, np.int64(0))
    end = _write_numbers(_TYPES, np.full(n, type_id), out, end)
    end = _append(_STRINGS, out, end)
    for i in range(n):
        end = _comma(out, end, i)
        begin = lists.strings[i, 0]
        if begin >= 0:
            end = _append(state[begin : lists.strings[i, 1]], out, end)
        else:
            string = names[name_offsets[new[i]] : name_offsets[new[i] + 1] - 1]
            end = _append(string, out, end)
    end = _write_numbers(_WORDS, lists.words, out, end)
    end = _append(_OFFSETS, out, end)
    for i in range(n):
        end = _comma(out, end, i)
        out[end] = _OPEN
        end = write_number(out, end + 1, lists.offsets[i, 0])
        out[end] = _COMMA
        end = write_number(out, end + 1, lists.offsets[i, 1])
        out[end] = _CLOSE
        end += 1
    end = _write_numbers(_SPECIAL, np.zeros(n, np.int64), out, end)
    end = _write_numbers(_ATTENTION, np.ones(n, np.int64), out, end)
    return _append(_END, out, end)


@njit()
def _write_numbers(head, numbers, out, end):
    """Write ``head`` and ``numbers`` to ``out`` from index ``end`` on; returns where they end.

    ``head``: uint8 [bytes]. ``numbers``: int64 [tokens], -1 for null. ``out``: uint8 [capacity],
    with space for them.
    """
    numbers, out = borrow(numbers), borrow(out)
    end = _append(head, out, end)
    for i in range(len(numbers)):
        end = _comma(out, end, i)
        end = _append(_NULL, out, end) if numbers[i] < 0 else write_number(out, end, numbers[i])
    return end


@njit()
def _append(text, out, end):
    """Write ``text`` to ``out`` from index ``end`` on; returns where it ends.

    ``text``: uint8 [bytes]. ``out``: uint8 [capacity], with space for it.
    """
    text, out = borrow(text), borrow(out)
    copy_to(text, len(text), out, end)
    return end + len(text)


@njit(inline="always")
def _comma(out, end, i):
    """Write the comma before entry ``i`` of a list to ``out`` (uint8 [bytes]); returns the end."""
    if i:
        out[end] = _COMMA
        end += 1
    return end
