"""The tokenization lattice of one text: exact counts, enumeration, distances, neighbors.

Counts are Python integers of any size. The lattice factorizes at positions that no token spans, so
counts are products over its blocks. Sampling is in `robustok.samplers`, which computes in floating
point and is much faster.
"""

from __future__ import annotations

import itertools
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf, isnan, log

import numpy as np

from robustok.checks import check_ids, check_integer
from robustok.errors import RobustokError
from robustok.kernels.comparison import compare_rows
from robustok.kernels.counting import all_block_ends, block_counts, log_coefficient
from robustok.kernels.feasible import largest_feasible
from robustok.kernels.lattice import Edges, at_distance, backward, extremes, row_edges
from robustok.lattice.counting import integer_power, integer_product, paths_by_degree, product
from robustok.ragged import Ragged
from robustok.runtime.environment import computed_once
from robustok.tokenizer.vocabulary import Vocabulary, check_vocabulary

_DEGREES = ("distance", "segments")
_MOST_CELLS = 1 << 27  # positions times distances that `neighbors` may search
_MOST_PAIRS = 1 << 22  # positions times distances times segments: seconds and 1 GB
_MOST_REACHABLE = 1 << 31  # bits of the table of `enumerate`: 256 MB
_MOST_BITS = 1 << 27  # of all counts of a text by distance or segments: 16 MB


class Lattice:
    """The tokenizations of one text, as paths over byte positions.

    >>> lat = vocab.lattice("revolution")
    >>> lat.count(), lat.count(segments=4), lat.count(distance=2)
    (30, 2, 2)

    Args:
        vocab: the vocabulary.
        ids: the reference that distances are measured from, integers [m], usually the canonical
            ids. Ids that are not ordinary stay where they are.

    Positions are bytes. Raises RobustokError for an id outside the vocabulary and for an id without
    bytes.
    """

    def __init__(self, vocab: Vocabulary, ids: Sequence[int] | np.ndarray) -> None:
        self.vocab = vocab
        self.reference = check_spelled(vocab, ids)
        self.text = vocab.decode_bytes(self.reference)
        fixed = ~vocab.ordinary[self.reference]
        text_bytes = np.frombuffer(bytearray(self.text), np.uint8)
        self._edges = Edges(
            *row_edges(vocab.trie, text_bytes, vocab.token_offsets, self.reference, fixed)
        )

    def count(self, *, distance: int | None = None, segments: int | None = None) -> int:
        """How many tokenizations there are, exactly.

        ``distance`` restricts the count to tokenizations at exactly that distance from the
        reference, ``segments`` to those of exactly that many tokens.

        Takes O(n log n) time for a text of n bytes whose blocks (parts without a position that
        no token spans) are short. A block of b bytes takes O(b²) time and O(b) memory: about 3 s
        for 256 kB. Limits on ``distance`` and ``segments`` are those of :meth:`counts`; both
        together take O(n · distance · segments), up to 2**22. Raises RobustokError beyond;
        :meth:`log_count` has no limit.
        """
        distance = _check_optional("distance", distance)
        segments = _check_optional("segments", segments)
        if distance is not None and segments is not None:
            return self._count_both(distance, segments)
        by, degree = ("distance", distance) if segments is None else ("segments", segments)
        if degree is None:
            return self._count_all()
        counts = self.counts(by=by, most=degree)
        return counts[degree] if 0 <= degree < len(counts) else 0

    def counts(self, *, by: str = "distance", most: int | None = None) -> list[int]:
        """The number of tokenizations by distance or by segments, from 0 up to ``most``.

        >>> vocab.lattice("the").counts(by="segments")
        [0, 1, 1, 1]

        All counts of n bytes are n integers of up to n bits: the result may have 16 MB (about
        10 kB of text). A block of b bytes takes O(b³) time (5 s for 4 kB) and tens of MB. Raises
        RobustokError beyond: give ``most``, or use :meth:`log_count`.
        """
        if by not in _DEGREES:
            raise RobustokError(f"by={by!r}: count by 'distance' or by 'segments'")
        most = _check_optional("most", most)
        ceiling = len(self.text) if most is None else min(most, len(self.text))
        if ceiling < 0:
            return []
        if by == "distance":
            ceiling = min(ceiling, self.farthest)
        if ceiling * self._log_total > _MOST_BITS * log(2):
            raise RobustokError(
                f"counts by {by} up to {ceiling} of this text would take over 16 MB: give a "
                "smaller `most` or `distance`, or use log_count(distance=)"
            )
        factors = [
            (paths_by_degree(*self._block(*span), by, ceiling), n) for span, n in self._blocks
        ]
        return product(factors, ceiling)

    def log_count(self, *, distance: int | None = None) -> float:
        """The natural logarithm of :meth:`count`, in floating point and in linear time.

        -inf where no tokenization has that distance.
        """
        distance = _check_optional("distance", distance)
        if distance is None:
            return self._log_total
        if distance <= 0 or distance >= self.farthest + 1:
            return 0.0 if distance == 0 else -inf
        log_number = float(log_coefficient(self._edges, distance, self.farthest))
        if log_number == -inf or isnan(log_number):  # infeasible, or too rare for floating point
            if self.feasible(distance) != distance:
                return -inf
            return log(self.count(distance=distance))
        return log_number

    @computed_once
    def farthest(self) -> int:
        """The largest distance that a tokenization of this text has."""
        return int(extremes(self._edges)[1][0])

    def feasible(self, distance: int) -> int:
        """The largest distance up to ``distance`` that a tokenization of this text has.

        >>> vocab.lattice("the").feasible(1)
        0
        """
        distance = check_integer("distance", distance)
        largest = int(largest_feasible(self._edges, min(max(distance, 0), self.farthest)))
        if largest < 0:
            raise RobustokError(
                f"the text of {len(self.text)} bytes is too long to tell which distances up to "
                f"{distance} it has with this vocabulary: give a smaller distance or shorter texts"
            )
        return largest

    def enumerate(
        self, *, distance: int | None = None, segments: int | None = None, limit: int | None = None
    ) -> Iterator[np.ndarray]:
        """Every tokenization, or those at a distance or of a number of segments, up to a limit.

        >>> [[vocab.tokens[i] for i in ids] for ids in vocab.lattice("the").enumerate()]
        [[b't', b'h', b'e'], [b't', b'he'], [b'the']]

        Sorted by token length at the first position where two rows differ, shorter first. The
        iterator is lazy: memory is that of one tokenization, and with ``distance`` or ``segments``
        O(n · degree) bits. Each is int32 [tokens]. The first step raises RobustokError where that
        is over 256 MB.
        """
        distance = _check_optional("distance", distance)
        segments = _check_optional("segments", segments)
        limit = _check_optional("limit", limit, 0)
        paths = self._paths(distance, segments)
        if limit is not None:
            paths = itertools.islice(paths, min(limit, sys.maxsize))
        return paths

    def neighbors(self, ids: Sequence[int] | np.ndarray, distance: int = 2) -> Ragged:
        """The tokenizations at exactly ``distance`` from ``ids``, a row each (paper: Ne).

        >>> [vocab.decode(row[:1]) for row in vocab.lattice("the").neighbors(vocab.encode("the"))]
        ['t']

        Args:
            ids: a tokenization of this text, integers [m].
            distance: the distance, at least 0. Splitting one token in two is distance 2, merging
                two into one is 1.

        Takes O(n · distance) time and memory for n bytes, beside the result. Raises RobustokError
        where ``ids`` is not a tokenization of this text, and where the result would have over 2**31
        tokens.
        """
        center = check_spelled(self.vocab, ids)
        distance = check_integer("distance", distance, 0)
        lattice = self
        if not np.array_equal(center, self.reference):
            lattice = Lattice(self.vocab, center)
            if lattice.text != self.text:
                raise RobustokError("these ids are not a tokenization of the lattice's text")
        if distance > lattice.farthest:
            return Ragged(np.empty(0, np.int32), np.zeros(1, np.int64))
        if (len(self.text) + 1) * (distance + 1) > _MOST_CELLS:
            raise RobustokError(
                f"distance={distance} is too large to list the neighbors of {len(self.text)} "
                "bytes: draw from `uniform-k`, or use enumerate(distance=, limit=)"
            )
        values, offsets, possible = at_distance(lattice._edges, distance)
        if not possible:
            raise RobustokError(
                f"the neighbors at distance {distance} have over 2**31 tokens: draw from "
                "`uniform-k`, or use enumerate(distance=, limit=)"
            )
        return Ragged(values, offsets)

    @computed_once
    def _log_total(self) -> float:
        mantissa, exponent = backward(self._edges, 1.0)
        return float(np.log(mantissa[0]) + exponent[0] * log(2.0))

    @computed_once
    def _block_ends(self) -> np.ndarray:
        """The end of every block; int64."""
        return all_block_ends(self._edges.first, self._edges.step)

    @computed_once
    def _blocks(self) -> list[tuple[tuple[int, int], int]]:
        """(begin, end) of each distinct block, and how often the block occurs."""
        occurrences: Counter[bytes] = Counter()
        span_of: dict[bytes, tuple[int, int]] = {}
        begin = 0
        for end in self._block_ends.tolist():
            first, step = self._block(begin, end)
            edge_bytes = first.tobytes() + step.tobytes()
            span_of.setdefault(edge_bytes, (begin, end))
            occurrences[edge_bytes] += 1
            begin = end
        return [(span_of[edge_bytes], n) for edge_bytes, n in occurrences.items()]

    def _count_all(self) -> int:
        """The number of all tokenizations."""
        counts = block_counts(self._edges.first, self._edges.step, self._block_ends)
        occurrences = Counter(counts[counts > 1].tolist())
        factors = [integer_power(count, n) for count, n in occurrences.items()]
        for b in np.flatnonzero(counts < 0).tolist():
            begin = int(self._block_ends[b - 1]) if b else 0
            block = self._block(begin, int(self._block_ends[b]))
            factors.append(paths_by_degree(*block, None, 0)[0])
        return integer_product(factors)

    def _block(self, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """``first`` and ``step`` of the edges from byte ``begin`` to ``end``, as in `Edges`."""
        first = self._edges.first[begin : end + 1]
        return first - first[0], self._edges.step[first[0] : first[-1]]

    def _count_both(self, distance: int, segments: int) -> int:
        """The number of tokenizations of this distance and this many segments."""
        n = len(self.text)
        if not (0 <= distance <= self.farthest and 0 <= segments <= n):
            return 0
        if n * (distance + 1) * (segments + 1) > _MOST_PAIRS:
            raise RobustokError(
                f"a count by distance and segments of {n} bytes takes too long: give one of "
                "`distance` and `segments`, or shorter texts"
            )
        table: list[dict[tuple[int, int], int]] = [{} for _ in range(n + 1)]
        table[-1][0, 0] = 1
        for i in range(n - 1, -1, -1):
            for _, j, cost in self._edges_of(i):
                for (d, s), count in table[j].items():
                    if d + cost <= distance and s < segments:
                        table[i][d + cost, s + 1] = table[i].get((d + cost, s + 1), 0) + count
        return table[0].get((distance, segments), 0)

    def _edges_of(self, i: int) -> Iterator[tuple[int, int, int]]:
        """(token, end, cost) of every edge that begins at byte i."""
        first, token, step = self._edges
        for e in range(int(first[i]), int(first[i + 1])):
            yield int(token[e]), i + int(step[e] >> 1), int(step[e] & 1)

    def _paths(self, distance: int | None, segments: int | None) -> Iterator[np.ndarray]:
        """Depth-first search; enters a node only if the end is reachable with the degree left."""
        n = len(self.text)
        if any(degree is not None and not 0 <= degree <= n for degree in (distance, segments)):
            return
        # Distance and segments in one number: segments are at most n, so they never carry over.
        scale = 1 if segments is None else n + 1
        total = (distance or 0) * scale + (segments or 0)
        segment_degree = int(segments is not None)
        edge_degree = [segment_degree, segment_degree + scale * (distance is not None)]  # by cost
        reachable = self._reachable(edge_degree, total)
        if not reachable[0] >> total & 1:
            return
        if n == 0:
            yield np.empty(0, np.int32)
            return
        first, token, step = (a.data for a in self._edges)
        path, edges = array("i"), array("q")  # the tokens and edges so far
        i, e, left = 0, 0, total  # the node, its next edge, and the degree left
        while True:
            while e < first[i + 1]:
                j, rest = i + (step[e] >> 1), left - edge_degree[step[e] & 1]
                if rest >= 0 and reachable[j] >> rest & 1:
                    break
                e += 1
            else:
                if not edges:
                    return
                e = edges.pop()
                path.pop()
                i -= step[e] >> 1
                left += edge_degree[step[e] & 1]
                e += 1
                continue
            path.append(token[e])
            if j == n:
                yield np.array(path, np.int32)
                path.pop()
                e += 1
            else:
                edges.append(e)
                i, e, left = j, first[j], rest

    def _reachable(self, edge_degree: list[int], total: int) -> Sequence[int]:
        """[node], bit g: whether a path from the node to the end has degree g, up to ``total``."""
        n = len(self.text)
        if edge_degree == [0, 0]:
            return (backward(self._edges, 1.0)[0] > 0).tobytes()
        if n * (total + 1) > _MOST_REACHABLE:
            raise RobustokError(
                f"the tokenizations of {n} bytes at this distance or number of segments take over "
                "256 MB to list: give shorter texts, or draw from `uniform-k`"
            )
        mask = (1 << total + 1) - 1
        reachable = [0] * n + [1]
        for i in range(n - 1, -1, -1):
            for _, j, cost in self._edges_of(i):
                reachable[i] |= reachable[j] << edge_degree[cost]
            reachable[i] &= mask
        return reachable

    def __repr__(self) -> str:
        return f"Lattice({len(self.text)} bytes, {len(self._edges.token)} edges)"


def _check_optional(name: str, value: int | None, low: int | None = None) -> int | None:
    return None if value is None else check_integer(name, value, low)


def check_spelled(vocab: Vocabulary, ids: Sequence[int] | np.ndarray) -> np.ndarray:
    """Ids of the vocabulary that all have bytes, as int32; else a RobustokError."""
    checked = check_ids(ids, check_vocabulary(vocab).size)
    empty = np.flatnonzero(vocab.token_offsets[checked + 1] == vocab.token_offsets[checked])
    if len(empty):
        raise RobustokError(
            f"id {checked[empty[0]]} at position {empty[0]} has no bytes in this vocabulary: take "
            "such ids out"
        )
    return checked


def distance(
    vocab: Vocabulary, v: Sequence[int] | np.ndarray, u: Sequence[int] | np.ndarray
) -> int:
    """Number of tokens of ``u`` that ``v`` does not have with the same id and span (paper: d).

    >>> other = [vocab.encode("t")[0], vocab.encode("he")[0]]
    >>> distance(vocab, vocab.encode("the"), other), distance(vocab, other, vocab.encode("the"))
    (2, 1)

    Args:
        vocab: the vocabulary of both.
        v: the tokenization that distances are measured from, integers [m].
        u: another tokenization of the same text, integers [n].

    Not symmetric: splitting one token in two costs 2, merging two into one costs 1. Raises
    RobustokError where the two are not tokenizations of one text, and for an id without bytes.
    """
    v_ids, u_ids = check_spelled(vocab, v), check_spelled(vocab, u)
    if vocab.decode_bytes(v_ids) != vocab.decode_bytes(u_ids):
        raise RobustokError("distance: the two id sequences spell different texts")
    rows = v_ids, np.array([0, len(v_ids)]), u_ids, np.array([0, len(u_ids)])
    return int(compare_rows(vocab.token_offsets, *rows)[1][0])
