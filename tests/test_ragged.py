"""Rows of ids as two flat arrays, and their way to Arrow and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import robustok as rt


@given(st.lists(st.lists(st.integers(0, 10), max_size=5), max_size=6))
def test_rows_come_back(rows: list[list[int]]) -> None:
    ragged = rt.Ragged.from_rows(rows)
    assert [r.tolist() for r in ragged] == rows
    assert ragged.lengths.tolist() == [len(r) for r in rows]
    if rows:
        assert ragged[-1].tolist() == ragged[np.int64(-1)].tolist() == rows[-1]


@given(
    st.lists(st.lists(st.integers(0, 10), max_size=5), max_size=6),
    st.none() | st.integers(-9, 9),
    st.none() | st.integers(-9, 9),
)
def test_a_slice_is_the_ragged_of_its_rows(rows: list[list[int]], begin, end) -> None:
    ragged = rt.Ragged.from_rows(rows)
    assert ragged[begin:end] == ragged[begin:end:1] == rt.Ragged.from_rows(rows[begin:end])


@pytest.mark.parametrize(
    "index", [slice(None, None, 2), slice(None, None, -1), 0.5, "0", None, [0], np.arange(2)]
)
def test_other_indices_are_errors(index) -> None:
    with pytest.raises(rt.RobustokError, match="an integer or a slice of step 1, not"):
        rt.Ragged.from_rows([[1], [2]])[index]


def test_arrow_columns_of_lists_share_their_memory_and_others_are_refused() -> None:
    pa = pytest.importorskip("pyarrow")
    column = pa.array([[1, 2], [], [3]], pa.large_list(pa.int32()))
    ragged = rt.Ragged.from_arrow(column)
    assert ragged == rt.Ragged.from_rows([[1, 2], [], [3]])
    assert np.shares_memory(column.values.to_numpy(), ragged.values)
    assert rt.Ragged.from_arrow(column.slice(1)) == rt.Ragged.from_rows([[], [3]])
    pairs = pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2))
    assert rt.Ragged.from_arrow(pairs.slice(1)) == rt.Ragged.from_rows([[3, 4], [5, 6]])
    with pytest.raises(rt.RobustokError, match="column of lists of integers is needed"):
        rt.Ragged.from_arrow(pa.array([1, 2]))


def test_wrong_offsets_are_errors() -> None:
    for offsets in ([1, 2], [0, 1], [0, 2, 1, 3]):
        with pytest.raises(rt.RobustokError, match="offsets"):
            rt.Ragged(np.arange(3), np.array(offsets))
    with pytest.raises(IndexError):
        rt.Ragged.from_rows([[1]])[1]
