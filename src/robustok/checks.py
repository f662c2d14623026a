"""Input checks of the public functions: each returns a clean value or raises a RobustokError.

A public function checks its input once, here; everything below it relies on the result. In
particular no kernel sees an id outside the vocabulary, a strength above ``MAX_STRENGTH`` or an
integer that does not fit its type.
"""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields
from itertools import chain
from numbers import Real
from typing import Any, Self

import numpy as np

from robustok.errors import RobustokError, nearest

MAX_STRENGTH = 10_000.0  # alpha, splits, distance, length_ratio: per canonical token
MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-6, 1e6
MAX_COUNT = 2**31 - 1  # k, ways, min_length, draws
IGNORED = -100  # the label of an id outside of the loss, by PyTorch's convention
_SEED_MASK = (1 << 64) - 1
_LIMITS = {  # of a field, by pydantic's names
    "ge": ("at least", operator.ge),
    "gt": ("above", operator.gt),
    "le": ("at most", operator.le),
    "lt": ("below", operator.lt),
}
_INT64 = np.iinfo(np.int64)
_LOWEST, _HIGHEST = int(_INT64.min), int(_INT64.max)


def check_integer(name: str, value: object, low: int | None = None, high: int | None = None) -> int:
    """An int or NumPy integer (no bool, no float) from ``low`` to ``high``, as int.

    >>> check_integer("draws", np.int64(3), 1)
    3
    """
    if type(value) is not int and (
        isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer))
    ):
        raise RobustokError(f"{name} must be an integer, not {shown(value)}")
    number = int(value)
    if (low is not None and number < low) or (high is not None and number > high):
        raise RobustokError(f"{name}={shown(value)}: {name} must be {_range(low, high)}")
    return number


def check_count(name: str, value: object, low: int = 0, high: int = MAX_COUNT) -> int:
    """A whole number from ``low`` to ``high``, as int; ``3.0`` is one.

    >>> check_count("uniform-k: k", 3.0)
    3
    """
    number = _real(value)
    if number is None or number != number // 1 or not low <= number <= high:
        raise RobustokError(
            f"{name} must be a whole number {_range(low, high)}, not {shown(value)}"
        )
    return int(number)


def check_number(name: str, value: object, low: float, high: float) -> float:
    """A real number from ``low`` to ``high`` (no bool, no string, no NaN), as float."""
    number = _real(value)
    if number is None or not low <= number <= high:
        raise RobustokError(f"{name} must be a number {_range(low, high)}, not {shown(value)}")
    return float(number)


def check_seed(seed: object) -> int:
    """Any integer; its lowest 64 bits decide, so ``-1`` and ``2**64 - 1`` are one seed."""
    return check_integer("seed", seed) & _SEED_MASK


def check_epoch(epoch: object) -> int:
    """An integer that fits int64."""
    return check_integer("epoch", epoch, _LOWEST, _HIGHEST)


def check_draw(seed: Any, epoch: Any, key: Any) -> tuple[np.uint64, np.int64, int]:
    """What one draw of one row depends on: seed, epoch and key, as the kernels take them.

    >>> check_draw(-1, 0, 7)
    (np.uint64(18446744073709551615), np.int64(0), 7)
    """
    # A call for each of the three takes as long as the draw of a short text.
    is_plain = type(seed) is type(epoch) is type(key) is int
    if not (is_plain and _LOWEST <= epoch <= _HIGHEST and _LOWEST <= key <= _HIGHEST):
        key = check_integer("key", key, _LOWEST, _HIGHEST)
        seed, epoch = check_seed(seed), check_epoch(epoch)
    return np.uint64(seed & _SEED_MASK), np.int64(epoch), key


def check_keys(keys: object, rows: int) -> np.ndarray:
    """One key a row, int64 [rows]; by default each row's position."""
    if keys is None:
        return np.arange(rows, dtype=np.int64)
    array = _integers("keys", keys, np.int64)
    if len(array) != rows:
        raise RobustokError(f"{len(array)} keys for {rows} rows: give one key a row")
    return array.astype(np.int64, copy=False)


def check_ids(ids: object, size: int | None = None) -> np.ndarray:
    """Token ids as contiguous int32 [n]: each is from 0 to ``size`` - 1.

    >>> check_ids([276, 275], 300)
    array([276, 275], dtype=int32)

    Without ``size`` any id that fits int32 passes. Raises RobustokError for anything but a flat
    sequence or array of integers (bools, floats and strings are none), and names the first id that
    is outside.
    """
    if size is None:
        if type(ids) is np.ndarray and ids.dtype == np.int32 and ids.ndim == 1:
            return np.ascontiguousarray(ids)
        if type(ids) is list and {*map(type, ids)} == {int}:
            with suppress(OverflowError):  # then the general check names the id
                return np.array(ids, np.int32)
        return np.ascontiguousarray(_integers("token ids", ids, np.int32), np.int32)
    array = _integers("token ids", ids)
    wrong = np.flatnonzero((array < 0) | (array >= size))
    if len(wrong):
        raise RobustokError(
            f"id {array[wrong[0]]} at position {wrong[0]} is not in the vocabulary "
            f"(0 to {size - 1})"
        )
    return np.ascontiguousarray(array, np.int32)


def check_id_rows(rows: object) -> tuple[np.ndarray, np.ndarray]:
    """A list of id sequences as (values int32 [total], offsets int64 [rows + 1]).

    Raises RobustokError that names the first wrong row.
    """
    listed = check_list("rows of token ids", rows, "vocab.encode_batch(texts)")
    if listed and isinstance(listed[0], (int, np.integer)):
        raise RobustokError("rows of token ids: give a list of rows, as [[1, 2]], not one row")
    if listed and all(type(row) is list for row in listed):  # many short lists in one step
        values = check_ids(list(chain.from_iterable(listed)))
    else:
        arrays = [_check_row(i, row) for i, row in enumerate(listed)]
        values = np.concatenate(arrays) if arrays else np.empty(0, np.int32)
        listed = arrays
    return values, np.cumsum([0, *map(len, listed)])


def _check_row(number: int, row: object) -> np.ndarray:
    try:
        return check_ids(row)
    except RobustokError as e:
        raise RobustokError(f"row {number}: {e}") from e


def check_offsets(offsets: object) -> np.ndarray:
    """Row offsets as contiguous int64 [rows + 1]; their order is not checked."""
    return np.ascontiguousarray(_integers("offsets", offsets, np.int64), np.int64)


def option(help: str, *flags: str, default: object = MISSING, **metadata: object) -> Any:
    """A field of a settings class that is an option of the command line.

    Args:
        help: its help text.
        *flags: its spellings, by default ``--`` and the name of the field.
        default: its default; an option without one is required.
        **metadata: the limits ``min`` (also of each value of several), ``gt``, ``le`` and ``lt``;
            ``choices`` with ``noun``, what errors call one of them; and for the command line
            ``metavar``, ``callback`` (a check) and ``panel``, the group of ``--help``.
            With empty ``flags`` it is no option there.

    pydantic reads ``description`` and the limits where the class is a section of YAML.
    """
    if flags:
        metadata["flags"] = flags
    if "min" in metadata and not isinstance(default, tuple):
        metadata["ge"] = metadata["min"]
    return field(default=default, metadata={"help": help, "description": help, **metadata})


@dataclass(frozen=True)
class Settings:
    """Base of the classes of settings, whose fields are made by :func:`option`.

    Raises RobustokError for a value outside the limits of its field, or none of its ``choices``.
    """

    def __post_init__(self) -> None:
        for one in fields(self):
            check_setting(one.name, getattr(self, one.name), one.metadata)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The settings with these ``values`` by field name, and the defaults of the others.

        >>> from robustok.training import Recipe
        >>> Recipe.of({"steps": 3, "batch_size": 4, "learning_rate": 1e-3}).steps
        3

        Raises RobustokError for an unknown field, and for a missing one.
        """
        defaults = {one.name: one.default for one in fields(cls)}
        for name in values:
            if name not in defaults:
                raise RobustokError(f"unknown setting '{name}': {nearest(name, defaults)}")
        for name, default in defaults.items():
            if default is MISSING and name not in values:
                raise RobustokError(f"the setting '{name}' is missing: give it")
        return cls(**values)

    def replaced(self, **changes: object) -> Self:
        """These settings with ``changes``, new values by field name.

        Raises RobustokError for an unknown field.
        """
        return self.of({one.name: getattr(self, one.name) for one in fields(self)} | changes)


def check_setting(name: str, value: Any, metadata: Mapping[str, Any]) -> None:
    """Check one value of :class:`Settings`; ``metadata`` is that of its field."""
    choices = metadata.get("choices")
    if value is None:
        return
    if choices and value not in choices:
        noun = metadata.get("noun", name)
        raise RobustokError(f"unknown {noun} '{value}': {nearest(value, choices)}")
    if not isinstance(value, (int, float)):
        return
    if not math.isfinite(value):
        raise RobustokError(f"{name} is {value}: it must be a finite number")
    for limit, (text, holds) in _LIMITS.items():
        if limit in metadata and not holds(value, metadata[limit]):
            raise RobustokError(f"{name} is {value}: it must be {text} {metadata[limit]}")


def check_text(text: object) -> str | bytes:
    """A str without lone surrogates, or bytes."""
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise RobustokError(f"a text is str or bytes, not {type(text).__name__}")
    if not text.isascii():
        try:
            text.encode("utf8")
        except UnicodeEncodeError as e:
            raise RobustokError(
                f"the text holds a lone surrogate (U+{ord(text[e.start]):04X} at position "
                f"{e.start}), which is not Unicode text: repair it, or pass bytes"
            ) from e
    return text


def check_texts(texts: object) -> list[str | bytes]:
    """A list of texts; one text alone is an error and not a list of its characters."""
    return [check_text(text) for text in check_list("texts", texts)]


def check_list(
    name: str, values: object, example: str = "[text]", kinds: tuple[type, ...] = ()
) -> list[Any]:
    """The items of an iterable that is not a str, bytes or a mapping, each of one of ``kinds``."""
    if isinstance(values, (str, bytes, bytearray, memoryview)):
        raise RobustokError(f"{name}: give a list, as {example}, not one {type(values).__name__}")
    if isinstance(values, dict) or not isinstance(values, Iterable):
        raise RobustokError(f"{name}: give a list, not {shown(values)}")
    try:
        items = list(values)
    except TypeError as e:  # an array without dimensions
        raise RobustokError(f"{name}: give a list, not {shown(values)}") from e
    for item in items if kinds else ():
        if not isinstance(item, kinds):
            raise RobustokError(f"{name}: give a list, as {example}, not one with {shown(item)}")
    return items


def shown(value: object) -> str:
    """A value on one short line, for a message."""
    try:
        return " ".join(reprlib.repr(value).split())
    except ValueError:  # an int of more digits than Python prints
        return f"a {type(value).__name__}"


def _real(value: object) -> float | int | None:
    """A real number as int or float; None for anything else and beyond the range of floats."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        return None
    if isinstance(value, (int, np.integer)):
        return int(value)
    return float(value)


def _range(low: float | None, high: float | None) -> str:
    if high is None:
        return f"{_plain(low)} or more"
    return f"up to {_plain(high)}" if low is None else f"from {_plain(low)} to {_plain(high)}"


def _plain(number: float | None) -> str:
    return f"{number:g}" if isinstance(number, float) else f"{number}"


def _integers(name: str, values: object, dtype: type[np.signedinteger] | None = None) -> np.ndarray:
    """A flat array of integers that ``dtype`` can hold."""
    array = _flat_array(name, values)
    if array.size == 0:
        return np.empty(0, np.int32)
    if array.dtype.kind == "O" and all(type(x) is int for x in array):
        wide = [i for i, x in enumerate(array) if not _INT64.min <= x <= _INT64.max]
        if wide:
            raise RobustokError(f"{name}: {shown(array[wide[0]])} at position {wide[0]} is too big")
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise RobustokError(f"{name} are integers, not {array.dtype}")
    if dtype is not None and not np.can_cast(array.dtype, dtype):
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        wrong = np.flatnonzero((array < low) | (array > high))
        if len(wrong):
            raise RobustokError(
                f"{name}: {array[wrong[0]]} at position {wrong[0]} is not {_range(low, high)}"
            )
    return array


def _flat_array(name: str, values: object) -> np.ndarray:
    """An array of one dimension, of values that are no texts and no booleans."""
    if isinstance(values, (str, bytes, bytearray, memoryview)):
        raise RobustokError(f"{name} are integers, not {type(values).__name__}")
    if isinstance(values, (list, tuple)) and {bool, np.bool_} & set(map(type, values)):
        raise RobustokError(f"{name} are integers, not bool")
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        array = np.asarray(None)
    if array.ndim != 1:
        raise RobustokError(f"{name}: give a flat list of integers, not {shown(values)}")
    return array
