"""The scan for lists of integers, against Python's JSON."""

from __future__ import annotations

import json
import re
import sys
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from robustok.integrations.serving import _DIGITS
from robustok.kernels import json_ids
from robustok.kernels.json_ids import (
    LARGEST,
    LONG_KEY,
    SCANNED,
    TOO_DEEP,
    TOO_MANY,
    Lists,
    find_lists,
)

numbers = st.integers() | st.floats(allow_nan=False) | st.booleans() | st.none()
texts = st.text(max_size=8) | st.sampled_from(['"[1,2]', "\\", "x" * 1500, "1" * 1500])
values = st.recursive(
    st.lists(st.integers(-9, 2**40), max_size=4) | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def skeleton_of(value: Any, lists: list[list[int]]) -> Any:
    """The value that the skeleton should hold; the integers of its lists go to ``lists``."""
    if isinstance(value, list):
        if all(type(i) is int for i in value):
            lists.append([max(-LARGEST, min(i, LARGEST)) for i in value])
            return [len(lists) - 1]
        return [skeleton_of(i, lists) for i in value]
    if isinstance(value, dict):
        return {k if len(k) < 200 else "": skeleton_of(v, lists) for k, v in value.items()}
    return _short(value) if isinstance(value, str) else value


def _short(text: str) -> str:
    """What is kept of a string that is a value."""
    return "0" if _DIGITS.fullmatch(text) else ""


def without_names(value: Any) -> Any:
    """The value with empty keys in place of those that took the place of long ones."""
    if isinstance(value, dict):
        return {"" if len(k) == LONG_KEY - 1 else k: without_names(v) for k, v in value.items()}
    return [without_names(v) for v in value] if isinstance(value, list) else value


def check(found: Lists, value: Any, text: bytes) -> None:
    lists: list[list[int]] = []
    assert found.state == SCANNED
    assert without_names(json.loads(found.skeleton)) == skeleton_of(value, lists)
    rows = [found.values[a:b].tolist() for a, b in pairwise(found.offsets.tolist())]
    assert rows == lists
    assert len(found.spans) == len(lists)
    for (begin, end), row in zip(found.spans.tolist(), lists, strict=True):
        exact = json.loads(text[begin:end])
        assert [max(-LARGEST, min(i, LARGEST)) for i in exact] == row


@settings(deadline=None)  # the first call compiles
@given(values, st.sampled_from([(",", ":"), (" ,\n", "\t: "), (", ", ": ")]), st.booleans())
@example([], (",", ":"), True)
@example({"\x7f": None, "x" * 1500: 1}, (",", ":"), False)
@example({"a": [[1, 2], [-0, 2**31], ["[3]"], [1.0]]}, (",", ":"), True)
def test_lists_of_integers_are_those_of_the_parsed_text(
    value: Any, separators: tuple[str, str], ascii_only: bool
) -> None:
    written = json.dumps(value, separators=separators, ensure_ascii=ascii_only)
    text = written.encode("utf8", "surrogatepass")
    check(find_lists(text, 10_000, 100), value, text)
    check(find_lists(bytearray(text), 10_000, 100), value, text)


PARTS = ["[", "]", "{", "}", ",", ":", '"', "\\", "\\u", "1", "0", "-", "a", " ", "[1", "2]", "é"]


@settings(deadline=None)
@given(st.lists(st.sampled_from(PARTS), min_size=1).map("".join))
@example('["\\u", [1], "]')
@example("[01]")
@example("[1,]")
def test_the_skeleton_is_json_exactly_where_the_text_is(text: str) -> None:
    raw = text.encode()
    found = find_lists(raw, len(raw) + 1, 1000)
    expected, read = parsed(raw), parsed(found.skeleton)
    assert read == (None if expected is None else [skeleton_of(expected[0], [])])


def parsed(raw: bytes) -> list[Any] | None:
    try:
        return [json.loads(raw)]
    except ValueError:
        return None


@pytest.mark.parametrize(
    "text, kept",
    [
        ("a" * 300, ""), ("1" * 300, "0"), (" " * 300 + "83", "0"), (" " * 300, ""),
        ("\\u0038" * 50, "0"), ("\\u0061" * 50, ""), ("\\uD835\\uDFD8" * 30, "0"),
        ("\\ud835" * 50, ""), ("\\n\\t8" * 80, "0"), ("8" * 300 + "\\\"", ""), ("中" * 100, ""),
        ("é" * 150, ""), ("٣" * 150, "0"), ("\u3000" * 100 + "8", "0"), ("𝟘" * 80, "0"),
        ("\U0002f800" * 80, ""), ("+-_." * 80, ""), ("+-_." * 80 + "1", "0"), ("1" * 300 + "e", ""),
    ],
)  # fmt: skip
def test_a_text_becomes_a_digit_where_an_integer_could_be_read(text: str, kept: str) -> None:
    raw = f'["{text}"]'.encode()
    assert find_lists(raw, 100, 10).skeleton == f'["{kept}"]'.encode()
    spelled = json.loads(raw)[0]
    assert (_DIGITS.fullmatch(spelled) is not None) == (kept == "0")


BROKEN = [
    b"\\x", b"\\u12 ", b"\\u12x4", b"\x01", b"\xff", b"\xc0\x80", b"\xe4\xb8", b"\xe0\x80\x80",
    b"\xf4\x90\x80\x80", b"\x80", b"\xf8\x88\x80\x80\x80",
]  # fmt: skip


@pytest.mark.parametrize("part", BROKEN)
@pytest.mark.parametrize("fill", [b"a", b"1"])
def test_a_long_string_that_is_no_json_stays_none(part: bytes, fill: bytes) -> None:
    for raw in (b'["' + part + fill * 300 + b'"]', b'["' + fill * 300 + part + b'"]'):
        assert parsed(raw) is None and parsed(find_lists(raw, 100, 10).skeleton) is None
    unterminated = b'"' + fill * 300
    assert parsed(find_lists(unterminated, 100, 10).skeleton) is None
    assert parsed(find_lists(unterminated + b"\\", 100, 10).skeleton) is None


def test_long_keys_stay_apart() -> None:
    raw = b'{"%s":1,"%s" : [5],"%s":"%s"}' % (b"a" * 300, b"b" * 300, b"1" * 300, b"1" * 300)
    found = json.loads(find_lists(raw, 100, 10).skeleton)
    assert list(found.values()) == [1, [0], "0"]
    assert all(len(key) == LONG_KEY - 1 and key[-1] == "\x7f" for key in found)
    shortest = b'{"%s":1}' % (b"a" * (LONG_KEY - 1))
    assert find_lists(shortest, 100, 10).skeleton != shortest
    longest_kept = b'{"%s":1}' % (b"a" * (LONG_KEY - 2))
    assert find_lists(longest_kept, 100, 10).skeleton == longest_kept


def test_every_character_of_an_integer_is_in_the_table() -> None:
    pattern = re.compile(r"[\s\d+\-_.]")
    kinds = json_ids._kinds()
    for code in range(sys.maxunicode + 1):
        kind = kinds[code] if code < len(kinds) else 0
        assert bool(kind) == (pattern.match(chr(code)) is not None)


def test_limits_stop_the_scan() -> None:
    assert find_lists(b"[" * 11, 100, 10).state == TOO_DEEP
    assert find_lists(b"[]," * 11, 10, 10).state == TOO_MANY
    assert find_lists(b'{"a":' * 6, 10, 10).state == TOO_MANY
    assert find_lists(b"[%s]" % (b"1," * 999 + b"1"), 1, 1).state == SCANNED
    assert find_lists(b'"[[[[,,,,"', 1, 1).state == SCANNED
