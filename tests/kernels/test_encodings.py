"""States of encodings with other ids, against Python that goes through the lists."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Encoding

from robustok.kernels.encodings import rewrite

characters = st.sampled_from([*'ab "\\\t', "é", "中", "😀", "e\u0301"])
spellings = st.text(st.sampled_from([*'a"\\\n\x01Ġé😀']), max_size=3)
counts = st.integers(0, 10**6)


class Example:
    """Two sequences of ids of the same bytes, and the encoding of the first."""

    def __init__(self, data: Any) -> None:
        self.text = data.draw(st.lists(characters, max_size=8).map("".join)).encode()
        old = self._cut(data)
        new = self._cut(data) if data.draw(st.integers(0, 3)) else old
        if data.draw(st.booleans()):  # one special token without bytes, in both
            old, new = [b"", *old], [b"", *new]
        self.tokens = sorted({*old, *new})
        self.names = [data.draw(spellings) for _ in self.tokens]
        self.old, self.new = ([self.tokens.index(t) for t in row] for row in (old, new))
        n = len(old)
        self.state: dict[str, Any] = {
            "ids": self.old, "type_ids": [0] * n,
            "tokens": [data.draw(spellings) for _ in old],
            "words": [data.draw(counts | st.none()) for _ in old],
            "offsets": self._offsets(data, old), "special_tokens_mask": [0] * n,
            "attention_mask": [1] * n, "overflowing": [],
            "sequence_ranges": {"0": {"start": 0, "end": n}},
        }  # fmt: skip
        ascii_only = data.draw(st.booleans())
        dumped = json.dumps(self.state, separators=(",", ":"), ensure_ascii=ascii_only)
        self.json = dumped.encode()

    def _cut(self, data: Any) -> list[bytes]:
        size = len(self.text)
        cuts = sorted(data.draw(st.sets(st.integers(1, max(size - 1, 1))))) if size > 1 else []
        edges = [0, *cuts, size] if size else []
        return [self.text[a:b] for a, b in pairwise(edges)]

    def _offsets(self, data: Any, old: list[bytes]) -> list[list[int]]:
        """Those of the text's characters, or of a text that the normalizer changed."""
        added = data.draw(st.integers(0, 1)) and self.text[:1] == b" "
        offsets, at = [], 0
        for token in old:
            before = self.text[: at + 1].decode(errors="ignore")
            begin = len(before) - (len(before.encode()) == at + 1)
            after = self.text[: at + len(token)].decode(errors="ignore")
            end = len(after) + (len(after.encode()) < at + len(token))
            offsets.append([max(begin - added, 0), max(end - added, 0)] if token else [begin] * 2)
            at += len(token)
        if data.draw(st.integers(0, 3)) == 0:
            return [data.draw(st.lists(counts, min_size=2, max_size=2)) for _ in old]
        return offsets

    def rewritten(self, state: bytes, type_id: int = 0) -> bytes:
        starts = np.cumsum([0, *map(len, self.tokens)])
        names = [json.dumps(name).encode() + b"\n" for name in self.names]
        return rewrite(
            np.frombuffer(state, np.uint8), np.array(self.old, np.int32),
            np.array(self.new, np.int32), _bytes(b"".join(self.tokens)), starts,
            _bytes(b"".join(names)), np.cumsum([0, *map(len, names)]), type_id,
        ).tobytes()  # fmt: skip

    def expected(self, type_id: int) -> dict[str, Any]:
        spans: list[tuple[int, list[int]]] = []  # canonical token and characters of each byte
        begins: list[int] = []
        for j, t in enumerate(self.old):
            begins.append(len(spans))
            spans += [(j, span) for span in spans_of(self.tokens[t], *self.state["offsets"][j])]
        n = len(self.new)
        lists: dict[str, Any] = {
            "ids": self.new, "type_ids": [type_id] * n, "tokens": [], "words": [], "offsets": [],
            "special_tokens_mask": [0] * n, "attention_mask": [1] * n, "overflowing": [],
            "sequence_ranges": {},
        }  # fmt: skip
        at = 0
        for t in self.new:
            size = max(len(self.tokens[t]), 1)
            j, (low, high) = spans[at][0], (spans[at][1][0], spans[at + size - 1][1][1])
            same = begins[j] == at and self.old[j] == t
            lists["tokens"].append(self.state["tokens"][j] if same else self.names[t])
            lists["words"].append(self.state["words"][j])
            span = self.state["offsets"][j] if same else [low, max(low, high)]
            lists["offsets"].append(span)
            at += size
        return lists


def spans_of(token: bytes, begin: int, end: int) -> list[list[int]]:
    """The characters of each byte of a canonical token."""
    leads = [i == 0 or byte & 0xC0 != 0x80 for i, byte in enumerate(token)]
    added = sum(leads) - (end - begin)
    if token and (added == 0 or (added == 1 and token[:1] == b" ")):
        firsts = [begin + max(sum(leads[: i + 1]) - 1 - added, 0) for i in range(len(token))]
        return [[first, first + 1] for first in firsts]
    return [[begin, end]] * max(len(token), 1)


def _bytes(text: bytes) -> np.ndarray:
    return np.frombuffer(bytearray(text), np.uint8)


@settings(deadline=None, max_examples=200)
@given(st.data(), st.integers(0, 1))
def test_all_lists_are_those_of_the_new_ids(data: Any, type_id: int) -> None:
    example = Example(data)
    state = example.rewritten(example.json, type_id)
    assert json.loads(state) == example.expected(type_id)
    encoding = Encoding()
    encoding.__setstate__(state)
    assert encoding.ids == example.new


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_state_in_another_form_gives_none(data: Any) -> None:
    """And nothing outside of the arrays is read: plain Python raises IndexError there."""
    example = Example(data)
    masks = example.json.index(b'"special')
    assert example.rewritten(example.json[: data.draw(st.integers(0, masks))]) == b""
    renamed = data.draw(st.sampled_from([b"ids", b"type_ids", b"tokens", b"words", b"offsets"]))
    assert example.rewritten(example.json.replace(b'"%s"' % renamed, b'"%s"' % renamed[1:])) == b""
    at = data.draw(st.integers(0, len(example.json) - 1))
    byte = data.draw(st.sampled_from(b'0"\\,[]n{'))
    example.rewritten(example.json[:at] + bytes([byte]) + example.json[at + 1 :])
    if example.old:
        example.new = data.draw(st.sampled_from([example.new[1:], [*example.new, example.old[0]]]))
        assert example.rewritten(example.json) == b""
        example.old = example.old[1:]
        assert example.rewritten(example.json) == b""
