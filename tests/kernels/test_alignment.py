"""Places of drawn tokens, against Python that goes through the bytes."""

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from robustok.kernels.alignment import align

characters = st.sampled_from([*'ab "\\\t', "é", "中", "😀", "e\u0301"])
counts = st.integers(0, 10**6)


class Example:
    """Two sequences of tokens of the same bytes, and the offsets of the first."""

    def __init__(self, data: Any) -> None:
        self.text = data.draw(st.lists(characters, max_size=8).map("".join)).encode()
        self.old = self._cut(data)
        self.new = self._cut(data) if data.draw(st.integers(0, 3)) else list(self.old)
        if data.draw(st.booleans()):  # one special token without bytes, in both
            self.old, self.new = [b"", *self.old], [b"", *self.new]
        self.spans = self._spans(data)

    def _cut(self, data: Any) -> list[bytes]:
        size = len(self.text)
        cuts = sorted(data.draw(st.sets(st.integers(1, max(size - 1, 1))))) if size > 1 else []
        edges = [0, *cuts, size] if size else []
        return [self.text[a:b] for a, b in pairwise(edges)]

    def _spans(self, data: Any) -> list[list[int]]:
        """Those of the text's characters, or of a text that the normalizer changed."""
        added = data.draw(st.integers(0, 1)) and self.text[:1] == b" "
        spans, at = [], 0
        for token in self.old:
            before = self.text[: at + 1].decode(errors="ignore")
            begin = len(before) - (len(before.encode()) == at + 1)
            after = self.text[: at + len(token)].decode(errors="ignore")
            end = len(after) + (len(after.encode()) < at + len(token))
            spans.append([max(begin - added, 0), max(end - added, 0)] if token else [begin] * 2)
            at += len(token)
        if data.draw(st.integers(0, 3)) == 0:
            return [data.draw(st.lists(counts, min_size=2, max_size=2)) for _ in self.old]
        return spans

    def expected(self) -> list[tuple[int, bool, list[int]]]:
        """The canonical token of each new one, whether they are the same, and its offsets."""
        places: list[tuple[int, list[int]]] = []  # canonical token and characters of each byte
        begins: list[int] = []
        for j, token in enumerate(self.old):
            begins.append(len(places))
            places += [(j, span) for span in spans_of(token, *self.spans[j])]
        rows, at = [], 0
        for token in self.new:
            size = max(len(token), 1)
            j, (low, high) = places[at][0], (places[at][1][0], places[at + size - 1][1][1])
            same = begins[j] == at and self.old[j] == token
            rows.append((j, same, self.spans[j] if same else [low, max(low, high)]))
            at += size
        return rows


def spans_of(token: bytes, begin: int, end: int) -> list[list[int]]:
    """The characters of each byte of a canonical token."""
    leads = [i == 0 or byte & 0xC0 != 0x80 for i, byte in enumerate(token)]
    added = sum(leads) - (end - begin)
    if token and (added == 0 or (added == 1 and token[:1] == b" ")):
        firsts = [begin + max(sum(leads[: i + 1]) - 1 - added, 0) for i in range(len(token))]
        return [[first, first + 1] for first in firsts]
    return [[begin, end]] * max(len(token), 1)


def aligned(rows: list[tuple[list[bytes], list[bytes], list[list[int]]]]) -> Any:
    """The result of the kernel for rows of old tokens, new tokens and offsets."""
    tokens = sorted({token for old, new, _ in rows for token in (*old, *new)})
    olds = [[tokens.index(token) for token in old] for old, _, _ in rows]
    news = [[tokens.index(token) for token in new] for _, new, _ in rows]
    spans = np.array([span for _, _, row in rows for span in row], np.int64).reshape(-1, 2)
    return align(
        *joined(olds), *joined(news), np.frombuffer(bytearray(b"".join(tokens)), np.uint8),
        np.cumsum([0, *map(len, tokens)]), spans,
    )  # fmt: skip


def joined(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    values = np.array([i for row in rows for i in row], np.int32)
    return values, np.cumsum([0, *map(len, rows)])


@settings(max_examples=200)
@given(st.data())
def test_each_drawn_token_has_the_place_of_its_bytes(data: Any) -> None:
    examples = [Example(data) for _ in range(data.draw(st.integers(1, 3)))]
    origins, kept, offsets, is_aligned = aligned([(e.old, e.new, e.spans) for e in examples])
    assert is_aligned
    rows = list(zip(origins.tolist(), kept.tolist(), offsets.tolist(), strict=True))
    assert rows == [row for example in examples for row in example.expected()]


@settings(max_examples=200)
@given(st.data())
def test_tokens_of_other_bytes_are_not_aligned(data: Any) -> None:
    """And nothing outside of the arrays is read: plain Python raises IndexError there."""
    example, other = Example(data), Example(data)
    if not example.old:
        return
    new = data.draw(st.sampled_from([example.new[1:], [*example.new, example.old[0]]]))
    rows = [(example.old, new, example.spans), (other.old, other.new, other.spans)]
    assert not aligned(data.draw(st.sampled_from([rows, rows[::-1]])))[3]
