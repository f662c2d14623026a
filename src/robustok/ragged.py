"""A batch of id sequences of different lengths, as two flat arrays."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, overload

import numpy as np

from robustok.checks import check_id_rows, check_ids, check_offsets, shown
from robustok.errors import RobustokError


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of token ids: row ``i`` is ``values[offsets[i]:offsets[i + 1]]``.

    >>> r = Ragged.from_rows([[5, 6], [], [7]])
    >>> len(r), r[0], r.lengths
    (3, array([5, 6], dtype=int32), array([2, 0, 1]))
    >>> r[1:]
    Ragged(2 rows, 1 ids)

    ``values`` is int32 of shape [total], ``offsets`` int64 of shape [rows + 1],
    starting at 0 and never falling; both are the memory layout of an Arrow
    ``large_list<int32>``.
    """

    values: np.ndarray
    offsets: np.ndarray

    def __post_init__(self) -> None:
        values, offsets = check_ids(self.values), check_offsets(self.offsets)
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(values):
            raise RobustokError("ragged offsets must start at 0 and end at the number of values")
        if np.any(np.diff(offsets) < 0):
            raise RobustokError(
                "ragged offsets must never fall: each row ends where the next starts"
            )
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "offsets", offsets)

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[int] | np.ndarray]) -> Ragged:
        """Pack a list of id sequences; raises RobustokError for anything else.

        >>> Ragged.from_rows([[1], [2, 3]]).offsets
        array([0, 1, 3])
        """
        return cls(*check_id_rows(rows))

    @classmethod
    def from_arrow(cls, column: Any) -> Ragged:
        """Wrap an Arrow list column of integers; int32 without nulls is not copied."""
        import pyarrow as pa

        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        kind = column.type
        if pa.types.is_fixed_size_list(kind):
            column = column.cast(pa.large_list(kind.value_type))
        elif not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            raise RobustokError(f"an Arrow column of lists of integers is needed here, not {kind}")
        if column.null_count:
            raise RobustokError("the Arrow column has null rows: fill or drop them first")
        offsets = column.offsets.to_numpy().astype(np.int64, copy=False)
        values = column.values.to_numpy(zero_copy_only=False)
        return cls(values[offsets[0] : offsets[-1]], offsets - offsets[0])

    @property
    def lengths(self) -> np.ndarray:
        """Number of ids of each row, int64 of shape [rows]."""
        return np.diff(self.offsets)

    def left_padded(self, pad_id: int = 0) -> np.ndarray:
        """All rows as one array, int64 [rows, longest], padded on the left.

        >>> Ragged.from_rows([[5, 6], [7]]).left_padded()
        array([[5, 6],
               [0, 7]])

        Args:
            pad_id: the id in front of shorter rows.
        """
        longest = int(self.lengths.max(initial=0))
        padded = np.full((len(self), longest), pad_id, np.int64)
        for number, row in enumerate(self):
            padded[number, longest - len(row) :] = row
        return padded

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: SupportsIndex) -> np.ndarray: ...
    @overload
    def __getitem__(self, index: slice) -> Ragged: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice) and index.step in (None, 1):
            begin, end, _ = index.indices(len(self))
            offsets = self.offsets[begin : max(begin, end) + 1]  # on the same values
            return Ragged(self.values[offsets[0] : offsets[-1]], offsets - offsets[0])
        row = _integer(index)
        if row < 0:
            row += len(self)
        if not 0 <= row < len(self):
            raise IndexError(f"row {index} of a batch of {len(self)}")
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        for i in range(len(self)):
            yield self.values[self.offsets[i] : self.offsets[i + 1]]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Ragged)
            and np.array_equal(self.offsets, other.offsets)
            and np.array_equal(self.values, other.values)
        )

    def __repr__(self) -> str:
        return f"Ragged({len(self)} rows, {len(self.values)} ids)"


def _integer(index: Any) -> int:
    try:
        return operator.index(index)
    except TypeError:
        message = f"a row is an integer or a slice of step 1, not {shown(index)}"
        raise RobustokError(message) from None
