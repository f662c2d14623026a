"""Locates special tokens spelled out in text, and bytes that are not UTF-8."""

from __future__ import annotations

import re

import numpy as np

from robustok.kernels.guard import Segments
from robustok.utf8 import broken_stretches
from robustok.vocabulary import Vocabulary

Spans = tuple[np.ndarray, np.ndarray]  # begin and end, int64 each


def special_pattern(vocab: Vocabulary) -> re.Pattern[bytes] | None:
    """A pattern for the text of any special token, the longest first; None if there is none."""
    contents = {vocab.tokens[i] for i in vocab.special} - {b""}
    ordered = sorted(contents, key=lambda c: (-len(c), c))
    return re.compile(b"|".join(map(re.escape, ordered))) if ordered else None


def find_special(pattern: re.Pattern[bytes] | None, text: bytes) -> Spans:
    """Where ``text`` spells a special token, in bytes."""
    spans = [m.span() for m in pattern.finditer(text)] if pattern else []
    edges = np.array(spans, np.int64).reshape(-1, 2)
    return edges[:, 0], edges[:, 1]


def find_broken(text: bytes) -> Spans:
    """Where ``text`` is not UTF-8, in bytes."""
    return broken_stretches(text)


def to_ids(segments: Segments, lengths: np.ndarray, spans: Spans) -> Spans:
    """The ids of ``segments.ids`` that hold each span of their joined text.

    ``lengths``: int64 [tokens], bytes of each token. The joined text has one byte after each
    segment, which no span includes.
    """
    sizes = segments.end - segments.begin
    number = np.repeat(np.arange(len(sizes)), sizes)
    before = np.cumsum(sizes) - sizes
    position = np.arange(len(number)) + (segments.begin - before)[number]
    size = lengths[segments.ids[position]]
    starts = np.cumsum(size) - size + number
    begin, end = spans
    first = position[np.searchsorted(starts, begin, "right") - 1]
    last = position[np.searchsorted(starts, end - 1, "right") - 1]
    return first, last + 1
