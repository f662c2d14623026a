"""Rows of canonical ids: what their columns hold, their padding, and the sequences packed in them.

The values of a column decide, with the names that transformers and TRL give to masks: a column of
the row's length that holds the id or -100 at each place is labels, whatever its name. A column of
that length whose meaning cannot be decided is an error, since a draw would leave it wrong.

Rows that hold several sequences are split into them before a draw, and joined again after it. Known
forms: ``seq_lengths`` (TRL's `bfd` and `bfd_split`), ``position_ids`` that restart at 0
(padding-free rows), and an ``attention_mask`` that numbers the sequences. Other packed rows are
refused: a drawn token could cross a boundary, and the boundaries would be wrong afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from robustok.checks import IGNORED
from robustok.errors import RobustokError

Row = dict[str, Any]

_ANSWERS = ("completion_mask", "assistant_masks")  # TRL's marks of what is in the loss
_MASKS = (*_ANSWERS, "attention_mask", "token_type_ids", "special_tokens_mask", "position_ids")
_LABELS = ("labels", "label_ids", "label")  # of ids or of a whole row
_PACKED = "seq_lengths"
# Boundaries of packed sequences that are not understood.
_UNKNOWN = (
    "cu_seq_lens_q",
    "cu_seq_lens_k",
    "cu_seqlens",
    "seq_idx",
    "sequence_ids",
    "segment_ids",
)


class Columns(NamedTuple):
    """A row of which it is known what each column holds.

    ``per_id`` are the columns with a value for each id, arrays [ids]: ``input_ids``, labels and
    masks. ``labels`` are the names of those that hold labels. ``rest`` are all others, which stay.
    """

    per_id: dict[str, np.ndarray]
    labels: frozenset[str]
    rest: Row

    @property
    def ids(self) -> np.ndarray:
        return self.per_id["input_ids"]

    @property
    def row(self) -> Row:
        return {**{name: values.tolist() for name, values in self.per_id.items()}, **self.rest}

    def at(self, places: Any) -> Columns:
        """The row with the values at these places of the columns with a value for each id."""
        per_id = {name: values[places] for name, values in self.per_id.items()}
        return self._replace(per_id=per_id)

    def answers(self) -> np.ndarray:
        """Which ids have a label or are marked as an answer, bool [ids]."""
        labelled = [self.per_id[name] != IGNORED for name in self.labels]
        marked = [self.per_id[name] != 0 for name in _ANSWERS if name in self.per_id]
        return np.any([np.zeros(len(self.ids), np.bool_), *labelled, *marked], axis=0)

    @property
    def is_labelled(self) -> bool:
        """Whether it is known what is an answer: by labels or marks, or one label for the row."""
        of_row = any(self.rest.get(name) is not None for name in _LABELS)
        return bool(self.labels or of_row or {*_ANSWERS} & {*self.per_id})


def read_rows(rows: Sequence[object], whole: set[str]) -> list[Columns]:
    """The rows with what their columns hold.

    >>> row = {"input_ids": [5, 6], "targets": [-100, 6], "attention_mask": [1, 1], "label": 3}
    >>> read_rows([row], set())[0].labels, read_rows([row], set())[0].rest
    (frozenset({'targets'}), {'label': 3})

    Args:
        rows: dictionaries with ``input_ids``; columns are lists, tuples, arrays or tensors.
        whole: names of columns that hold as many values as a row has ids by chance only, such as
            the labels of a classifier of several classes. Those of other lengths are added.

    Raises RobustokError for anything but dictionaries of ids, for labels that are not the ids, and
    for a column with as many values as the row has ids whose meaning is unknown.
    """
    ids_of = [_ids(row) for row in rows]
    checked: Any = list(zip(rows, ids_of, strict=True))
    for row, ids in checked:
        whole |= {name for name, value in row.items() if _has_other_length(name, value, ids)}
    return [_columns(row, ids, whole) for row, ids in checked]


def _ids(row: object) -> np.ndarray:
    if not isinstance(row, Mapping) or isinstance(row.get("input_ids", ""), str):
        names = (", ".join(row) or "none") if isinstance(row, Mapping) else ""
        shown = f"columns {names}" if names else type(row).__name__
        raise RobustokError(
            f"rows are dictionaries with input_ids, a list of ids, not {shown}: encode the texts "
            "first"
        )
    ids = np.asarray(row["input_ids"])
    if ids.ndim != 1 or (len(ids) and ids.dtype.kind not in "iu"):
        raise RobustokError("the input_ids of a row are one list of ids: give each text its row")
    return ids.astype(np.int32)


def _size(value: Any) -> int | None:
    """The number of values in a column that has several; None for a single one."""
    is_single = isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__")
    return None if is_single or not getattr(value, "ndim", 1) else len(value)


def _has_other_length(name: str, value: Any, ids: np.ndarray) -> bool:
    """Whether a column has several values, and not one for each id; raises where it must."""
    size = _size(value)
    if size in (None, len(ids)):
        return False
    if name in _MASKS or (name in _LABELS and _are_of_ids(_array(value))):
        raise RobustokError(f"a row has {len(ids)} input_ids and {size} {name}: give as many")
    return True


def _columns(row: Row, ids: np.ndarray, whole: set[str]) -> Columns:
    per_id, labels, rest = {"input_ids": ids}, set(), {}
    for name, value in row.items():
        if name == "input_ids":
            continue
        kind = "rest" if name in (_PACKED, *_UNKNOWN) else _kind(name, value, ids, whole)
        if kind == "rest":
            rest[name] = value.tolist() if getattr(value, "ndim", 2) < 2 else value
        else:
            per_id[name] = _array(value)
        if kind == "labels":
            labels.add(name)
            per_id[name] = per_id[name].astype(np.int64)
    return Columns(per_id, frozenset(labels), rest)


def _kind(name: str, value: Any, ids: np.ndarray, whole: set[str]) -> str:
    """What a column holds: "labels" or a "mask" for each id, or a value of the whole row, "rest".

    The labels of a classifier of several classes are numbers of whatever type in a column that has
    another length in other rows, and floats of 0 and 1 in a row that has as many ids by chance.
    """
    if _size(value) != len(ids):
        return "rest"
    values = _array(value)
    if name in _MASKS and values.ndim == 1:
        return "mask"
    if not len(ids):
        return "labels" if name in _LABELS else "rest"
    is_number = values.ndim == 1 and values.dtype.kind in "iuf"  # pandas makes floats of integers
    wrong = np.arange(len(ids))  # where a value is neither the id nor IGNORED
    if is_number:
        wrong = np.flatnonzero((values != ids) & (values != IGNORED))
    if not len(wrong):
        return "labels"
    if name in whole or (name in _LABELS and _are_of_classes(values)):
        return "rest"
    if name in _LABELS and is_number and _are_of_ids(values):
        raise RobustokError(
            f"a row has label {values[wrong[0]]} for id {ids[wrong[0]]}: a label is the id itself, "
            f"or {IGNORED} outside of the loss"
        )
    raise RobustokError(
        f"the column '{name}' has as many values as the row has ids, and they are no labels (the "
        f"id itself, or {IGNORED}): a draw would leave it wrong. Make it labels, or TRL's "
        "completion_mask, or remove it; give the classes of a whole row as 0.0 and 1.0"
    )


def _are_of_ids(labels: np.ndarray) -> bool:
    """Whether labels are meant for ids: integers, and not a 0 or 1 for each class of a row."""
    return labels.dtype.kind in "iu" and not np.isin(labels, (0, 1)).all()


def _are_of_classes(labels: np.ndarray) -> bool:
    """Whether labels are a 0.0 or 1.0 for each class of a row."""
    return labels.dtype.kind == "f" and bool(np.isin(labels, (0, 1)).all())


def _array(value: Any) -> np.ndarray:
    """A column as an array; one of dimension 2 where it holds lists of several lengths."""
    try:
        values = np.asarray(value)
    except ValueError:
        return np.empty((len(value), 0), object)
    return values if len(values) else values.astype(np.int64)


def padded(rows: Sequence[Columns], pad_id: int, side: str = "right") -> list[Row]:
    """Rows of one length: ids padded on a ``side``, masked, and without labels there.

    Rows with ``position_ids`` get no mask: with one, models attend across packed sequences. Their
    padding has position 0.
    """
    longest = max(len(row.ids) for row in rows)
    results = []
    for row in rows:
        per_id = dict(row.per_id)
        if "position_ids" not in per_id:
            per_id.setdefault("attention_mask", np.ones(len(row.ids), np.int64))
        pads = (longest - len(row.ids), 0) if side == "left" else (0, longest - len(row.ids))
        fill = {"input_ids": pad_id, **dict.fromkeys(row.labels, IGNORED)}
        filled = {
            name: np.pad(values, pads, constant_values=fill.get(name, 0))
            for name, values in per_id.items()
        }
        results.append(row._replace(per_id=filled).row)
    return results


def split_row(row: Columns) -> tuple[list[Columns], int, int]:
    """The sequences of a row, a row each, and at which ids they begin and end: padding is outside.

    Raises RobustokError for boundaries that are not understood or do not fit the ids.
    """
    unknown = [name for name in _UNKNOWN if row.rest.get(name) is not None]
    if unknown:
        raise RobustokError(
            f"rows packed with {unknown[0]} cannot be perturbed: keep their boundaries as "
            "seq_lengths or position_ids, or switch packing off (packing=False)"
        )
    begin, end = 0, len(row.ids)
    mask = row.per_id.get("attention_mask")
    if mask is not None and mask.any():
        real = np.flatnonzero(mask)
        begin, end = int(real[0]), int(real[-1]) + 1
    row = row.at(slice(begin, end))
    size = end - begin
    lengths = _lengths(row, size)
    if lengths is None:
        return [row], begin, end
    if sum(lengths) != size or (size and min(lengths) < 1):
        raise RobustokError(
            f"the sequences of a packed row have {sum(lengths)} ids, the row has {size}: pack it "
            "again, or switch packing off (packing=False)"
        )
    per_id = {name: values for name, values in row.per_id.items() if name != "position_ids"}
    plain = Columns(per_id, row.labels, {})
    ends = np.cumsum(lengths).tolist()
    parts = [plain.at(slice(e - length, e)) for e, length in zip(ends, lengths, strict=True)]
    return parts, begin, end


def join_row(row: Columns, parts: Sequence[Columns], begin: int, end: int) -> Columns:
    """``row`` with new sequences, with boundaries in its form, and padding up to its length.

    ``begin``, ``end``: as from :func:`split_row`. A row without padding is not filled.
    """
    size, lengths = len(row.ids), [len(part.ids) for part in parts]
    missing = max(size - sum(lengths), 0) if end - begin < size else 0
    left = min(begin, missing) if end < size else missing
    joined = {}
    for name, values in row.per_id.items():
        if name == "position_ids":
            middle = [np.arange(length) for length in lengths]
        else:
            middle = [part.per_id[name] for part in parts]
        before, after = np.repeat(values[:1], left), np.repeat(values[-1:], missing - left)
        joined[name] = np.concatenate([before, *middle, after])
    rest = {**row.rest, _PACKED: lengths} if row.rest.get(_PACKED) is not None else row.rest
    return Columns(joined, row.labels, rest)


def repacked(rows: Sequence[Columns], block_size: int) -> list[Columns]:
    """Rows joined and cut into blocks, as TRL's `wrapped` packing does: the last may be shorter."""
    joined = {name: np.concatenate([row.per_id[name] for row in rows]) for name in rows[0].per_id}
    whole = Columns(joined, rows[0].labels, {})
    starts = range(0, len(whole.ids), block_size)
    return [whole.at(slice(start, start + block_size)) for start in starts]


def _lengths(row: Columns, size: int) -> Sequence[int] | None:
    """The lengths of packed sequences; None for a row that is one."""
    if row.rest.get(_PACKED) is not None:
        return [int(length) for length in row.rest[_PACKED]]
    positions = row.per_id.get("position_ids")
    if positions is not None:
        lengths = _runs(np.flatnonzero(positions == 0)[1:], size)
        if positions.tolist() != [position for length in lengths for position in range(length)]:
            raise RobustokError(
                "the position_ids of a packed row do not count from 0 in each sequence: their "
                "boundaries cannot be found; switch packing off (packing=False)"
            )
        return lengths
    mask = row.per_id.get("attention_mask")
    if mask is not None and size and mask.max() > 1:
        return _runs(np.flatnonzero(np.diff(mask)) + 1, size)
    return None


def _runs(starts: Iterable[int], size: int) -> list[int]:
    return np.diff([0, *starts, size]).tolist() if size else []
