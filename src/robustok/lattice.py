"""The tokenization lattice of one text: exact counts, enumeration, distances, neighbors.

Counts are Python integers of any size. The lattice factorizes at positions that no token spans, so
counts are products over its blocks. Those by degree (distance or segments) are products of one
polynomial a block, which is one long integer with room for each of its coefficients (Kronecker
substitution). Sampling is in `robustok.samplers`, which computes in floating point and is much
faster.
"""

from __future__ import annotations

import itertools
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import inf, isnan, log
from typing import Any, TypeVar

import numpy as np

from robustok.checks import check_ids, check_integer
from robustok.errors import RobustokError
from robustok.kernels.comparison import compare_rows
from robustok.kernels.counting import all_block_ends, block_counts, log_coefficient
from robustok.kernels.feasible import largest_feasible
from robustok.kernels.lattice import Edges, at_distance, backward, extremes, row_edges
from robustok.ragged import Ragged
from robustok.runtime.environment import computed_once
from robustok.tokenizer.vocabulary import Vocabulary, check_vocabulary

Counts = list[int]  # [g]: how many of degree g; Python integers of any size
T = TypeVar("T")

_DEGREES = ("distance", "segments")
_MOST_CELLS = 1 << 27  # positions times distances that `neighbors` may search
_MOST_REACHABLE = 1 << 31  # bits of the table of `enumerate`: 256 MB
_MOST_BITS = 1 << 27  # of all counts of a text by distance or segments: 16 MB
_MOST_BYTES = 1 << 30  # of the nodes that are kept to count one block
_MOST_WORK = 1 << 37  # bytes added that counting one block may take: about a minute
_FFT_BITS = 1 << 16  # integers from this size on are multiplied by FFT


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
        self.reference = check_spelled(vocab, ids).copy()
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
        for 256 kB. Limits on ``distance`` and ``segments``, of which at most one is given, are
        those of :meth:`counts`. Raises RobustokError beyond; :meth:`log_count` has no limit.
        """
        distance = _check_optional("distance", distance)
        segments = _check_optional("segments", segments)
        if distance is not None and segments is not None:
            raise RobustokError("count: give `distance` or `segments`, not both")
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
            (_paths_by_degree(*self._block(*span), by, ceiling), n) for span, n in self._blocks
        ]
        return counts_product(factors, ceiling)

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
        factors = list(occurrences.items())
        for b in np.flatnonzero(counts < 0).tolist():
            begin = int(self._block_ends[b - 1]) if b else 0
            block = self._block(begin, int(self._block_ends[b]))
            factors.append((_paths_by_degree(*block, None, 0)[0], 1))
        return _product_of_powers(factors, integer_multiply, None, 1)

    def _block(self, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """``first`` and ``step`` of the edges from byte ``begin`` to ``end``, as in `Edges`."""
        first = self._edges.first[begin : end + 1]
        return first - first[0], self._edges.step[first[0] : first[-1]]

    def _edges_of(self, i: int) -> Iterator[tuple[int, int, int]]:
        """(token, end, cost) of every edge that begins at byte ``i``."""
        first, token, step = self._edges
        for e in range(int(first[i]), int(first[i + 1])):
            yield int(token[e]), i + int(step[e] >> 1), int(step[e] & 1)

    def _paths(self, distance: int | None, segments: int | None) -> Iterator[np.ndarray]:
        """Depth-first search; enters a node only if the end is reachable with the degree left."""
        n = len(self.text)
        if any(degree is not None and not 0 <= degree <= n for degree in (distance, segments)):
            return
        segment_degree = int(segments is not None)
        # Distance and segments in one number: segments are at most n, so they never carry over.
        scale = 1 + n * segment_degree
        total = (distance or 0) * scale + (segments or 0)
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


def _paths_by_degree(first: np.ndarray, step: np.ndarray, by: str | None, most: int) -> Counts:
    """The number of paths through one block by degree up to ``most``; of all paths for ``by=None``.

    ``first`` and ``step`` are the block's edges, as in `Edges`. The counts of a node are one
    integer, so an edge is an addition. Only nodes that an edge can reach are kept.
    """
    n = len(first) - 1
    mantissa, exponent = backward(Edges(first, step, step), 1.0)
    # A node has no more paths than the first one; rounding up leaves room for the mantissa's error.
    width = (int(np.log2(mantissa[0]) + exponent[0]) + 9) // 8  # bytes
    degree = 0 if by is None else min(most, n)
    size, longest = width * (degree + 1), int(step.max()) >> 1
    if len(step) * size > _MOST_WORK or longest * size > _MOST_BYTES:
        raise RobustokError(
            f"exact counts of {n} bytes without a position that no token spans take too long: use "
            "log_count(), or shorter texts"
        )
    lengths, costs = step >> 1, {None: step * 0, "segments": step * 0 + 1}.get(by, step & 1)
    ends = (np.repeat(np.arange(n), np.diff(first)) + lengths).tolist()
    mask = (1 << 8 * size) - 1
    first_edge, cost_of = first.tolist(), costs.tolist()
    packed = [0] * n + [1]  # [i]: the paths from node i to the end, by degree
    for i in range(n - 1, -1, -1):
        sums = [0, 0]  # by the edges without and with a cost
        for e in range(first_edge[i], first_edge[i + 1]):
            sums[cost_of[e]] += packed[ends[e]]
        packed[i] = (sums[0] + (sums[1] << 8 * width)) & mask
        if i + longest <= n:
            packed[i + longest] = 0
    counts = _coefficients(packed[0], width, degree + 1)
    while len(counts) > 1 and not counts[-1]:
        counts.pop()
    return counts


def _coefficients(packed: int, width: int, size: int) -> Counts:
    """The first ``size`` coefficients of ``width`` bytes each."""
    raw = packed.to_bytes(max(size * width, (packed.bit_length() + 7) // 8), "little")
    return [int.from_bytes(raw[i * width : (i + 1) * width], "little") for i in range(size)]


def _multiply(a: Counts, b: Counts, most: int) -> Counts:
    """The product up to degree ``most``, each factor one long integer."""
    size = min(len(a) + len(b) - 1, most + 1)
    bound = sum(a) * sum(b)
    if not bound:
        return [0] * size
    width = (bound.bit_length() + 7) // 8
    packed = [
        int.from_bytes(b"".join(x.to_bytes(width, "little") for x in p[: most + 1]), "little")
        for p in (a, b)
    ]
    return _coefficients(integer_multiply(*packed), width, size)


def counts_product(factors: list[tuple[Counts, int]], most: int) -> Counts:
    """The product of powers, up to degree ``most``, exactly.

    >>> counts_product([([1, 1], 3)], 9)
    [1, 3, 3, 1]
    """

    def times(a: Counts, b: Counts) -> Counts:
        return _multiply(a, b, most)

    return _product_of_powers(factors, times, len, [1])[: most + 1]


def _product_of_powers(
    factors: list[tuple[T, int]], times: Callable[[T, T], T], size: Any, empty: T
) -> T:
    """The product of powers by squaring, multiplied in pairs of like ``size``."""
    terms = []
    for base, exponent in factors:
        power = base
        for bit in f"{exponent:b}"[1:]:
            power = times(power, power)
            if bit == "1":
                power = times(power, base)
        terms.append(power)
    while len(terms) > 1:
        terms.sort(key=size, reverse=True)
        pairs = [terms[i : i + 2] for i in range(0, len(terms), 2)]
        terms = [times(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return terms[0] if terms else empty


def integer_multiply(a: int, b: int) -> int:
    """The product of two integers that are not negative, in O(n log n) for large ones.

    A convolution of their bytes by a real FFT in float64. The rounding error of a coefficient is
    below 0.01 up to 2**25 bytes (coefficients are below 2**41), so rounding gives it exactly.
    """
    if min(a.bit_length(), b.bit_length()) < _FFT_BITS or max(a, b).bit_length() >> 27:
        return a * b
    x, y = (
        np.frombuffer(v.to_bytes((v.bit_length() + 7) // 8, "little"), np.uint8) for v in (a, b)
    )
    size = len(x) + len(y)
    width = _smooth(size)
    spectrum = np.fft.rfft(x, width)
    spectrum *= np.fft.rfft(y, width)
    sums = np.rint(np.fft.irfft(spectrum, width)[:size]).astype(np.int64)
    total = 0
    for plane in range(6):  # byte planes of the coefficients, each one integer
        digits = (sums >> 8 * plane).astype(np.uint8)
        total += int.from_bytes(digits.tobytes(), "little") << 8 * plane
    return total


def _smooth(size: int) -> int:
    """The smallest 2**i * 3**j (j up to 2) from ``size`` on: a fast FFT length."""
    return min(odd << max(0, -(-size // odd) - 1).bit_length() for odd in (1, 3, 9))
