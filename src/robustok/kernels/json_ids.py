"""Finds the lists of integers in a JSON text, without making an object for each number.

A JSON parser holds the interpreter lock while it makes an object for each value: half a second to
two seconds for 16 MB of short lists, and 20 to 45 milliseconds for 16 MB of strings. This scan
releases the lock, copies the text, and replaces each list that holds only integers by ``[number of
the list]``, and each string that is a value by one that says whether an integer could be read from
it. A JSON parser then reads the copy: it is valid JSON exactly where the text is, for a value took
the place of a value. One pass: a list that turns out to hold something else ends at that byte, and
no later list begins before it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

import numpy as np

from robustok.kernels.compiler import borrow, njit
from robustok.kernels.pre_tokens import decode_character

SCANNED, TOO_MANY, TOO_DEEP = range(3)  # states that `scan` returns
LARGEST = 2**31 - 1  # integers beyond it, and beyond its negative, are stored as these
LONG_KEY = 256  # bytes of a key from which on another one takes its place
_LONGEST = 12  # bytes that a replaced list may take more than the list itself
_TEXT, _NUMBER, _BROKEN = range(3)  # what `_string` returns
_OTHER, _BESIDE, _DIGIT = range(3)  # kinds of characters in the spelling of an integer
_CODES = 0x20000  # code points from here on are `_OTHER`
_QUOTE, _BACKSLASH, _SLASH, _COMMA, _COLON, _ZERO, _NINE = (ord(c) for c in '"\\/,:09')
_MINUS, _U, _B, _F, _N, _R, _T = (ord(c) for c in "-ubfnrt")
_OPEN, _CLOSE, _OPEN_OBJECT, _CLOSE_OBJECT = (ord(c) for c in "[]{}")
_SPACE, _TAB, _LINE_FEED, _RETURN, _DELETE = 32, 9, 10, 13, 127


class Lists(NamedTuple):
    """The lists of integers of a text: list i is ``values[offsets[i]:offsets[i + 1]]``."""

    state: int  # SCANNED, or the limit that stopped the scan
    skeleton: bytes  # the text with `[i]` in place of list i, and short strings
    values: np.ndarray  # int32 [integers]
    offsets: np.ndarray  # int64 [lists + 1]
    spans: np.ndarray  # int64 [lists, 2]: where each list begins and ends in the text


def find_lists(text, max_values, max_depth):
    """The lists of integers of a JSON text; see `scan` for the limits.

    >>> find_lists(b'{"a": [5, 6], "b": [7, "c"]}', 100, 10)[:2]
    (0, b'{"a": [0], "b": [7, ""]}')
    """
    data = np.frombuffer(text, np.uint8)
    data.flags.writeable = False  # one type to compile for, of bytes and of a bytearray
    most = min(max_values, len(data))
    skeleton = np.empty(len(data) + _LONGEST * (most + 1), np.uint8)
    values = np.empty(len(data) // 2 + 1, np.int32)
    spans, offsets = np.empty((most, 2), np.int64), np.empty(most + 1, np.int64)
    state, end, lists = scan(data, skeleton, values, spans, offsets, max_depth, _kinds())
    offsets = offsets[: lists + 1]
    return Lists(state, skeleton[:end].tobytes(), values[: offsets[-1]], offsets, spans[:lists])


@cache
def _kinds():
    """uint8 [_CODES]: whether a lax reader of integers accepts each character in one."""
    kinds = np.full(_CODES, _OTHER, np.uint8)
    characters = "".join(map(chr, range(_CODES)))
    for pattern, kind in ((r"[\s+\-_.]", _BESIDE), (r"\d", _DIGIT)):
        kinds[[match.start() for match in re.finditer(pattern, characters)]] = kind
    return kinds


@njit()
def scan(text, skeleton, values, spans, offsets, max_depth, kinds):
    """Copy a JSON text, each list of integers replaced by ``[its number]``.

    A string that is a value becomes ``"0"`` where it has a digit and nothing but characters that a
    lax reader of integers accepts, else ``""``. A key of more than `LONG_KEY` bytes with its quotes
    becomes a name of `LONG_KEY` - 1 characters, which no other key has. A string that is no JSON
    becomes one that is none either.

    ``text``: uint8 [bytes], UTF-8. ``skeleton``: uint8 [bytes + _LONGEST * (spans + 1)], where the
    copy is written. ``values``: int32 [bytes // 2 + 1], where the integers of all lists are
    written; a list of n integers has at least 2 n bytes. ``spans``: int64 [most, 2], where each
    list begins and ends in the text; ``most`` also limits the values of the skeleton, counted as
    its commas, colons and opening brackets outside of strings. ``offsets``: int64 [most + 1]; list
    i holds ``values[offsets[i]:offsets[i + 1]]``. ``max_depth``: greatest number of open brackets.
    ``kinds``: uint8 [_CODES], the kind of each character.

    Returns the state, the length of the skeleton and the number of lists. Where the state is
    `TOO_MANY` or `TOO_DEEP` the scan stopped there.
    """
    text, skeleton = borrow(text), borrow(skeleton)
    values, spans, offsets = borrow(values), borrow(spans), borrow(offsets)
    kinds = borrow(kinds)
    size, most = len(text), len(spans)
    at = np.int64(0)  # in the text
    end = np.int64(0)  # of the skeleton
    lists = np.int64(0)
    n_values = np.int64(0)  # of the skeleton
    depth = np.int64(0)
    offsets[0] = 0
    while at < size:
        byte = np.int64(text[at])
        if byte == _QUOTE:
            after, state = _string(text, at, kinds)
            following = _skip(text, after)
            is_key = following < size and text[following] == _COLON
            if is_key and after - at <= LONG_KEY:
                skeleton[end : end + after - at] = text[at:after]
                end += after - at
            else:
                end = _write_string(skeleton, end, state, at if is_key else np.int64(-1))
            at = after
            continue
        if byte in (_COMMA, _COLON, _OPEN, _OPEN_OBJECT):
            n_values += 1
            if n_values > most:
                return TOO_MANY, end, lists
        if byte == _OPEN:
            after, last = _integers(text, at, values, offsets[lists])
            if after > 0:
                spans[lists, 0] = at
                spans[lists, 1] = after
                skeleton[end] = _OPEN
                end = write_number(skeleton, end + 1, lists)
                skeleton[end] = _CLOSE
                end += 1
                lists += 1
                offsets[lists] = last
                at = after
                continue
        if byte in (_OPEN, _OPEN_OBJECT):
            depth += 1
            if depth > max_depth:
                return TOO_DEEP, end, lists
        elif byte in (_CLOSE, _CLOSE_OBJECT):
            depth -= 1
        skeleton[end] = byte
        end += 1
        at += 1
    return SCANNED, end, lists


@njit()
def _string(text, at, kinds):
    """The string that opens at ``text[at]``; ``text`` and ``kinds`` are those of `scan`.

    Returns where it ends, and `_BROKEN` for what no JSON text holds, `_NUMBER` where it has a digit
    and nothing but characters in the spelling of an integer, else `_TEXT`.
    """
    size = len(text)
    at += 1
    has_digit = has_other = is_broken = False
    while at < size and text[at] != _QUOTE:
        byte = np.int64(text[at])
        if byte == _BACKSLASH:
            code, at = _escaped(text, at)
        elif byte >= 128:
            code, length = decode_character(text, at, size)
            code, at = (code, at + length) if length else (np.int64(-1), at + 1)
        else:
            code = byte if byte >= _SPACE else np.int64(-1)
            at += 1
        if code < 0:
            is_broken = True
        elif code >= _CODES or kinds[code] == _OTHER:
            has_other = True
        elif kinds[code] == _DIGIT:
            has_digit = True
    if is_broken or at >= size:
        return min(at + 1, size), _BROKEN
    return at + 1, _NUMBER if has_digit and not has_other else _TEXT


@njit()
def _write_string(skeleton, end, state, number):
    """Write what takes the place of a string to ``skeleton`` (uint8 [capacity]) from ``end`` on.

    ``state``: that of `_string`. ``number``: where the string begins if it is a key, else -1.
    Returns where it ends: not more bytes than the string has, but two where the text ends with it.
    """
    skeleton[end] = _QUOTE
    end += 1
    if state == _BROKEN:
        skeleton[end] = 0  # in no string of JSON
        end += 1
    elif number >= 0:  # the number and as many deletes as no key that is kept can hold
        after = end + LONG_KEY - 1
        end = write_number(skeleton, end, number)
        skeleton[end:after] = _DELETE
        end = after
    elif state == _NUMBER:
        skeleton[end] = _ZERO
        end += 1
    skeleton[end] = _QUOTE
    return end + 1


@njit()
def _escaped(text, at):
    """The code point that the escape at ``text[at]`` stands for, -1 for none, and where it ends.

    ``text``: uint8 [bytes].
    """
    if at + 1 >= len(text):
        return np.int64(-1), at + 2
    byte = np.int64(text[at + 1])
    if byte == _U:
        code = _hexadecimal(text, at + 2)
        if code < 0:
            return code, at + 2
        is_pair = 0xD800 <= code < 0xDC00 and at + 7 < len(text)
        if is_pair and text[at + 6] == _BACKSLASH and text[at + 7] == _U:
            low = _hexadecimal(text, at + 8)
            if 0xDC00 <= low < 0xE000:
                return 0x10000 + (code - 0xD800) * 0x400 + low - 0xDC00, at + 12
        return code, at + 6
    if byte in (_N, _R, _T, _F):
        return np.int64(_SPACE), at + 2  # white space like it
    if byte in (_QUOTE, _BACKSLASH, _SLASH, _B):
        return np.int64(_QUOTE), at + 2  # in no integer, like it
    return np.int64(-1), at + 2


@njit()
def _hexadecimal(text, at):
    """The value of the four digits at ``text[at]`` (uint8 [bytes]), -1 where they are none."""
    if at + 4 > len(text):
        return np.int64(-1)
    code = np.int64(0)
    for i in range(at, at + 4):
        byte = np.int64(text[i])
        if _ZERO <= byte <= _NINE:
            digit = byte - _ZERO
        else:
            digit = (byte | 32) - 87  # of a letter, in lower case
            if digit < 10 or digit > 15:
                return np.int64(-1)
        code = code * 16 + digit
    return code


@njit()
def _integers(text, at, values, last):
    """The list of integers that opens at ``text[at]``.

    ``text`` (uint8 [bytes]) and ``values`` (int32 [capacity]) are those of `scan`; the integers are
    written from ``values[last]`` on. Returns where the list ends in the text, 0 where it holds
    anything but integers as JSON spells them, and where its integers end.
    """
    size = len(text)
    at = _skip(text, at + 1)
    if at < size and text[at] == _CLOSE:
        return at + 1, last
    while at < size:
        sign = np.int64(1)
        if text[at] == _MINUS:
            sign = np.int64(-1)
            at += 1
        first = at
        value = np.int64(0)
        while at < size and _ZERO <= text[at] <= _NINE:
            value = min(value * 10 + np.int64(text[at]) - _ZERO, np.int64(LARGEST))
            at += 1
        if at == first or (text[first] == _ZERO and at > first + 1):
            return np.int64(0), last
        values[last] = sign * value
        last += 1
        at = _skip(text, at)
        if at == size:
            break
        if text[at] == _CLOSE:
            return at + 1, last
        if text[at] != _COMMA:
            break
        at = _skip(text, at + 1)
    return np.int64(0), last


@njit()
def _skip(text, at):
    """The first byte from ``at`` on of ``text`` (uint8 [bytes]) that is no JSON white space."""
    while at < len(text) and (
        text[at] == _SPACE or text[at] == _LINE_FEED or text[at] == _TAB or text[at] == _RETURN
    ):
        at += 1
    return at


@njit()
def write_number(skeleton, end, number):
    """Write ``number`` in decimal digits to ``skeleton`` (uint8 [capacity]) from ``end`` on.

    Returns where it ends.
    """
    digits = np.int64(1)
    power = np.int64(10)
    while number >= power:
        digits += 1
        power *= 10
    for i in range(digits):
        skeleton[end + digits - 1 - i] = _ZERO + number % 10
        number //= 10
    return end + digits
