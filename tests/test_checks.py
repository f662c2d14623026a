"""The border: each check gives a clean value back or one line that says what is wrong."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import robustok as rt
from robustok import checks
from robustok.samplers.parameters import per_token, probability, temperature

NO_IDS = [
    [1.0], ["1"], "12", b"12", bytearray(b"12"), [True], [1, False], np.array([True]), [[1, 2]],
    [[1], [2, 3]], np.zeros((2, 0), int), 5, None, {1: 2}, {1, 2}, [None], [1, None], [2**31],
    np.array([2**32 + 1]), np.array([2**63], np.uint64), [2**64], [-(2**80), 1], [10**5000],
    np.array([1.5]), np.array(["a"]), np.array(3), object(), [1, "a"], [np.datetime64("2020")],
    [-1, 2**63],
]  # fmt: skip


def one_line(error: pytest.ExceptionInfo[rt.RobustokError]) -> bool:
    return "\n" not in str(error.value) and 0 < len(str(error.value)) < 300


@pytest.mark.parametrize("ids", NO_IDS)
def test_what_is_no_id_sequence_is_refused(ids: object) -> None:
    calls = (
        checks.check_ids,
        lambda x: checks.check_ids(x, 300),
        lambda x: checks.check_id_rows([x]),
        lambda x: checks.check_id_rows([[1], x]),
    )
    for call in calls:
        with pytest.raises(rt.RobustokError) as e:
            call(ids)
        assert one_line(e)


@pytest.mark.parametrize(
    "ids",
    [[1, 2], (1, 2), range(1, 3), np.array([1, 2], np.uint64), np.array([1, 2], np.int8),
     np.array([1, 2], object), [np.int64(1), 2], np.arange(1, 5)[::2] * 0 + [1, 2]],
)  # fmt: skip
def test_integers_of_every_kind_are_ids(ids: object) -> None:
    checked = checks.check_ids(ids, 3)
    assert checked.dtype == np.int32
    assert checked.flags.c_contiguous
    assert checked.tolist() == [1, 2]


def test_numbers_within_their_range_are_taken() -> None:
    for value in (1, 1.0, np.float32(1), np.int8(1), Fraction(1), 10_000):
        assert per_token().check("s", "alpha", value) == float(value)
    assert checks.check_count("k", 3.0) == 3
    assert checks.check_count("k", 2**31 - 1) == 2**31 - 1
    assert checks.check_seed(-1) == checks.check_seed(2**64 - 1) == 2**64 - 1
    assert checks.check_epoch(-(2**63)) == -(2**63)
    assert checks.check_draw(-1, 2, 3) == (2**64 - 1, 2, 3)
    assert checks.check_draw(np.int8(-1), np.int16(2), np.uint64(3)) == (2**64 - 1, 2, 3)
    assert checks.check_keys(None, 3).tolist() == [0, 1, 2]
    assert checks.check_keys([-(2**63), 2**63 - 1], 2).dtype == np.int64
    assert checks.check_texts(["a", b"\xff"]) == ["a", b"\xff"]
    assert checks.check_ids([], 0).dtype == np.int32


# Each: a check, what it refuses, and its message.
REFUSED: list[tuple[Callable[[Any], object], list[Any], str]] = [
    (lambda ids: checks.check_ids(ids, 300), [[0, 300], np.array([0, 300], np.uint16)],
     r"id 300 at position 1 .*\(0 to 299\)"),
    (lambda ids: checks.check_ids(ids, 300), [[-1]], "id -1 at position 0"),
    (checks.check_id_rows, [[np.array([1]), [1.5]]], "row 1: token ids"),
    (checks.check_id_rows, ["hello", b"hello", 5, None, {0: [1]}, np.array(3)], "give a list"),
    (checks.check_id_rows, ["hello"], r"as vocab.encode_batch\(texts\), not one str"),
    (checks.check_id_rows, [[1, 2]], "give a list of rows"),
    (lambda x: per_token().check("s", "alpha", x),
     [True, "1", b"1", None, [1], np.array([1.0]), float("nan"), float("inf"), -1, -1e-300,
      10**400, 10_001, 1e300, 1j, Decimal(1), 10**5000],
     "s: alpha must be a number from 0 to 10000"),
    (lambda x: temperature().check("s", "temperature", x), [0, 5e-324, 1e308],
     "from 1e-06 to 1e"),
    (lambda x: probability().check("s", "p", x), [1.5], r"from 0 to 1, not 1\.5"),
    (lambda x: checks.check_count("k", x),
     [1.5, -1, True, "3", None, float("inf"), float("nan"), 2**31, 10**400, [3]],
     "k must be a whole number from 0 to"),
    (checks.check_seed, [1.0, True, "1", None, np.bool_(True)], "seed must be an integer"),
    (checks.check_epoch, [2**63], "epoch"),
    (lambda draw: checks.check_draw(*draw), [(1.0, 0, 0)], "seed"),
    (lambda draw: checks.check_draw(*draw), [(0, 2**63, 0)], "epoch"),
    (lambda draw: checks.check_draw(*draw), [(0, 0, True)], "key"),
    (lambda keys: checks.check_keys(keys, 2),
     [[0.5, 1.7], [True, False], np.array([1, 2**63], np.uint64), [1], "ab", [[1, 2]]], "keys"),
    (checks.check_text, ["a\ud800", "日本\udfff"], r"lone surrogate \(U\+D"),
    (checks.check_text, [None, 5, ["a"], bytearray(b"a")], "a text is str or bytes, not"),
    (checks.check_texts, ["hello", b"hello", 5, None, {"a": 1}, [5]], "."),
]  # fmt: skip


@pytest.mark.parametrize(("check", "values", "message"), REFUSED, ids=[r[2] for r in REFUSED])
def test_what_is_outside_is_refused_in_one_line(
    check: Callable[[Any], object], values: list[Any], message: str
) -> None:
    for value in values:
        with pytest.raises(rt.RobustokError, match=message) as e:
            check(value)
        assert one_line(e)
