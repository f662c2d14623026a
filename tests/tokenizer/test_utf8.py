"""Invalid UTF-8, found in one pass."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from robustok.tokenizer.data import broken_spans, split_at_broken

_PARTS = [
    b"a", b"\x00", b"\x7f", "é".encode(), "根".encode(), "😀".encode(), b"\xff", b"\x80",
    b"\xc0\x80", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xf4\x90\x80\x80",
    b"\xf5",
]  # fmt: skip
_BYTES = st.binary(max_size=30) | st.lists(st.sampled_from(_PARTS), max_size=12).map(b"".join)


def one_by_one(data: bytes) -> list[int]:
    """The positions of invalid bytes, by the codec's own errors."""
    invalid: list[int] = []
    at = 0
    while True:
        try:
            data[at:].decode("utf8")
            return invalid
        except UnicodeDecodeError as e:
            invalid += range(at + e.start, at + e.end)
            at += e.end


@given(_BYTES)
def test_the_stretches_hold_the_bytes_that_the_codec_refuses(data: bytes) -> None:
    begin, end = broken_spans(data)
    stretches = list(zip(begin.tolist(), end.tolist(), strict=True))
    assert [i for a, b in stretches for i in range(a, b)] == one_by_one(data)
    assert all(b < a for (_, b), (a, _) in pairwise(stretches))


@given(_BYTES)
def test_the_parts_cover_the_text(data: bytes) -> None:
    parts = list(split_at_broken(data))
    assert b"".join(data[a:b] for a, b, _ in parts) == data
    for a, b, valid in parts:
        assert one_by_one(data[a:b]) == ([] if valid else list(range(b - a)))
