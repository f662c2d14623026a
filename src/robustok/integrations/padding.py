"""Padding of rows: taken off before a draw, put back after it, and added for plain collators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robustok.integrations.packing import is_per_id

Row = dict[str, Any]


def without_padding(row: Row) -> tuple[Row, int]:
    """A row without the ids at its ends that its mask hides, and how many were on the left.

    >>> without_padding({"input_ids": [0, 5, 6, 0], "attention_mask": [0, 1, 1, 0]})
    ({'input_ids': [5, 6], 'attention_mask': [1, 1]}, 1)
    """
    mask = row.get("attention_mask")
    size = len(row["input_ids"])
    if mask is None or not is_per_id(mask, size):
        return row, 0
    real = np.flatnonzero(np.asarray(mask))
    if not len(real) or len(real) == size:
        return row, 0
    begin, end = int(real[0]), int(real[-1]) + 1
    return {
        name: value[begin:end] if is_per_id(value, size) else value for name, value in row.items()
    }, begin


def with_padding(row: Row, padded_row: Row, left: int) -> Row:
    """``row`` filled up to the length of ``padded_row`` with the padding of that.

    >>> old = {"input_ids": [5, 6, 0, 0], "attention_mask": [1, 1, 0, 0]}
    >>> with_padding({"input_ids": [7, 8, 6], "attention_mask": [1, 1, 1]}, old, left=0)
    {'input_ids': [7, 8, 6, 0], 'attention_mask': [1, 1, 1, 0]}
    """
    size, total = len(row["input_ids"]), len(padded_row["input_ids"])
    missing = total - size
    if missing <= 0:
        return row
    before = min(left, missing)
    filled: Row = {}
    for name, value in row.items():
        if is_per_id(value, size) and is_per_id(padded_row.get(name), total):
            pads = list(padded_row[name])
            filled[name] = [*pads[:before], *value, *pads[total - missing + before :]]
        else:
            filled[name] = value
    return filled


def padded(rows: Sequence[Row], pad_id: int) -> list[Row]:
    """Rows of one length: ids padded on the right, masked, and without labels there.

    Rows with ``position_ids`` get no mask: with one, models attend across packed sequences. Their
    padding has position 0.

    >>> rows = [{"input_ids": [5, 6], "labels": [-100, 6]}, {"input_ids": [7], "labels": [7]}]
    >>> padded(rows, pad_id=0)[1]
    {'input_ids': [7, 0], 'labels': [7, -100], 'attention_mask': [1, 0]}
    """
    longest = max(len(row["input_ids"]) for row in rows)
    fill = {"input_ids": pad_id, "labels": -100}
    results = []
    for row in rows:
        size = len(row["input_ids"])
        if "position_ids" not in row:
            row = {**row, "attention_mask": row.get("attention_mask", [1] * size)}
        results.append({
            name: [*value, *[fill.get(name, 0)] * (longest - size)]
            if is_per_id(value, size)
            else value
            for name, value in row.items()
        })  # fmt: skip
    return results
