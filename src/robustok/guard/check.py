"""The guard: decodes ids, encodes their text again, and reports where the two differ.

All rows at once: ids that the vocabulary does not have are set aside, special ids split each row
into segments, and the tokenizer itself encodes the text of every segment. Tokenizers that add a
space before a text, normalize it or find added tokens in it are tried with every text that could
give the ids. No state is kept between calls, so a request cannot slow down another one.

One short row of plain text is compared in Python lists first, since creating arrays takes longer
than the comparison itself.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from robustok.checks import check_integer, shown
from robustok.errors import RobustokError
from robustok.guard.findings import (
    DEVIATES,
    MATCHES,
    NO_FINDINGS,
    NOT_CANONICAL,
    NOT_UTF8,
    SPECIAL,
    SPECIAL_ID,
    SPECIAL_TEXT,
    TEXT_CHANGES,
    UNKNOWN,
    UNKNOWN_ID,
    Findings,
    FindingTable,
    Verdict,
    Verdicts,
    describe,
    join_tables,
)
from robustok.kernels import comparison as kernels
from robustok.kernels.comparison import CanonicalIds, Comparison, Repaired, Segments
from robustok.ragged import Ragged
from robustok.runtime.environment import computed_once
from robustok.tokenizer.canonical import Segment
from robustok.tokenizer.data import broken_spans
from robustok.tokenizer.vocabulary import Vocabulary, check_vocabulary

MAX_LENGTH = 1 << 20  # ids of one sequence
SHORT = 2048  # ids of a row that is compared in Python lists first
IdSequences = Ragged | Iterable[Sequence[int] | np.ndarray]
_LARGEST = 2**63 - 1  # an id of more than 64 bits is reported as this one
_ROUNDS = 4  # for a normalizer that changes its own output


class KnownIds(NamedTuple):
    """The given ids that the vocabulary has."""

    ids: np.ndarray  # int32 [known]
    position: np.ndarray  # int64 [known]: in the given ids
    offsets: np.ndarray  # int64 [rows + 1]: where each row begins in ``ids``

    def row_of(self, index: np.ndarray) -> np.ndarray:
        """The row of each index into ``ids``."""
        return np.searchsorted(self.offsets, index, "right") - 1

    def given(self, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Begin and end in the given ids of spans of ``ids``, none of them empty."""
        return self.position[begin], self.position[end - 1] + 1


class Guard:
    """Compares id sequences with the canonical encoding of their text.

    >>> guard = Guard(vocab)
    >>> verdict = guard.check([*vocab.encode("t"), *vocab.encode("he")])
    >>> verdict.canonical, verdict.distance, verdict.repaired.tolist()
    (False, 2, [266])
    >>> guard.check(vocab.encode("the")).canonical
    True

    Args:
        vocab: the vocabulary.
        allow_special: whether special ids may occur anywhere. By default a special id is a finding,
            except where the tokenizer itself puts it, at the ends of a text (a BOS).
        max_length: greatest number of ids of a sequence, 1,048,576 by default; None for no limit. A
            longer sequence is an error.
        mid_text: whether a sequence may begin in the middle of a text, as sampled completions do:
            its first ids are then also canonical if the tokenizer gives them without the space that
            it puts before a text.

    :meth:`check` reports, :meth:`admit` returns ids that a model may see or raises, :meth:`repair`
    returns the canonical ids. One guard may serve several threads; it holds no lock and keeps no
    results.
    """

    def __init__(
        self,
        vocab: Vocabulary,
        *,
        allow_special: bool = False,
        max_length: int | None = MAX_LENGTH,
        mid_text: bool = False,
    ) -> None:
        self.vocab = check_vocabulary(vocab)
        self.allow_special = allow_special
        self.mid_text = mid_text
        self.max_length = max_length
        if max_length is not None:
            self.max_length = check_integer("max_length", max_length, 1)
        vocab.gigatoken.load()  # not in the first request

    def check(self, ids: Sequence[int] | np.ndarray) -> Verdict:
        """Compare one id sequence with the canonical encoding of its text.

        Args:
            ids: integers of any width, [n]. Ids outside the vocabulary are findings, not errors.

        Raises RobustokError for anything but a flat sequence of integers, and for a sequence longer
        than ``max_length``.
        """
        given = check_row(ids, self.max_length)
        short = given.tolist() if len(given) <= SHORT else []
        if short and self._is_canonical(short):
            repaired = given.astype(np.int32)
            return Verdict(True, 0, 0, True, Findings(NO_FINDINGS, repaired, repaired), repaired)
        verdicts = self._check_rows(given, np.array([0, len(given)]))
        verdict = verdicts[0]
        if isinstance(ids, list):  # whose ids may have over 64 bits: findings name them
            findings = Findings(verdicts.table, ids, verdict.repaired)
            verdict = replace(verdict, findings=findings)
        return verdict

    def admit(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """Ids for a model: as they are, or repaired and checked again; int32 [m].

        >>> rt.Guard(vocab).admit([*vocab.encode("t"), *vocab.encode("he")])
        array([266], dtype=int32)

        Args:
            ids: integers, [n], as in :meth:`check`.

        Where the tokenizer changes a text, such as by Unicode normalization, the repaired ids spell
        the changed one. Raises RobustokError for unknown ids, for special ids, and where repairing
        deletes text or does not give canonical ids.
        """
        verdict = self.check(ids)
        forbidden = verdict.findings.kinds & {UNKNOWN_ID, SPECIAL_ID}
        if forbidden:
            listed = (describe(self.vocab, f) for f in verdict.findings if f.kind in forbidden)
            reason = next(listed, "they have findings of kind " + " and ".join(sorted(forbidden)))
            raise RobustokError(f"the ids cannot be admitted: {reason}")
        if verdict.findings.deletes_text:
            raise RobustokError(
                "the ids cannot be admitted: the tokenizer deletes a part of the text"
            )
        if not verdict.canonical and not self.check(verdict.repaired).canonical:
            raise RobustokError("the ids cannot be admitted: repairing them gives no canonical ids")
        return verdict.repaired

    def repair(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """The canonical ids of the text, int32 [m], without unknown ids.

        A text that the tokenizer changes or deletes is repaired so, too.

        Args:
            ids: integers, [n], as in :meth:`check`.
        """
        return self.check(ids).repaired

    def check_batch(self, rows: IdSequences) -> Verdicts:
        """Check many id sequences; much faster than one by one.

        Args:
            rows: a Ragged, or an iterable of id sequences as in :meth:`check`.

        Raises RobustokError with the number of the first row that is invalid or too long.
        """
        return self._check_rows(*flatten(rows, self.max_length))

    def _is_canonical(self, ids: list[int]) -> bool:
        """Whether a row is known to be the canonical ids of a plain text; else it is not known.

        Nearly all rows are. In Python lists: for a short row, arrays take longer than the
        comparison.
        """
        begin, end = self._body(ids)
        body = ids[begin:end]
        spelled = self.vocab.plain_bytes(body)
        special = self._special_pattern
        if spelled is None or (special is not None and special.search(spelled)):
            return False
        try:
            source = self.vocab.data.spelling.plain_source(spelled)
            return self.vocab.encode_unchecked(source.decode()).tolist() == body
        except (UnicodeDecodeError, RobustokError):
            return False

    def _check_rows(self, given: np.ndarray, offsets: np.ndarray) -> Verdicts:
        """Judge rows ``given[offsets[i]:offsets[i + 1]]``."""
        known = (given >= 0) & (given < self.vocab.size)
        known[known] = self.vocab.token_lengths[given[known]] > 0
        before = np.concatenate([[0], np.cumsum(known)])
        ids = KnownIds(given[known].astype(np.int32), np.flatnonzero(known), before[offsets])
        segments = Segments(ids.ids, *_runs(self.vocab.readable[ids.ids], ids.offsets))
        text, texts = self._decode(segments)
        canonical = self._canonical(ids, segments, texts)
        comparison, repaired = self._compare(segments, canonical, ids.offsets)

        marks = self._marks(ids, comparison.matches, known)
        deviations = self._deviations(ids, segments, canonical, comparison, repaired)
        in_text = join_tables([deviations, *self._text_findings(ids, segments, text)])
        unknown, special = np.flatnonzero(marks == UNKNOWN), np.flatnonzero(marks == SPECIAL)
        table = join_tables([
            in_text,
            FindingTable.of(UNKNOWN_ID, unknown, unknown + 1, 0, 0),
            FindingTable.of(SPECIAL_ID, special, special + 1),
        ])  # fmt: skip
        before = np.concatenate([[0], np.cumsum((marks == DEVIATES) | (marks == UNKNOWN))])
        distance = np.diff(before[offsets])
        splits = np.bincount(ids.row_of(segments.begin), comparison.splits, len(distance))
        return Verdicts(
            given,
            offsets,
            marks,
            distance == 0,
            distance,
            splits.astype(np.int64),
            self._round_trip(ids, distance == 0, in_text),
            Ragged(repaired.ids, repaired.offsets),
            table,
        )

    def _compare(
        self, segments: Segments, canonical: CanonicalIds, row_offsets: np.ndarray
    ) -> tuple[Comparison, Repaired]:
        ids, count = len(segments.ids), len(segments.begin)
        comparison = Comparison(
            np.ones(ids, np.bool_),
            np.zeros(len(canonical.ids), np.bool_),
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
        )
        kernels.compare_segments(segments, canonical, self.vocab.token_offsets, comparison)
        size = ids - int((segments.end - segments.begin).sum()) + len(canonical.ids)
        repaired = Repaired(
            np.empty(size, np.int32), np.empty(size, np.bool_), np.empty_like(row_offsets)
        )
        kernels.join(segments, row_offsets, canonical, comparison.canonical_matches, repaired)
        return comparison, repaired

    # --- texts and their canonical ids --------------------------------------------------------

    def _decode(self, segments: Segments) -> tuple[bytes, list[bytes]]:
        """The bytes of all segments, one 0 after each, and the bytes of each."""
        ids, begin, end = segments
        total = np.concatenate([[0], np.cumsum(self.vocab.token_lengths[ids])])
        text = np.empty(int((total[end] - total[begin]).sum()) + len(begin), np.uint8)
        offsets = np.empty(len(begin) + 1, np.int64)
        kernels.decode(segments, self.vocab.token_bytes, self.vocab.token_offsets, text, offsets)
        joined = text.tobytes()
        return joined, [joined[a : b - 1] for a, b in itertools.pairwise(offsets.tolist())]

    def _canonical(self, ids: KnownIds, segments: Segments, texts: list[bytes]) -> CanonicalIds:
        """The canonical ids of each segment.

        Where no text gives ids that spell ``texts[s]``, they are those of the nearest text that the
        tokenizer has, or none where it can encode no such text, and ``same_text[s]`` is false.
        """
        vocab, (_, begin, end) = self.vocab, segments
        placed = np.concatenate([[0], np.cumsum(vocab.is_placed[ids.ids])])
        sources = list(map(vocab.data.spelling.plain_source, texts))
        for s in np.flatnonzero(placed[end] > placed[begin]).tolist():
            sources[s] = next(vocab.sources(ids.ids[begin[s] : end[s]]), texts[s])
        encoded = vocab.canonicalizer.encode_batch(sources)
        same = np.ones(len(texts), np.bool_)
        if not (
            np.array_equal(encoded.values, ids.ids) and np.array_equal(encoded.offsets[:-1], begin)
        ):  # nearly never: an id is not canonical, or special
            same = self._same_text(encoded, texts)
            placed_at = vocab.is_placed[encoded.values]
            if self.mid_text or placed[-1] or placed_at.any() or not same.all():
                rows = list(encoded)
                self._try_other_texts(rows, same, ids, segments, texts)
                self._encode_until_stable(rows, np.flatnonzero(~same).tolist())
                if self.mid_text:
                    self._try_continuations(rows, same, ids, segments, texts)
                encoded = Ragged.from_rows(rows)
        return CanonicalIds(encoded.values, encoded.offsets, same)

    def _same_text(self, rows: Ragged, texts: list[bytes]) -> np.ndarray:
        """Whether each row spells its text and has no special ids, bool [rows]."""
        spelled = self._decode(Segments(rows.values, rows.offsets[:-1], rows.offsets[1:]))[1]
        same = np.fromiter(map(bytes.__eq__, spelled, texts), np.bool_, len(texts))
        readable = self.vocab.readable[rows.values]
        if not readable.all():  # such as an unknown token that the model reads by its name
            same[np.searchsorted(rows.offsets, np.flatnonzero(~readable), "right") - 1] = False
        return same

    def _try_other_texts(
        self,
        rows: list[np.ndarray],
        same: np.ndarray,
        ids: KnownIds,
        segments: Segments,
        texts: list[bytes],
    ) -> None:
        """Replace rows that the first source does not explain, and set ``same``."""
        canonicalizer, wanted = self.vocab.canonicalizer, []
        for s, (begin, end) in enumerate(zip(segments.begin, segments.end, strict=True)):
            given = ids.ids[begin:end]
            if not np.array_equal(rows[s], given) and (
                not same[s] or canonicalizer.places(rows[s]) != canonicalizer.places(given)
            ):
                wanted.append(s)
        beside: dict[int, Segment] = {}  # all segments of their rows, with the special ids beside
        for row in np.unique(ids.row_of(segments.begin[wanted])).tolist():
            first, last = ids.offsets[row : row + 2]
            parts = canonicalizer.segments(ids.ids[first:last])
            readable = (part for part in parts if not canonicalizer.is_special(part))
            beside |= enumerate(readable, int(np.searchsorted(segments.begin, first)))
        exact = canonicalizer.exact_batch([beside[s] for s in wanted], [rows[s] for s in wanted])
        for s, canonical in zip(wanted, exact, strict=True):
            given = beside[s].ids
            if canonical is None and self.vocab.is_placed[given].any():
                with suppress(RobustokError):
                    canonical = canonicalizer.canonicalize(given)
            if canonical is not None:
                rows[s] = canonical
                same[s] = self.vocab.decode_bytes(canonical) == texts[s]

    def _encode_until_stable(self, rows: list[np.ndarray], left: list[int]) -> None:
        """Encode changed texts again until the normalizer leaves them as they are."""
        plain_source = self.vocab.data.spelling.plain_source
        for _ in range(_ROUNDS):
            if not left:
                return
            texts = [plain_source(self.vocab.decode_bytes(rows[i])) for i in left]
            again = dict(zip(left, self.vocab.canonicalizer.encode_batch(texts), strict=True))
            left = [i for i, row in again.items() if not np.array_equal(rows[i], row)]
            for i in left:
                rows[i] = again[i]

    def _try_continuations(
        self,
        rows: list[np.ndarray],
        same: np.ndarray,
        ids: KnownIds,
        segments: Segments,
        texts: list[bytes],
    ) -> None:
        """Replace the ids of the first segment of a row by those of a text that goes on.

        Where these are the given ones, or where no text gives ids that spell the segment.
        """
        first = np.flatnonzero(np.isin(segments.begin, ids.offsets[:-1])).tolist()
        given = {s: ids.ids[segments.begin[s] : segments.end[s]] for s in first}
        differ = [s for s in first if not np.array_equal(rows[s], given[s])]
        encoded = self.vocab.canonicalizer.encode_continuations([texts[s] for s in differ])
        for s, continued in zip(differ, encoded, strict=True):
            if np.array_equal(continued, given[s]) or not same[s]:
                rows[s], same[s] = continued, self.vocab.decode_bytes(continued) == texts[s]

    # --- marks and findings -------------------------------------------------------------------

    def _marks(self, row_ids: KnownIds, matches: np.ndarray, known: np.ndarray) -> np.ndarray:
        """What each given id is, uint8 [given ids]; ``matches``: bool [known ids]."""
        marks = np.full(len(known), UNKNOWN, np.uint8)
        marks[known] = np.where(matches, MATCHES, DEVIATES)
        special = ~self.vocab.readable[row_ids.ids] & matches
        if self.allow_special or not special.any():
            return marks
        marks[row_ids.position[special]] = SPECIAL
        if not any(self.vocab.frame):
            return marks
        # What the tokenizer itself puts around a text matches.
        for row in np.unique(row_ids.row_of(np.flatnonzero(special))).tolist():
            first, last = row_ids.offsets[row : row + 2].tolist()
            begin, end = self._body(row_ids.ids[first:last].tolist())
            marks[row_ids.position[first : first + begin]] = MATCHES
            marks[row_ids.position[first + end : last]] = MATCHES
        return marks

    def _text_findings(
        self, row_ids: KnownIds, segments: Segments, text: bytes
    ) -> Iterator[FindingTable]:
        """Ordinary ids that spell a special token, and ids whose bytes are not UTF-8.

        ``text``: the joined bytes of all segments.
        """
        pattern = self._special_pattern
        special = [match.span() for match in pattern.finditer(text)] if pattern else []
        spelled = np.array(special, np.int64).reshape(-1, 2).T
        for kind, spans in ((SPECIAL_TEXT, spelled), (NOT_UTF8, broken_spans(text))):
            if len(spans[0]):
                begin, end = _ids_of_spans(segments, self.vocab.token_lengths, *spans)
                # An added token inside a segment is itself, no spelled one.
                ordinary = (end > begin + 1) | ~self.vocab.is_placed[row_ids.ids[begin]]
                yield FindingTable.of(kind, *row_ids.given(begin[ordinary], end[ordinary]))

    def _deviations(
        self,
        row_ids: KnownIds,
        segments: Segments,
        canonical: CanonicalIds,
        comparison: Comparison,
        repaired: Repaired,
    ) -> FindingTable:
        """Each run of ids that do not match, with the canonical ids in its place."""
        if comparison.matches.all():
            return NO_FINDINGS
        begin, end = _runs(~comparison.matches, row_ids.offsets)
        # The n-th id that matches is the n-th one on both sides.
        before = (np.cumsum(comparison.matches) - comparison.matches)[begin]
        matching = np.flatnonzero(repaired.matches)
        row = row_ids.row_of(begin)
        edges = np.concatenate([[-1], matching, [len(repaired.ids)]])
        first = np.maximum(edges[before] + 1, repaired.offsets[row])
        last = np.minimum(edges[before + 1], repaired.offsets[row + 1])
        changed = ~canonical.same_text[np.searchsorted(segments.begin, begin, "right") - 1]
        columns = *row_ids.given(begin, end), first, last
        deviations = FindingTable.of(NOT_CANONICAL, *columns)
        changes = FindingTable.of(TEXT_CHANGES, *(column[changed] for column in columns))
        return join_tables([deviations, changes])

    @computed_once
    def _special_pattern(self) -> re.Pattern[bytes] | None:
        """Finds the text of any special token, the longest first; None if there is none."""
        contents = {self.vocab.tokens[i] for i in self.vocab.special} - {b""}
        ordered = sorted(contents, key=lambda c: (-len(c), c))
        return re.compile(b"|".join(map(re.escape, ordered))) if ordered else None

    # --- special ids --------------------------------------------------------------------------

    def _body(self, ids: list[int]) -> tuple[int, int]:
        """Begin and end of the ids without those that the tokenizer itself puts around a text."""
        head, tail = self.vocab.frame
        begin = len(head) if head and ids[: len(head)] == head else 0
        end = len(ids) - len(tail)
        return begin, end if tail and end >= begin and ids[end:] == tail else len(ids)

    def _round_trip(
        self, row_ids: KnownIds, canonical: np.ndarray, in_text: FindingTable
    ) -> np.ndarray:
        """Which rows come back from decoding and encoding, special tokens parsed; bool [rows]."""
        back = canonical.copy()
        back[row_ids.row_of(np.searchsorted(row_ids.position, in_text.begin))] = False
        special = np.flatnonzero(~self.vocab.readable[row_ids.ids])
        rows = np.unique(row_ids.row_of(special))
        rows = rows[back[rows]].tolist()
        if not rows:
            return back
        bodies, texts = [], []
        for row in rows:
            ids = row_ids.ids[row_ids.offsets[row] : row_ids.offsets[row + 1]].tolist()
            begin, end = self._body(ids)
            bodies.append(ids[begin:end])
            texts.append(b"".join([self.vocab.tokens[i] for i in bodies[-1]]))
        sources = [self.vocab.data.spelling.plain_source(text) for text in texts]
        again = self.vocab.canonicalizer.encode_batch(sources, parse_special=True)
        for row, ids, other in zip(rows, bodies, again, strict=True):
            back[row] = ids == other.tolist()
        return back

    def __reduce__(self) -> Any:
        names = ("allow_special", "max_length", "mid_text")
        options = {name: getattr(self, name) for name in names}
        return partial(type(self), self.vocab, **options), ()


def _runs(flags: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Begin and end of each run of flagged ids within a row; rows begin at ``offsets``."""
    padded = np.zeros(len(flags) + 2, np.bool_)
    padded[1:-1] = flags
    starts = np.zeros(len(flags) + 1, np.bool_)
    starts[offsets] = True
    begin = np.flatnonzero(padded[1:] & (starts | ~padded[:-1]))
    end = np.flatnonzero(padded[:-1] & (starts | ~padded[1:]))
    return begin, end


def flatten(rows: IdSequences, max_length: int | None) -> tuple[np.ndarray, np.ndarray]:
    """All ids as one integer array, and where each row begins, int64 [rows + 1].

    Raises RobustokError for a row that is not a sequence of integers or has more than
    ``max_length`` of them.
    """
    if isinstance(rows, Ragged):
        lengths = rows.lengths
        if max_length is not None and len(lengths) and lengths.max() > max_length:
            number = int(np.argmax(lengths > max_length))
            raise _too_long(f"sequence {number}: ", int(lengths[number]), max_length)
        return rows.values, rows.offsets
    if not isinstance(rows, Iterable) or getattr(rows, "ndim", 1) == 0:
        raise RobustokError(f"rows are sequences of token ids, not {shown(rows)}")
    arrays = [check_row(row, max_length, f"sequence {number}: ") for number, row in enumerate(rows)]
    values = np.concatenate(arrays) if arrays else np.empty(0, np.int64)
    return values, np.cumsum([0, *map(len, arrays)])


def check_row(row: Any, max_length: int | None, label: str = "") -> np.ndarray:
    """One id sequence as int64; ``label`` begins the message of an error."""
    is_flat = getattr(row, "ndim", 1) == 1  # an array without dimensions has no length
    if is_flat and max_length is not None and hasattr(row, "__len__") and len(row) > max_length:
        raise _too_long(label, len(row), max_length)
    ids = _as_integers(row)
    if ids is None:
        raise RobustokError(f"{label}token ids are a list of integers, not {shown(row)}")
    return ids


def _as_integers(row: Any) -> np.ndarray | None:
    """A flat sequence of integers as int64, where larger ones become the largest; None for others.

    Floats and bools are no integers.
    """
    try:
        ids = np.asarray(row)
    except ValueError:  # rows of different lengths inside one sequence
        return None
    if ids.ndim != 1 or (isinstance(row, (list, tuple)) and bool in map(type, row)):
        return None
    if ids.dtype.kind in "iu":
        return (np.minimum(ids, _LARGEST) if ids.dtype == np.uint64 else ids).astype(np.int64)
    integers = [] if isinstance(row, np.ndarray) else list(row)
    if all(type(i) is int or isinstance(i, np.integer) for i in integers):
        # numpy makes floats or objects of integers that do not fit int64.
        large = [max(min(int(i), _LARGEST), -_LARGEST) for i in integers]
        return np.array(large, np.int64) if len(large) == len(ids) else None
    return None


def _too_long(label: str, length: int, max_length: int) -> RobustokError:
    return RobustokError(
        f"{label}{length} ids, the guard takes at most {max_length}: shorten the sequence or raise "
        "max_length"
    )


def _ids_of_spans(
    segments: Segments, lengths: np.ndarray, begin: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Begin and end in ``segments.ids`` of the ids that hold spans of their joined text.

    ``begin`` and ``end``: int64 [spans], in bytes. ``lengths``: int64 [tokens], bytes of each
    token. The joined text has one byte after each segment, which no span includes.
    """
    sizes = segments.end - segments.begin
    number = np.repeat(np.arange(len(sizes)), sizes)
    before = np.cumsum(sizes) - sizes
    position = np.arange(len(number)) + (segments.begin - before)[number]
    size = lengths[segments.ids[position]]
    starts = np.cumsum(size) - size + number
    first = position[np.searchsorted(starts, begin, "right") - 1]
    last = position[np.searchsorted(starts, end - 1, "right") - 1]
    return first, last + 1
