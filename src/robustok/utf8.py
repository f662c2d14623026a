"""Find the bytes of a text that are not UTF-8, in one pass."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def broken_stretches(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    r"""Begin and end of each maximal stretch of bytes that are not part of a UTF-8 character.

    >>> broken_stretches(b"a\xff\xfeb\xc3")
    (array([1, 4]), array([3, 5]))

    Both arrays are int64, in ascending order, in bytes. They are empty for valid UTF-8. The time is
    linear in the length of ``data``.
    """
    try:
        data.decode("utf8")
    except UnicodeDecodeError as e:
        start = e.start
    else:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    # The codec turns each invalid byte b into the lone surrogate U+DC00 + b, at C speed.
    escaped = data[start:].decode("utf8", "surrogateescape").encode("utf-32-le", "surrogatepass")
    code = np.frombuffer(escaped, np.dtype("<u4"))
    broken = (code >= 0xDC80) & (code <= 0xDCFF)
    size = np.ones(len(code), np.int64)
    for first in (0x80, 0x800, 0x10000):
        size += (code >= first) & ~broken
    offsets = start + np.concatenate([[0], np.cumsum(size)])
    padded = np.zeros(len(broken) + 2, np.int8)
    padded[1:-1] = broken
    edges = offsets[np.flatnonzero(np.diff(padded))]
    return edges[0::2], edges[1::2]


def split_at_broken(data: bytes) -> Iterator[tuple[int, int, bool]]:
    r"""Begin and end of all valid and broken stretches in turn, and whether each is valid.

    >>> list(split_at_broken(b"a\xff\xfeb"))
    [(0, 1, True), (1, 3, False), (3, 4, True)]
    """
    position = 0
    for begin, end in zip(*(edges.tolist() for edges in broken_stretches(data)), strict=True):
        if begin > position:
            yield position, begin, True
        yield begin, end, False
        position = end
    if position < len(data):
        yield position, len(data), True
