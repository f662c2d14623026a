"""The guard: decodes ids, encodes their text again, and reports where the two differ.

One block of rows at a time: ids that the vocabulary does not have are set aside, special ids split
each row into segments, and the tokenizer itself encodes the text of every segment. No state is
kept between calls, so a request cannot slow down another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from robustok.errors import RobustokError
from robustok.guard.canonical import SegmentEncoder
from robustok.guard.findings import (
    NO_FINDINGS,
    NOT_CANONICAL,
    NOT_UTF8,
    SAME,
    SPECIAL_ID,
    SPECIAL_TEXT,
    TEXT_CHANGES,
    UNKNOWN_ID,
    FindingTable,
    describe,
    join_tables,
)
from robustok.guard.inputs import Kept, Rows, blocks_of, check_row, flatten, keep_known
from robustok.guard.plain import SHORT, PlainText, check_plain
from robustok.guard.text import find_broken, find_special, special_pattern, to_ids
from robustok.guard.verdict import (
    DEVIATES,
    MATCHES,
    SPECIAL,
    UNKNOWN,
    Verdict,
    Verdicts,
    join_verdicts,
)
from robustok.kernels import guard as kernels
from robustok.kernels.compiler.first_use import first_use
from robustok.kernels.guard import Canonical, Comparison, Repaired, Segments
from robustok.ragged import Ragged
from robustok.vocabulary import Vocabulary

MAX_LENGTH = 1 << 20  # ids of one sequence


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

    There are four methods: :meth:`check` reports, :meth:`admit` returns ids that a model may see or
    raises, :meth:`repair` returns the canonical ids, :meth:`require` raises at any finding. One
    guard may serve several threads; it holds no lock and keeps no results.
    """

    def __init__(
        self,
        vocab: Vocabulary,
        *,
        allow_special: bool = False,
        max_length: int | None = MAX_LENGTH,
    ) -> None:
        self.vocab = vocab
        self.allow_special = allow_special
        self.max_length = max_length
        self._encoder = vocab.derived("segment encoder", lambda: SegmentEncoder(vocab))
        vocab.gigatoken.load()  # not in the first request

    def check(self, ids: Sequence[int] | np.ndarray) -> Verdict:
        """Compare one id sequence with the canonical encoding of its text.

        Args:
            ids: integers of any width, [n]. Ids outside the vocabulary are findings, not errors.

        Raises RobustokError for anything but a flat sequence of integers, and for a sequence longer
        than ``max_length``.
        """
        row = ids if type(ids) is list and set(map(type, ids)) == {int} else None
        if row is None or (self.max_length is not None and len(row) > self.max_length):
            given = check_row(ids, self.max_length)
            row = given.tolist() if len(given) <= SHORT else []
        if 0 < len(row) <= SHORT:
            verdict = check_plain(self._plain, row)
            if verdict is not None:
                return verdict
        given = check_row(ids, self.max_length)
        with first_use("guard"):
            block: Verdict = self._check_block(given, np.array([0, len(given)]))[0]
        return block

    @cached_property
    def _plain(self) -> PlainText:
        return PlainText(self.vocab, self._special_pattern, self._encoder.adds_space, *self._frame)

    def admit(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """Ids for a model: as they are, or repaired and checked again; int32 [m].

        >>> rt.Guard(vocab).admit([*vocab.encode("t"), *vocab.encode("he")])
        array([266], dtype=int32)

        Args:
            ids: integers, [n], as in :meth:`check`.

        Raises RobustokError for unknown ids, for special ids, and where repairing does not give
        canonical ids.
        """
        verdict = self.check(ids)
        refused = verdict.findings.kinds & {UNKNOWN_ID, SPECIAL_ID}
        if refused:
            kinds = " and ".join(sorted(refused))
            raise RobustokError(f"the ids cannot be admitted, they have findings of kind {kinds}")
        if not verdict.canonical and not self.check(verdict.repaired).canonical:
            raise RobustokError("the ids cannot be admitted: repairing them gives no canonical ids")
        return verdict.repaired

    def repair(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """The canonical ids of the same text, int32 [m]; unknown ids are left out.

        Args:
            ids: integers, [n], as in :meth:`check`.
        """
        return self.check(ids).repaired

    def require(self, ids: Sequence[int] | np.ndarray) -> None:
        """Raise RobustokError, naming the first finding, unless there is none.

        Args:
            ids: integers, [n], as in :meth:`check`.
        """
        findings = self.check(ids).findings
        if findings:
            more = f" (and {findings.total - 1} more)" if findings.total > 1 else ""
            raise RobustokError(f"{describe(self.vocab, findings[0])}{more}")

    def check_batch(self, rows: Rows) -> Verdicts:
        """Check many id sequences; much faster than one by one.

        Args:
            rows: a Ragged, or an iterable of id sequences as in :meth:`check`.

        Raises RobustokError with the number of the first row that is invalid or too long.
        """
        given, offsets = flatten(rows, self.max_length)
        with first_use("guard"):
            blocks = [
                self._check_block(
                    given[offsets[first] : offsets[last]],
                    offsets[first : last + 1] - offsets[first],
                )
                for first, last in blocks_of(offsets)
            ]
        return blocks[0] if len(blocks) == 1 else join_verdicts(blocks)

    # --- one block ----------------------------------------------------------------------------

    def _check_block(self, given: np.ndarray, offsets: np.ndarray) -> Verdicts:
        """Judge rows ``given[offsets[i]:offsets[i + 1]]``."""
        known = self._is_known(given)
        kept = keep_known(given, offsets, known)
        segments, later = self._segments(kept)
        text, texts = self._encoder.decode(segments)
        canonical = self._encoder.encode(texts, segments, later)
        comparison, repaired = self._compare(segments, canonical, kept.offsets)

        marks = np.full(len(given), UNKNOWN, np.uint8)
        marks[known] = np.where(comparison.matches, MATCHES, DEVIATES)
        special = ~self.vocab.readable[kept.ids]
        marks[kept.position[special & comparison.matches]] = SPECIAL
        self._pass_allowed(kept, marks)

        row_of_segment = np.searchsorted(kept.offsets, segments.begin, "right") - 1
        rows = len(offsets) - 1
        distance = np.bincount(row_of_segment, comparison.distance, rows).astype(np.int64)
        splits = np.bincount(row_of_segment, comparison.splits, rows).astype(np.int64)
        unknown = np.diff(offsets) - np.diff(kept.offsets)
        in_text = self._findings(kept, segments, canonical, comparison, repaired, text)
        table = join_tables([in_text, _single_ids(UNKNOWN_ID, ~known, 0),
                             _single_ids(SPECIAL_ID, marks == SPECIAL, SAME)])  # fmt: skip
        not_canonical = (distance + unknown) > 0
        return Verdicts(
            given, offsets, marks, ~not_canonical, distance + unknown, splits,
            self._round_trip(kept, ~not_canonical, special, in_text),
            Ragged(repaired.ids, repaired.offsets), table,
        )  # fmt: skip

    def _is_known(self, given: np.ndarray) -> np.ndarray:
        known = (given >= 0) & (given < self.vocab.size)
        known[known] = self._has_token[given[known]]
        return known

    @cached_property
    def _has_token(self) -> np.ndarray:
        return self.vocab.readable | (np.diff(self.vocab.token_offsets) > 0)

    def _segments(self, kept: Kept) -> tuple[Segments, np.ndarray]:
        """The stretches that are encoded alone, and whether a special id precedes each."""
        fixed = self._is_fixed[kept.ids]
        inside = np.zeros(len(fixed) + 2, np.bool_)
        inside[1:-1] = ~fixed
        starts = np.zeros(len(fixed) + 1, np.bool_)
        starts[kept.offsets] = True
        begin = np.flatnonzero(inside[1:] & (starts | ~inside[:-1]))
        end = np.flatnonzero(inside[:-1] & (starts | ~inside[1:]))
        later = ~starts[begin]
        head, _ = self._frame
        if head and later.any():
            rows = np.searchsorted(kept.offsets, begin, "right") - 1
            framed = kept.offsets[rows] + len(head) == begin
            for s in np.flatnonzero(later & framed).tolist():
                later[s] = kept.ids[begin[s] - len(head) : begin[s]].tolist() != head
        return Segments(kept.ids, begin, end), later

    @cached_property
    def _is_fixed(self) -> np.ndarray:
        """Ids that split a row, bool [ids].

        An added token that the tokenizer finds in any text stays inside its segment, for what it
        matches may depend on its surroundings. Not where each part of a text gets its own space.
        """
        fixed = ~self.vocab.readable
        source = self.vocab.data.source
        if _is_tokenizers(source) and not self._encoder.adds_space:
            added = source.get_added_tokens_decoder().items()
            fixed[[i for i, token in added if not token.special]] = False
        return fixed

    def _compare(
        self, segments: Segments, canonical: Canonical, row_offsets: np.ndarray
    ) -> tuple[Comparison, Repaired]:
        ids, count = len(segments.ids), len(segments.begin)
        comparison = Comparison(
            np.ones(ids, np.bool_), np.zeros(len(canonical.ids), np.bool_),
            np.zeros(count, np.int64), np.zeros(count, np.int64),
        )  # fmt: skip
        kernels.compare(segments, canonical, self._encoder.tokens, comparison)
        size = ids - int((segments.end - segments.begin).sum()) + len(canonical.ids)
        repaired = Repaired(
            np.empty(size, np.int32), np.empty(size, np.bool_), np.empty_like(row_offsets)
        )
        kernels.join(segments, row_offsets, canonical, comparison.canonical_matches, repaired)
        return comparison, repaired

    # --- findings -----------------------------------------------------------------------------

    def _findings(
        self, kept: Kept, segments: Segments, canonical: Canonical, comparison: Comparison,
        repaired: Repaired, text: bytes,
    ) -> FindingTable:  # fmt: skip
        """All findings but unknown and special ids, unsorted."""
        tables = [self._deviations(kept, segments, canonical, comparison, repaired)]
        spelled = find_special(self._special_pattern, text)
        if len(spelled[0]):
            begin, end = to_ids(segments, self._encoder.lengths, spelled)
            # An added token inside a segment is no spelled one.
            real = (end == begin + 1) & ~self.vocab.readable[kept.ids[begin]]
            tables.append(FindingTable.of(SPECIAL_TEXT, *kept.given(begin[~real], end[~real])))
        broken = find_broken(text)
        if len(broken[0]):
            begin, end = to_ids(segments, self._encoder.lengths, broken)
            tables.append(FindingTable.of(NOT_UTF8, *kept.given(begin, end)))
        return join_tables(tables)

    def _deviations(
        self, kept: Kept, segments: Segments, canonical: Canonical, comparison: Comparison,
        repaired: Repaired,
    ) -> FindingTable:  # fmt: skip
        """Each run of ids that do not match, with the canonical ids in its place."""
        if comparison.matches.all():
            return NO_FINDINGS
        off = np.zeros(len(kept.ids) + 2, np.bool_)
        off[1:-1] = ~comparison.matches
        starts = np.zeros(len(kept.ids) + 1, np.bool_)
        starts[kept.offsets] = True
        begin = np.flatnonzero(off[1:] & (starts | ~off[:-1]))
        end = np.flatnonzero(off[:-1] & (starts | ~off[1:]))
        # The n-th id that matches is the n-th one on both sides.
        before = (np.cumsum(comparison.matches) - comparison.matches)[begin]
        matching = np.flatnonzero(repaired.matches)
        row = np.searchsorted(kept.offsets, begin, "right") - 1
        edges = np.concatenate([[-1], matching, [len(repaired.ids)]])
        first = np.maximum(edges[before] + 1, repaired.offsets[row])
        last = np.minimum(edges[before + 1], repaired.offsets[row + 1])
        deviating = FindingTable.of(NOT_CANONICAL, *kept.given(begin, end), first, last)
        segment = np.searchsorted(segments.begin, begin, "right") - 1
        changed = ~canonical.same_text[segment]
        changing = FindingTable.of(
            TEXT_CHANGES, *kept.given(begin[changed], end[changed]), first[changed], last[changed]
        )
        return join_tables([deviating, changing])

    @property
    def _special_pattern(self) -> Any:
        return self.vocab.derived("special pattern", lambda: special_pattern(self.vocab))

    # --- special ids --------------------------------------------------------------------------

    @cached_property
    def _frame(self) -> tuple[list[int], list[int]]:
        """The ids that the tokenizer itself puts before and after a text."""
        source = self.vocab.data.source
        if not _is_tokenizers(source):
            return [], []
        ids, plain = source.encode("a").ids, self.vocab.encode("a").tolist()
        at = next((i for i in range(len(ids)) if ids[i : i + len(plain)] == plain), len(ids))
        return ids[:at], ids[at + len(plain) :]

    def _pass_allowed(self, kept: Kept, marks: np.ndarray) -> None:
        """Mark the allowed special ids as matching."""
        special = marks == SPECIAL
        if self.allow_special:
            marks[special] = MATCHES
            return
        head, tail = self._frame
        if not (head or tail) or not special.any():
            return
        rows = np.unique(np.searchsorted(kept.offsets, np.flatnonzero(special[kept.position]),
                                         "right") - 1)  # fmt: skip
        for row in rows.tolist():
            begin, end = kept.offsets[row : row + 2].tolist()
            ids = kept.ids[begin:end].tolist()
            if head and ids[: len(head)] == head:
                marks[kept.position[begin : begin + len(head)]] = MATCHES
            if tail and ids[-len(tail) :] == tail:
                marks[kept.position[end - len(tail) : end]] = MATCHES

    def _round_trip(
        self, kept: Kept, canonical: np.ndarray, special: np.ndarray, table: FindingTable
    ) -> np.ndarray:
        """Which rows come back from decoding and encoding, special tokens parsed; bool [rows]."""
        back = canonical.copy()
        in_text = kept.row_of_given(table.begin)
        back[in_text] = False
        if not special.any():
            return back
        rows = np.unique(np.searchsorted(kept.offsets, np.flatnonzero(special), "right") - 1)
        rows = rows[back[rows]].tolist()
        bodies = [self._without_frame(kept.ids[kept.offsets[r] : kept.offsets[r + 1]].tolist())
                  for r in rows]  # fmt: skip
        tokens, adds_space = self.vocab.tokens, self._encoder.adds_space
        texts = [b"".join([tokens[i] for i in ids]) for ids in bodies]
        texts = [t[1:] if adds_space and t[:1] == b" " else t for t in texts]
        again = self.vocab.encode_batch(texts, parse_special=True)
        for row, ids, other in zip(rows, bodies, again, strict=True):
            back[row] = ids == other.tolist()
        return back

    def _without_frame(self, ids: list[int]) -> list[int]:
        head, tail = self._frame
        if head and ids[: len(head)] == head:
            ids = ids[len(head) :]
        if tail and ids[-len(tail) :] == tail:
            ids = ids[: -len(tail)]
        return ids

    def __getstate__(self) -> dict[str, Any]:
        return {"allow_special": self.allow_special, "max_length": self.max_length,
                "vocab": self.vocab}  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state.pop("vocab"), **state)


def _single_ids(kind: str, flags: np.ndarray, canonical: int) -> FindingTable:
    """A finding for each flagged id."""
    position = np.flatnonzero(flags)
    if not len(position):
        return NO_FINDINGS
    return FindingTable.of(kind, position, position + 1, canonical, canonical)


def _is_tokenizers(source: Any) -> bool:
    return type(source).__module__.split(".")[0] == "tokenizers"
