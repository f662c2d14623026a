"""All tokenizations of one text: count, enumerate, measure, neighbors.

Exact throughout: counts are Python integers of any size. What it does not do: draw; the samplers
do, in floating point and much faster.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from math import inf, log

import numpy as np

from robustok.checks import check_ids
from robustok.errors import RobustokError
from robustok.polynomial import log_coefficient, product
from robustok.ragged import Ragged
from robustok.vocabulary import Vocabulary

_GRADES = ("distance", "segments")


class Lattice:
    """The tokenizations of one text, as paths over byte positions.

    >>> lat = vocab.lattice("revolution")
    >>> lat.count(), lat.count(segments=4), lat.count(distance=2)
    (30, 2, 2)

    ``ids`` is the reference that distances are measured from, the canonical ids unless given
    otherwise. Special ids in it stay where they are. Positions are bytes.
    """

    _first: np.ndarray
    _token: np.ndarray
    _step: np.ndarray

    def __init__(self, vocab: Vocabulary, ids: Sequence[int] | np.ndarray) -> None:
        from robustok.kernels.lattice import row_edges

        self.vocab = vocab
        self.reference = check_ids(ids, vocab.size)
        self.text = vocab.decode_bytes(self.reference)
        fixed = ~vocab.readable[self.reference]
        spelled = np.frombuffer(bytearray(self.text), np.uint8)
        self._first, self._token, self._step = row_edges(
            vocab.trie, spelled, vocab.token_offsets, self.reference, fixed
        )

    def count(
        self,
        *,
        distance: int | None = None,
        segments: int | None = None,
        modulus: int | None = None,
    ) -> int:
        """How many tokenizations there are, exactly.

        With ``distance``, those at exactly that distance from the reference; with ``segments``,
        those of exactly that many tokens; with both, those that are both. ``modulus`` gives the
        remainder, for texts of megabytes.
        """
        if distance is None and segments is None:
            total = 1
            for word, times in self._words.items():
                total *= pow(self._ways(word, None)[0], times, modulus)
                total = total % modulus if modulus else total
            return total
        if distance is not None and segments is not None:
            found = self._both(distance, segments)
        else:
            by, grade = ("distance", distance) if segments is None else ("segments", segments)
            counts = self.counts(by=by, most=grade)
            found = counts[grade] if grade is not None and 0 <= grade < len(counts) else 0
        return found % modulus if modulus else found

    def counts(self, *, by: str = "distance", most: int | None = None) -> list[int]:
        """The number of tokenizations by distance or by segments, from 0 up to ``most``.

        >>> vocab.lattice("the").counts(by="segments")
        [0, 1, 1, 1]
        """
        if by not in _GRADES:
            raise RobustokError(f"by={by!r}: count by 'distance' or by 'segments'")
        ceiling = len(self.text) if most is None else min(most, len(self.text))
        return product(self._factors(by), ceiling) if ceiling >= 0 else []

    def log_count(self, *, distance: int | None = None) -> float:
        """The natural logarithm of :meth:`count`, in floating point and so for long texts too."""
        if distance is None:
            return sum(t * log(self._ways(w, None)[0]) for w, t in self._words.items())
        return log_coefficient(self._factors("distance"), distance) if distance >= 0 else -inf

    @property
    def farthest(self) -> int:
        """The largest distance that a tokenization of this text has."""
        return sum((len(counts) - 1) * times for counts, times in self._factors("distance"))

    def enumerate(
        self, *, distance: int | None = None, segments: int | None = None, limit: int | None = None
    ) -> Iterator[np.ndarray]:
        """Every tokenization, or those at a distance or of a number of segments, up to a limit.

        >>> [[vocab.tokens[i] for i in ids] for ids in vocab.lattice("the").enumerate()]
        [[b't', b'h', b'e'], [b't', b'he'], [b'the']]

        In one order: at each position shorter tokens first. Nothing is built that is not given.
        """
        for index, path in enumerate(self._paths(distance, segments)):
            if limit is not None and index >= limit:
                return
            yield np.asarray(path, np.int32)

    def neighbours(self, ids: Sequence[int] | np.ndarray, distance: int = 2) -> Ragged:
        """The tokenizations at exactly ``distance`` from ``ids``, a row each (paper: Ne).

        Splitting one token in two is distance 2, merging two into one is 1. Raises RobustokError
        where ``ids`` is not a tokenization of this text.
        """
        from robustok.kernels.lattice import at_distance

        given = check_ids(ids, self.vocab.size)
        around = self
        if not np.array_equal(given, self.reference):
            around = Lattice(self.vocab, given)
            if around.text != self.text:
                raise RobustokError("these ids are not a tokenization of the lattice's text")
        if distance < 0:
            raise RobustokError(f"distance={distance}: ask for 0 or more")
        return Ragged(*at_distance(around._first, around._token, around._step, distance))

    @cached_property
    def _words(self) -> Counter[bytes]:
        """The independent stretches between positions no token spans, equal ones once."""
        n = len(self.text)
        words: Counter[bytes] = Counter()
        if n == 0:
            return words
        start = np.repeat(np.arange(n), np.diff(self._first))
        ends = np.zeros(n, np.int64)
        np.maximum.at(ends, start, start + (self._step >> 1))
        reach = np.maximum.accumulate(ends)
        cuts = [0, *(np.flatnonzero(reach[:-1] <= np.arange(1, n)) + 1).tolist(), n]
        for begin, end in itertools.pairwise(cuts):
            first = self._first[begin : end + 1]
            steps = self._step[first[0] : first[-1]]
            shape = (first - first[0]).astype("<i8").tobytes() + steps.astype("<i4").tobytes()
            words[(end - begin).to_bytes(8, "little") + shape] += 1
        return words

    def _factors(self, by: str) -> list[tuple[list[int], int]]:
        return [(self._ways(word, by), times) for word, times in self._words.items()]

    def _ways(self, word: bytes, by: str | None) -> list[int]:
        """Paths through one word by grade; by None all of them together."""
        n = int.from_bytes(word[:8], "little")
        first = np.frombuffer(word, "<i8", n + 1, 8).tolist()
        steps = np.frombuffer(word, "<i4", first[-1], 8 + 8 * (n + 1)).tolist()
        if by is None:
            return [self._all_ways(n, first, steps)]
        # A polynomial with counts below 2**bits is one integer: its value at 2**bits.
        bits = self._all_ways(n, first, steps).bit_length() + 1
        ways = [0] * n + [1]
        for i in range(n - 1, -1, -1):
            plain = dear = 0
            for step in steps[first[i] : first[i + 1]]:
                if step & 1 or by == "segments":
                    dear += ways[i + (step >> 1)]
                else:
                    plain += ways[i + (step >> 1)]
            ways[i] = plain + (dear << bits)
        counts, value, mask = [], ways[0], (1 << bits) - 1
        while value:
            counts.append(value & mask)
            value >>= bits
        return counts

    @staticmethod
    def _all_ways(n: int, first: list[int], steps: list[int]) -> int:
        ways = [0] * n + [1]
        for i in range(n - 1, -1, -1):
            ways[i] = sum(ways[i + (step >> 1)] for step in steps[first[i] : first[i + 1]])
        return ways[0]

    def _both(self, distance: int, segments: int) -> int:
        table: list[dict[tuple[int, int], int]] = [{} for _ in range(len(self.text) + 1)]
        table[-1][0, 0] = 1
        for i in range(len(self.text) - 1, -1, -1):
            for _, j, cost in self._edges(i):
                for (d, s), ways in table[j].items():
                    if d + cost <= distance and s < segments:
                        table[i][d + cost, s + 1] = table[i].get((d + cost, s + 1), 0) + ways
        return table[0].get((distance, segments), 0)

    def _edges(self, i: int) -> Iterator[tuple[int, int, int]]:
        for e in range(int(self._first[i]), int(self._first[i + 1])):
            yield int(self._token[e]), i + int(self._step[e] >> 1), int(self._step[e] & 1)

    def _paths(self, distance: int | None, segments: int | None) -> Iterator[list[int]]:
        """Depth first, entering a node only if the grade still to spend can be spent from there."""
        n = len(self.text)
        # Both grades in one number: no path has more than n segments, so they never carry over.
        span = 1 if segments is None else n + 1
        wanted = (distance or 0) * span + (segments or 0)
        if min(distance or 0, segments or 0) < 0 or (segments or 0) > n:
            return

        def price(cost: int) -> int:
            return (cost if distance is not None else 0) * span + (segments is not None)

        mask = (1 << wanted + 1) - 1
        can = [0] * n + [1]  # bit g: grade g can be spent from here to the end
        for i in range(n - 1, -1, -1):
            for _, j, cost in self._edges(i):
                can[i] |= can[j] << price(cost)
            can[i] &= mask
        if not can[0] >> wanted & 1:
            return
        path: list[int] = []
        stack = [(self._edges(0), wanted)]
        if n == 0:
            yield []
            return
        while stack:
            edges, left = stack[-1]
            for token, j, cost in edges:
                rest = left - price(cost)
                if rest < 0 or not can[j] >> rest & 1:
                    continue
                path.append(token)
                if j == n:
                    yield list(path)
                    path.pop()
                    continue
                stack.append((self._edges(j), rest))
                break
            else:
                stack.pop()
                if path:
                    path.pop()

    def __repr__(self) -> str:
        return f"Lattice({len(self.text)} bytes, {len(self._token)} edges)"


def distance(
    vocab: Vocabulary, v: Sequence[int] | np.ndarray, u: Sequence[int] | np.ndarray
) -> int:
    """How many tokens of ``u`` do not stand, same id and same span, in ``v`` (paper: d).

    >>> other = [vocab.encode("t")[0], vocab.encode("he")[0]]
    >>> distance(vocab, vocab.encode("the"), other), distance(vocab, other, vocab.encode("the"))
    (2, 1)

    Not symmetric: splitting one token in two costs 2, merging two into one costs 1. Raises
    RobustokError where the two are not tokenizations of one text.
    """
    old, new = check_ids(v, vocab.size), check_ids(u, vocab.size)
    if vocab.decode_bytes(old) != vocab.decode_bytes(new):
        raise RobustokError("distance: the two id sequences spell different texts")
    lengths = np.diff(vocab.token_offsets)
    ends_old, ends_new = np.cumsum(lengths[old]), np.cumsum(lengths[new])
    _, at_old, at_new = np.intersect1d(ends_old, ends_new, assume_unique=True, return_indices=True)
    same = int((old[at_old] == new[at_new]).sum())
    return len(new) - same


def canonical_of(vocab: Vocabulary, ids: np.ndarray) -> np.ndarray:
    """The canonical ids of the text that ``ids`` spell, special ids left where they are.

    Encoders that put a space before the text would put a second one: that one is taken off first.
    """
    pieces: list[np.ndarray] = []
    fixed = ~vocab.readable[ids]
    edges = np.flatnonzero(np.diff(fixed.astype(np.int8), prepend=-1, append=-1))
    for begin, end in itertools.pairwise(edges):
        stretch = ids[begin:end]
        if fixed[begin]:
            pieces.append(stretch)
            continue
        text = vocab.decode_bytes(stretch)
        for candidate in (text, text[1:] if text[:1] == b" " else text):
            encoded = vocab.encode(candidate)
            if vocab.decode_bytes(encoded) == text:
                pieces.append(encoded)
                break
        else:
            pieces.append(np.asarray(vocab.encode_continuation(text), np.int32))
    return np.concatenate(pieces) if pieces else np.empty(0, np.int32)


def pairwise_segmentations(vocab: Vocabulary, token: int) -> list[int]:
    """[s]: the segmentations of a token into s pieces that repeated two-way splits reach; exact.

    They are listed as sets of cut positions, so a token of more than 20 bytes is an error.
    """
    text = vocab.tokens[token]
    n = len(text)
    if n > 20:
        raise RobustokError(
            f"support='pairwise' has too many segmentations to list for a token of {n} bytes"
        )
    from robustok.kernels.pairwise import spans

    begin = vocab.token_offsets[token]
    is_token = spans(vocab.trie, vocab.token_bytes, begin, begin + n)
    sets: dict[tuple[int, int], set[int]] = {}
    for span in range(1, n + 1):
        for i in range(n - span + 1):
            j = i + span
            if not is_token[i, j]:
                continue
            found = {0}
            for cut in range(i + 1, j):
                if (i, cut) in sets and (cut, j) in sets:
                    found |= {a | b | 1 << cut for a in sets[i, cut] for b in sets[cut, j]}
            sets[i, j] = found
    counts = Counter(cuts.bit_count() + 1 for cuts in sets.get((0, n), {0}))
    return [counts.get(s, 0) for s in range(n + 1)]
