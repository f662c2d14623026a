"""Compare tokenizations of one text: splits and distance, of draws and of what a guard receives.

A token of the new ids matches where the old ids have the same id at the same bytes. The distance is
the number of new tokens that match nothing; the splits are the boundaries within the text that only
the new ids have. Tokens without bytes count nothing.

A guard compares *segments*, the runs of ids between two special ids, with the canonical ids of
their texts, which it encodes itself. These kernels decode, compare and join segments, in time
linear in the number of ids and bytes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.batch import spell
from robustok.kernels.compiler import borrow, njit


@njit(inline="always")
def match_rows(token_offsets, old, old_span, new, new_span, old_matches, new_matches):
    """Compare the ids of two spans, which spell the same bytes; returns distance and splits.

    ``token_offsets``: int64 [ids + 1], bytes before each token. ``old``, ``new``: int32 [ids],
    below the number of ids. ``old_span``, ``new_span``: begin and end within them, int64 [2] as a
    tuple. ``old_matches``, ``new_matches``: bool [ids of ``old``] and [ids of ``new``]: set to
    whether an id matches, true only in ``old_matches``; or empty, where nobody needs them.
    """
    a, a_end = old_span
    a_at, b_at, last = np.int64(0), np.int64(0), np.int64(0)
    distance, splits = np.int64(0), np.int64(0)
    for b in range(new_span[0], new_span[1]):
        begin = b_at
        b_at += token_offsets[new[b] + 1] - token_offsets[new[b]]
        if begin == b_at:
            continue
        while a < a_end and a_at < b_at:
            last = a_at
            a_at += token_offsets[old[a] + 1] - token_offsets[old[a]]
            a += 1
        matches = a_at == b_at and last == begin and old[a - 1] == new[b]
        distance += not matches
        splits += a_at != b_at
        if len(new_matches):
            new_matches[b] = matches
            if matches:
                old_matches[a - 1] = True
    return distance, splits


@njit()
def compare_rows(token_offsets, old, old_offsets, new, new_offsets):
    """The splits and the distance of each new row, int64 [new rows] each.

    ``old``, ``new``: int32 [ids], those of the old and the new rows. ``old_offsets``,
    ``new_offsets``: int64 [rows + 1]; every old row has equally many new ones, in its order. A new
    row and its old one must spell the same bytes.
    """
    splits, distance = np.zeros((2, len(new_offsets) - 1), np.int64)
    draws = _draws(old_offsets, new_offsets)
    token_offsets, old, new = borrow(token_offsets), borrow(old), borrow(new)
    flags = np.empty(0, np.bool_)
    for row in range(len(new_offsets) - 1):
        old_span = old_offsets[row // draws], old_offsets[row // draws + 1]
        new_span = new_offsets[row], new_offsets[row + 1]
        distance[row], splits[row] = match_rows(
            token_offsets, old, old_span, new, new_span, flags, flags
        )
    return splits, distance


@njit(inline="always")
def _draws(old_offsets, new_offsets):
    """New rows of each old row, at least 1.

    ``old_offsets``, ``new_offsets``: int64 [rows + 1].
    """
    return max(1, (len(new_offsets) - 1) // max(1, len(old_offsets) - 1))


@njit()
def first_other_text(token_bytes, token_offsets, old, old_offsets, new, new_offsets):
    """The first new row whose bytes are not those of its old row, or -1.

    ``old``, ``new``: int32 [ids], and ``old_offsets``, ``new_offsets``: int64 [rows + 1], as in
    `compare_rows`. Others as in :func:`match_rows`.
    """
    draws = _draws(old_offsets, new_offsets)
    token_bytes, token_offsets = borrow(token_bytes), borrow(token_offsets)
    old, new = borrow(old), borrow(new)
    for row in range(len(new_offsets) - 1):
        a, a_end = old_offsets[row // draws], old_offsets[row // draws + 1]
        p, p_end = np.int64(0), np.int64(0)  # bytes left of the current old token
        for b in range(new_offsets[row], new_offsets[row + 1]):
            for q in range(token_offsets[new[b]], token_offsets[new[b] + 1]):
                while p == p_end and a < a_end:
                    p, p_end = token_offsets[old[a]], token_offsets[old[a] + 1]
                    a += 1
                if p == p_end or token_bytes[p] != token_bytes[q]:
                    return np.int64(row)
                p += 1
        while p == p_end and a < a_end:
            p, p_end = token_offsets[old[a]], token_offsets[old[a] + 1]
            a += 1
        if p != p_end:
            return np.int64(row)
    return np.int64(-1)


class Segments(NamedTuple):
    """Segment s is ``ids[begin[s]:end[s]]``.

    Invariant: ``0 <= begin[s] < end[s] <= begin[s + 1]`` and ``end[-1] <= len(ids)``; every id is
    in ``[0, tokens)``.
    """

    ids: np.ndarray  # int32 [ids]
    begin: np.ndarray  # int64 [segments]
    end: np.ndarray  # int64 [segments]


class CanonicalIds(NamedTuple):
    """The canonical ids of segment s are ``ids[offsets[s]:offsets[s + 1]]``.

    Invariant: where ``same_text[s]``, they decode to the bytes of the segment, and no id of either
    decodes to nothing.
    """

    ids: np.ndarray  # int32 [canonical ids]
    offsets: np.ndarray  # int64 [segments + 1], ascending from 0 to len(ids)
    same_text: np.ndarray  # bool [segments]


class Comparison(NamedTuple):
    """How segments differ from their canonical ids; written by :func:`compare_segments`.

    A token matches where both sides have the same id at the same bytes.
    """

    matches: np.ndarray  # bool [ids]: this id has a canonical counterpart
    canonical_matches: np.ndarray  # bool [canonical ids]: this canonical id has a given counterpart
    distance: np.ndarray  # int64 [segments]: given ids without a counterpart
    splits: np.ndarray  # int64 [segments]: boundaries that the canonical ids do not have


class Repaired(NamedTuple):
    """Rows in canonical form; written by :func:`join`."""

    ids: np.ndarray  # int32 [ids outside segments + canonical ids]
    matches: np.ndarray  # bool, one for each id: the given row has this id here
    offsets: np.ndarray  # int64 [rows + 1]


@njit()
def decode(segments, token_bytes, token_offsets, text, text_offsets):
    """Write the bytes of each segment and one 0 after it.

    ``segments``: `Segments`. ``text``: uint8, as long as the bytes of all segments plus one byte a
    segment. ``text_offsets``: int64 [segments + 1]; segment s is
    ``text[text_offsets[s]:text_offsets[s + 1] - 1]``.
    """
    text = borrow(text)
    at = np.int64(0)
    text_offsets[0] = 0
    for s in range(len(segments.begin)):
        begin, end = segments.begin[s], segments.end[s]
        at = spell(token_bytes, token_offsets, segments.ids, begin, end, text, at)
        text[at] = 0
        at += 1
        text_offsets[s + 1] = at


@njit()
def compare_segments(segments, canonical, token_offsets, comparison):
    """Fill ``comparison``, whose ``matches`` are true and ``canonical_matches`` false before.

    ``segments``: `Segments`. ``canonical``: `CanonicalIds` of these segments. ``comparison``:
    `Comparison`. Segments that their canonical ids spell are compared by byte positions, others by
    the longest common prefix and suffix. Of a segment with another text, at least one id does not
    match.
    """
    for s in range(len(segments.begin)):
        begin, end = segments.begin[s], segments.end[s]
        first, last = canonical.offsets[s], canonical.offsets[s + 1]
        if canonical.same_text[s]:
            comparison.distance[s], comparison.splits[s] = match_rows(
                token_offsets,
                canonical.ids,
                (first, last),
                segments.ids,
                (begin, end),
                comparison.canonical_matches,
                comparison.matches,
            )
        else:
            _match_ends(segments.ids, begin, end, canonical.ids, first, last, comparison)
            comparison.splits[s] = 0
            comparison.distance[s] = end - begin - comparison.matches[begin:end].sum()


@njit()
def _match_ends(ids, begin, end, canonical, first, last, comparison):
    """Match the common prefix and suffix, leaving at least one given id between them.

    ``ids``: int32; the segment is ids[begin:end], at least one id. ``canonical``: int32 [ids]; its
    canonical ids are canonical[first:last]. ``comparison``: `Comparison`, whose ``matches`` has a
    value for each of ``ids`` and ``canonical_matches`` one for each of ``canonical``. Prefix and
    suffix together are at most end - begin - 1 and last - first long, so both stay in the ranges.
    """
    room = min(end - begin - 1, last - first)
    prefix = 0
    while prefix < room and ids[begin + prefix] == canonical[first + prefix]:
        comparison.canonical_matches[first + prefix] = True
        prefix += 1
    suffix = 0
    while suffix < room - prefix and ids[end - 1 - suffix] == canonical[last - 1 - suffix]:
        comparison.canonical_matches[last - 1 - suffix] = True
        suffix += 1
    comparison.matches[begin + prefix : end - suffix] = False


@njit()
def join(segments, row_offsets, canonical, canonical_matches, repaired):
    """Fill ``repaired``: each row with its segments in canonical form, other ids as they are.

    ``segments``: `Segments`. ``row_offsets``: int64 [rows + 1] into ``segments.ids``; no segment
    crosses a row's end. ``canonical``: `CanonicalIds` of these segments. ``canonical_matches``:
    bool [canonical ids]. ``repaired``: `Repaired`, sized for the ids outside segments and all
    canonical ids.
    """
    at = np.int64(0)
    s = 0
    repaired.offsets[0] = 0
    for row in range(len(row_offsets) - 1):
        i = row_offsets[row]
        while i < row_offsets[row + 1]:
            if s < len(segments.begin) and segments.begin[s] == i:
                for c in range(canonical.offsets[s], canonical.offsets[s + 1]):
                    repaired.ids[at] = canonical.ids[c]
                    repaired.matches[at] = canonical_matches[c]
                    at += 1
                i = segments.end[s]
                s += 1
            else:
                repaired.ids[at] = segments.ids[i]
                repaired.matches[at] = True
                at += 1
                i += 1
        repaired.offsets[row + 1] = at
