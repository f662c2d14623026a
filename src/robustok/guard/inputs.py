"""Checks the id sequences of a caller, concatenates them and cuts them into blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from robustok.checks import shown
from robustok.errors import RobustokError
from robustok.ragged import Ragged

Rows = Ragged | Iterable[Sequence[int] | np.ndarray]
BLOCK = 1 << 18  # ids that are judged at a time
_LARGEST = 2**63 - 1  # an id of more than 64 bits is reported as this one


def flatten(rows: Rows, max_length: int | None) -> tuple[np.ndarray, np.ndarray]:
    """All ids as one integer array, and where each row begins, int64 [rows + 1].

    Raises RobustokError for a row that is not a sequence of integers or has more than
    ``max_length`` of them.
    """
    if isinstance(rows, Ragged):
        lengths = rows.lengths
        if max_length is not None and len(lengths) and lengths.max() > max_length:
            number = int(np.argmax(lengths > max_length))
            raise _too_long(f"sequence {number}: ", int(lengths[number]), max_length)
        return rows.values, rows.offsets
    arrays = [check_row(row, max_length, f"sequence {number}: ") for number, row in enumerate(rows)]
    offsets = np.zeros(len(arrays) + 1, np.int64)
    np.cumsum([len(a) for a in arrays], out=offsets[1:])
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64), offsets


def check_row(row: Any, max_length: int | None, label: str = "") -> np.ndarray:
    """One id sequence as int64; ``label`` begins the message of an error."""
    if max_length is not None and hasattr(row, "__len__") and len(row) > max_length:
        raise _too_long(label, len(row), max_length)
    try:
        ids = _as_array(row)
    except ValueError:  # rows of different lengths inside one sequence
        raise RobustokError(f"{label}token ids are a list of integers, not {shown(row)}") from None
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise RobustokError(f"{label}token ids are a list of integers, not {shown(row)}")
    if ids.dtype == np.uint64:
        ids = np.minimum(ids, np.uint64(_LARGEST))
    return ids.astype(np.int64)


def _as_array(row: Any) -> np.ndarray:
    ids = np.asarray(row)
    if isinstance(row, np.ndarray) or ids.dtype.kind == "i":
        return ids
    # numpy makes floats or objects of integers that do not fit int64.
    ids = np.array(row, object)
    if ids.ndim != 1 or not all(type(i) is int or isinstance(i, np.integer) for i in ids):
        return np.asarray(row)
    return np.array([max(min(int(i), _LARGEST), -_LARGEST) for i in ids], np.int64)


def _too_long(label: str, length: int, max_length: int) -> RobustokError:
    return RobustokError(
        f"{label}{length} ids, the guard takes at most {max_length}: shorten the sequence or raise "
        "max_length"
    )


def blocks_of(offsets: np.ndarray) -> Iterator[tuple[int, int]]:
    """First and last row of each block of about ``BLOCK`` ids, one row at least."""
    first = 0
    while first < len(offsets) - 1:
        last = int(np.searchsorted(offsets, offsets[first] + BLOCK, "right")) - 1
        last = max(last, first + 1)
        yield first, last
        first = last


class Kept(NamedTuple):
    """The ids of a block that the vocabulary has."""

    ids: np.ndarray  # int32 [kept]
    position: np.ndarray  # int64 [kept]: in the given ids
    offsets: np.ndarray  # int64 [rows + 1]: where each row begins in ``ids``

    def given(self, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Begin and end in the given ids of stretches of ``ids``, none of them empty."""
        return self.position[begin], self.position[end - 1] + 1

    def row_of_given(self, position: np.ndarray) -> np.ndarray:
        """The row of each position in the given ids that is a kept one."""
        kept = np.searchsorted(self.position, position)
        return np.searchsorted(self.offsets, kept, "right") - 1


def keep_known(given: np.ndarray, offsets: np.ndarray, known: np.ndarray) -> Kept:
    """The ids of a block that are ``known`` (bool [ids]); rows begin at ``offsets``."""
    before = np.concatenate([[0], np.cumsum(known)])
    return Kept(given[known].astype(np.int32), np.flatnonzero(known), before[offsets])
