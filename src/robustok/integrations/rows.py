"""Rows of training data: texts are encoded, padding is taken off and put back, packs are split.

Rows that hold several sequences are split into them before a draw, and joined again after it. Known
forms: ``seq_lengths`` (TRL's `bfd` and `bfd_split`), ``position_ids`` that restart at 0
(padding-free rows), and an ``attention_mask`` that numbers the sequences. Other packed rows are
refused: a drawn token could cross a boundary, and the boundaries would be wrong afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from robustok.errors import RobustokError

Row = dict[str, Any]

# Boundaries of packed sequences that are not understood.
_UNKNOWN = (
    "cu_seq_lens_q",
    "cu_seq_lens_k",
    "cu_seqlens",
    "seq_idx",
    "sequence_ids",
    "segment_ids",
)


def with_ids(row: Row, tokenizer: Any, column: str, max_length: int | None) -> Row:
    """A row with ``input_ids``: those of its text, cut to ``max_length``, where it has none.

    >>> from transformers import PreTrainedTokenizerFast
    >>> fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    >>> with_ids({"text": "hello world"}, fast, "text", 8)
    {'input_ids': [276, 275], 'labels': [276, 275]}

    A row that has ids loses its text, of which collators could make no tensor. Raises RobustokError
    for a row that has neither.
    """
    if row.get("input_ids") is not None:
        return {name: value for name, value in row.items() if name != column}
    if not isinstance(row.get(column), str):
        raise RobustokError(
            f"rows with {', '.join(sorted(row)) or 'no columns'} cannot be perturbed: give "
            f"rows with input_ids, or with text in a column '{column}'"
        )
    canonical = getattr(tokenizer, "wrapped_tokenizer", tokenizer)
    options = {"truncation": True, "max_length": max_length} if max_length else {}
    ids = canonical(row[column], **options)["input_ids"]
    return {"input_ids": ids, "labels": list(ids)}


def with_lists(row: Row) -> Row:
    """The row with lists in place of tensors and tuples, which data sets may give.

    >>> with_lists({"input_ids": (5, 6), "labels": 1})
    {'input_ids': [5, 6], 'labels': 1}
    """
    return {name: _as_list(value) for name, value in row.items()}


def without_padding(row: Row) -> tuple[Row, int, int]:
    """A row without the ids at its ends that its mask hides, and how many were left and right.

    >>> without_padding({"input_ids": [0, 5, 6, 0], "attention_mask": [0, 1, 1, 0]})
    ({'input_ids': [5, 6], 'attention_mask': [1, 1]}, 1, 1)
    """
    mask = row.get("attention_mask")
    size = len(row["input_ids"])
    if mask is None or not is_per_id(mask, size):
        return row, 0, 0
    real = np.flatnonzero(np.asarray(mask))
    if not len(real) or len(real) == size:
        return row, 0, 0
    begin, end = int(real[0]), int(real[-1]) + 1
    return _per_id(row, lambda _, value: value[begin:end]), begin, size - end


def with_padding(row: Row, padded_row: Row, left: int, right: int) -> Row:
    """``row`` filled up to the length of ``padded_row``, which has padding, with its values.

    >>> old = {"input_ids": [5, 6, 0, 0], "attention_mask": [1, 1, 0, 0]}
    >>> with_padding({"input_ids": [7, 8, 6], "attention_mask": [1, 1, 1]}, old, left=0, right=2)
    {'input_ids': [7, 8, 6, 0], 'attention_mask': [1, 1, 1, 0]}

    ``left``, ``right``: how many ids of padding the row had. A row that had none is not filled.
    """
    total = len(padded_row["input_ids"])
    missing = total - len(row["input_ids"])
    if missing <= 0 or not left + right:
        return row
    before = min(left, missing) if right else missing

    def fill(name: str, value: Any) -> Any:
        pads: Any = padded_row.get(name)
        if not is_per_id(pads, total):
            return value
        return [*[pads[0]] * before, *value, *[pads[-1]] * (missing - before)]

    return _per_id(row, fill)


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
        pads = longest - len(row["input_ids"])
        if "position_ids" not in row:
            row = {**row, "attention_mask": row.get("attention_mask", [1] * len(row["input_ids"]))}
        results.append(_per_id(row, lambda name, value, n=pads: [*value, *[fill.get(name, 0)] * n]))
    return results


def split_packed(row: Row) -> list[Row]:
    """The sequences of a packed row, a row each; a plain row alone.

    >>> split_packed({"input_ids": [5, 6, 7], "seq_lengths": [2, 1]})
    [{'input_ids': [5, 6]}, {'input_ids': [7]}]

    Raises RobustokError for boundaries that are not understood or do not fit the ids.
    """
    unknown = [name for name in _UNKNOWN if row.get(name) is not None]
    if unknown:
        raise RobustokError(
            f"rows packed with {unknown[0]} cannot be perturbed: keep their boundaries as "
            "seq_lengths or position_ids, or switch packing off (packing=False)"
        )
    size = len(row["input_ids"])
    lengths = _lengths(row, size)
    if lengths is None:
        return [row]
    if sum(lengths) != size or (size and min(lengths) < 1):
        raise RobustokError(
            f"the sequences of a packed row have {sum(lengths)} ids, the row has {size}: pack it "
            "again, or switch packing off (packing=False)"
        )
    plain = {name: row[name] for name in row if name not in ("seq_lengths", "position_ids")}
    return [
        _per_id(plain, lambda _, value, b=end - length, e=end: value[b:e])
        for end, length in zip(np.cumsum(lengths).tolist(), lengths, strict=True)
    ]


def join_packed(row: Row, parts: Sequence[Row]) -> Row:
    """The packed row of new sequences, with the boundaries in the form of ``row``.

    >>> row = {"input_ids": [5, 6, 7], "position_ids": [0, 1, 0]}
    >>> join_packed(row, [{"input_ids": [5, 8, 9]}, {"input_ids": [7]}])
    {'input_ids': [5, 8, 9, 7], 'position_ids': [0, 1, 2, 0]}
    """
    if len(parts) == 1 and not {"seq_lengths", "position_ids"} & {*row}:
        return parts[0]
    size = len(row["input_ids"])
    lengths = [len(part["input_ids"]) for part in parts]
    joined: Row = {}
    for name, value in row.items():
        if name == "seq_lengths":
            joined[name] = lengths
        elif name == "position_ids":
            joined[name] = [position for length in lengths for position in range(length)]
        elif is_per_id(value, size):
            joined[name] = [one for part in parts for one in part[name]]
        else:
            joined[name] = value
    return joined


def repacked(rows: Sequence[Row], block_size: int) -> list[Row]:
    """Rows joined and cut into blocks, as TRL's `wrapped` packing does: the last may be shorter.

    >>> repacked([{"input_ids": [1, 2, 3]}, {"input_ids": [4, 5, 6]}], 4)
    [{'input_ids': [1, 2, 3, 4]}, {'input_ids': [5, 6]}]
    """
    names = [name for name, value in rows[0].items() if is_per_id(value, len(rows[0]["input_ids"]))]
    joined = {name: [one for row in rows for one in row[name]] for name in names}
    size = len(joined["input_ids"])
    return [
        {name: values[start : start + block_size] for name, values in joined.items()}
        for start in range(0, size, block_size)
    ]


def is_per_id(value: object, size: int) -> bool:
    """Whether a field of a row holds one value for each id."""
    return isinstance(value, (list, np.ndarray)) and len(value) == size


def _per_id(row: Row, change: Callable[[str, Any], Any]) -> Row:
    """The row with ``change(name, value)`` for each field that holds one value for each id."""
    size = len(row["input_ids"])
    return {name: change(name, v) if is_per_id(v, size) else v for name, v in row.items()}


def _as_list(value: object) -> Any:
    if isinstance(value, torch.Tensor) and value.ndim == 1:
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _lengths(row: Row, size: int) -> list[int] | None:
    if row.get("seq_lengths") is not None:
        return [int(length) for length in row["seq_lengths"]]
    if row.get("position_ids") is not None:
        positions = np.asarray(row["position_ids"])
        lengths = _runs(np.flatnonzero(positions == 0)[1:], size)
        if positions.tolist() != [position for length in lengths for position in range(length)]:
            raise RobustokError(
                "the position_ids of a packed row do not count from 0 in each sequence: their "
                "boundaries cannot be found; switch packing off (packing=False)"
            )
        return lengths
    mask = np.asarray(row.get("attention_mask") if row.get("attention_mask") is not None else [])
    if mask.ndim == 1 and len(mask) == size and size and mask.max() > 1:
        return _runs(np.flatnonzero(np.diff(mask)) + 1, size)
    return None


def _runs(starts: np.ndarray, size: int) -> list[int]:
    return np.diff([0, *starts.tolist(), size]).tolist() if size else []
