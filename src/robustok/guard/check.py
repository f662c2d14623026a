"""The guard itself: runs of ids looked up, special tokens and odd bytes found."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from robustok.errors import RobustokError
from robustok.guard.verdict import (
    NOT_UTF8,
    SPECIAL,
    SPECIAL_TEXT,
    STANDS,
    TEXT_CHANGES,
    Finding,
    Verdict,
    Verdicts,
    tell,
)
from robustok.ragged import Ragged
from robustok.vocabulary import Vocabulary

BLOCK = 1 << 16  # ids that are judged at a time
_LARGEST = 2**63 - 1  # an id of more bits is told of as this one


class Guard:
    """Judges id sequences against the canonical encoder of a vocabulary.

    >>> guard = Guard(vocab)
    >>> verdict = guard.check([*vocab.encode("t"), *vocab.encode("he")])
    >>> verdict.canonical, verdict.distance, verdict.repaired.tolist()
    (False, 2, [266])
    >>> guard.check(vocab.encode("the")).canonical
    True

    Three ways to use it: :meth:`check` reports, :meth:`repair` gives the canonical ids,
    :meth:`require` raises. A special id is a finding, for in a user's text it is smuggled in; the
    ones that the tokenizer itself puts at the ends (a BOS) are not, and with ``allow_special``
    none is. One guard may serve several threads; it remembers what it judged.
    """

    def __init__(self, vocab: Vocabulary, *, allow_special: bool = False) -> None:
        self.vocab = vocab
        self.allow_special = allow_special
        self._lock = threading.Lock()
        self._memory: Any = None

    def check(self, ids: Sequence[int] | np.ndarray) -> Verdict:
        """Judge one id sequence. Raises RobustokError for what are no integers."""
        verdict: Verdict = self.check_batch([ids])[0]
        return verdict

    def repair(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """The canonical ids of the same text, int32 [m]; unknown ids are left out."""
        return self.check(ids).repaired

    def require(self, ids: Sequence[int] | np.ndarray) -> None:
        """Raise RobustokError, naming the first finding, unless there is none."""
        findings = list(self.check(ids).findings)
        if findings:
            more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
            raise RobustokError(f"{tell(self.vocab, findings[0])}{more}")

    def check_batch(self, rows: Ragged | Iterable[Sequence[int] | np.ndarray]) -> Verdicts:
        """Judge many id sequences; much faster than one by one."""
        given, offsets = _flat(rows)
        inside = (given >= 0) & (given < self.vocab.size)
        values = np.where(inside, given, -1).astype(np.int32)
        values[inside] = np.where(self._known[values[inside]], values[inside], -1)
        with self._lock:
            blocks = [self._check_block(values, offsets, *b) for b in _blocks(offsets)]
        return _joined(given, offsets, blocks)

    def _check_block(
        self, all_values: np.ndarray, all_offsets: np.ndarray, first: int, last: int
    ) -> tuple[Any, ...]:
        from robustok.guard.memory import Memory
        from robustok.kernels import guard as kernels
        from robustok.kernels.announce import announce_compilation

        announce_compilation()
        offsets = all_offsets[first : last + 1] - all_offsets[first]
        values = all_values[all_offsets[first] : all_offsets[last]]
        rows = last - first
        in_text, whole = self._look_at_text(values, offsets)
        memory = self._memory = Memory.ready(self._memory, self.vocab, len(values))
        found = memory.find(values, offsets, whole)
        distance, splits = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        kernels.add_up(found, offsets, memory.distance, memory.splits, distance, splits)
        marks = np.empty(len(values), np.uint8)
        kernels.mark(found, memory.runs, len(values), marks)
        size = kernels.repaired_size(found, memory.canonical_start)
        repaired, stands = np.empty(size, np.int32), np.empty(size, np.bool_)
        ends = np.zeros(rows + 1, np.int64)
        kernels.repair(
            found, values, offsets, memory.canonical, memory.canonical_start, memory.stands,
            repaired, stands, ends,
        )  # fmt: skip
        changed = found[(found[:, 1] >= 0) & memory.changed[found[:, 1]], 0]
        for row, run in _by_row(offsets, changed):
            end = found[np.searchsorted(found[:, 0], run, "right") :, 0]
            self._add(in_text, TEXT_CHANGES, row, run, int(end[0]) if len(end) else len(values),
                      values, offsets)  # fmt: skip
        back = (distance == 0) & ~np.isin(np.arange(rows), list(in_text))
        self._pass_frame(values, offsets, marks)
        self._come_back(values, offsets, back)
        return (
            marks, distance == 0, distance, splits, back, repaired, ends, stands,
            {first + row: tuple(f) for row, f in in_text.items()},
        )  # fmt: skip

    # --- the text that the ids spell --------------------------------------------------------------

    def _look_at_text(
        self, values: np.ndarray, offsets: np.ndarray
    ) -> tuple[dict[int, list[Finding]], np.ndarray]:
        """Findings in the bytes of each row, and which rows the encoder must see in one piece."""
        from robustok.kernels import guard as kernels

        v = self.vocab
        found: dict[int, list[Finding]] = {}
        whole = np.zeros(len(offsets) - 1, np.bool_)
        lengths = np.where(values >= 0, np.diff(v.token_offsets)[values], 1)
        lengths[(values < 0) | ~v.readable[values]] = 1
        out = np.empty(int(lengths.sum()) + len(whole), np.uint8)
        row_at = np.zeros(len(offsets), np.int64)
        kernels.spell(values, offsets, v.readable, v.token_bytes, v.token_offsets, out, row_at)
        text = out.tobytes()
        spelled, parsed = self._spelled
        broken = _broken(text)
        hits = [m.span() for m in spelled.finditer(text)] if spelled else []
        if not hits and not broken:
            return found, whole
        at = np.cumsum(lengths) - lengths + np.repeat(np.arange(len(whole)), np.diff(offsets))
        for kind, spans in ((SPECIAL_TEXT, hits), (NOT_UTF8, broken)):
            for begin, end in spans:
                a, b = np.searchsorted(at, [begin, end - 1], "right") - 1
                row = int(np.searchsorted(row_at, begin, "right")) - 1
                whole[row] |= kind == SPECIAL_TEXT and text[begin:end] in parsed
                self._add(found, kind, row, int(a), int(b) + 1, values, offsets)
        return found, whole

    @staticmethod
    def _add(
        found: dict[int, list[Finding]], kind: str, row: int, begin: int, end: int,
        values: np.ndarray, offsets: np.ndarray,
    ) -> None:  # fmt: skip
        ids = tuple(values[begin:end].tolist())
        start = int(offsets[row])
        found.setdefault(row, []).append(Finding(kind, begin - start, end - start, ids, ids))

    @cached_property
    def _known(self) -> np.ndarray:
        return self.vocab.readable | (np.diff(self.vocab.token_offsets) > 0)

    @cached_property
    def _spelled(self) -> tuple[re.Pattern[bytes] | None, frozenset[bytes]]:
        """What finds the special tokens in a text, and those that an encoder always parses."""
        contents = {self.vocab.tokens[i] for i in self.vocab.special} - {b""}
        ordered = sorted(contents, key=lambda c: (-len(c), c))
        always = getattr(self.vocab.data.encoder, "added", ())
        pattern = re.compile(b"|".join(map(re.escape, ordered))) if ordered else None
        return pattern, frozenset(a.encode() for a in always)

    # --- special ids ------------------------------------------------------------------------------

    @cached_property
    def _frame(self) -> tuple[list[int], list[int]]:
        """The ids that the tokenizer itself puts before and after a text."""
        source = self.vocab.data.source
        if type(source).__module__.split(".")[0] != "tokenizers":
            return [], []
        ids, plain = source.encode("a").ids, self.vocab.encode("a").tolist()
        at = next((i for i in range(len(ids)) if ids[i : i + len(plain)] == plain), len(ids))
        return ids[:at], ids[at + len(plain) :]

    def _pass_frame(self, values: np.ndarray, offsets: np.ndarray, marks: np.ndarray) -> None:
        """Let special ids pass that may be there."""
        if self.allow_special:
            marks[marks == SPECIAL] = STANDS
            return
        if not (marks == SPECIAL).any():
            return
        head, tail = self._frame
        for begin, end in pairwise(offsets.tolist()):
            if head and values[begin : begin + len(head)].tolist() == head and end > begin:
                marks[begin : begin + len(head)] = STANDS
            if tail and end - len(tail) >= begin and values[end - len(tail) : end].tolist() == tail:
                marks[end - len(tail) : end] = STANDS

    def _come_back(self, values: np.ndarray, offsets: np.ndarray, back: np.ndarray) -> None:
        """Clear ``back`` where special ids or a first space keep the text from coming back."""
        fixed = ~self.vocab.readable[values]
        rows = np.flatnonzero(back)
        if not self._adds_space:
            odd = np.flatnonzero(fixed)
            odd = odd[~np.array([self._returns(i) for i in values[odd].tolist()], np.bool_)]
            rows = np.unique(np.searchsorted(offsets, odd, "right") - 1)
        head, tail = self._frame
        for row in rows[back[rows]].tolist():
            ids = values[offsets[row] : offsets[row + 1]]
            if head and ids[: len(head)].tolist() == head:
                ids = ids[len(head) :]
            if tail and ids[len(ids) - len(tail) :].tolist() == tail:
                ids = ids[: len(ids) - len(tail)]
            if self._adds_space and self.vocab.readable[ids].all():
                back[row] = not len(ids) or self.vocab.tokens[ids[0]][:1] == b" "
                continue
            text = self.vocab.decode(ids)
            text = text[1:] if self._adds_space and text[:1] == " " else text
            back[row] = np.array_equal(self.vocab.encode(text, parse_special=True), ids)

    @cached_property
    def _adds_space(self) -> bool:
        return self.vocab.decode_bytes(self.vocab.encode("a")) == b" a"

    def _returns(self, special: int) -> bool:
        """Whether a special id is parsed from its own text, without a change to what is around."""
        if special not in self._returning:
            encode, text = self.vocab.encode, self.vocab.tokens[special].decode(errors="replace")
            self._returning[special] = all(
                encode(f"a{space}{text}{space}a", parse_special=True).tolist()
                == [*encode(f"a{space}").tolist(), special, *encode(f"{space}a").tolist()]
                for space in ("", " ")
            )
        return self._returning[special]

    @cached_property
    def _returning(self) -> dict[int, bool]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {"vocab": self.vocab, "allow_special": self.allow_special}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["vocab"], allow_special=state["allow_special"])


def _flat(rows: Ragged | Iterable[Sequence[int] | np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """All ids one after another, and where each row begins; no id is too large to be told of."""
    if isinstance(rows, Ragged):
        return rows.values, rows.offsets
    arrays = []
    for number, row in enumerate(rows):
        ids = _array(row)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise RobustokError(
                f"sequence {number}: token ids are a list of integers, not {row!r:.60}"
            )
        arrays.append(ids.astype(np.int64))
    offsets = np.zeros(len(arrays) + 1, np.int64)
    np.cumsum([len(a) for a in arrays], out=offsets[1:])
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64), offsets


def _array(row: Any) -> np.ndarray:
    """One sequence as it is, or without what exceeds 64 bits."""
    ids = np.asarray(row)
    if isinstance(row, np.ndarray) or ids.dtype.kind == "i":
        return ids
    # Of integers too large for int64 numpy makes floats or objects.
    ids = np.array(row, object)
    if ids.ndim != 1 or not all(type(i) is int or isinstance(i, np.integer) for i in ids):
        return np.asarray(row)
    return np.array([max(min(int(i), _LARGEST), -_LARGEST) for i in ids], np.int64)


def _blocks(offsets: np.ndarray) -> Iterator[tuple[int, int]]:
    """Runs of rows of about so many ids, one row at least."""
    first = 0
    while first < len(offsets) - 1:
        last = int(np.searchsorted(offsets, offsets[first] + BLOCK, "right")) - 1
        last = max(last, first + 1)
        yield first, last
        first = last


def _by_row(offsets: np.ndarray, positions: np.ndarray) -> Iterator[tuple[int, int]]:
    """Each position with its row."""
    rows = np.searchsorted(offsets, positions, "right") - 1
    return zip(rows.tolist(), positions.tolist(), strict=True)


def _joined(given: np.ndarray, offsets: np.ndarray, blocks: list[tuple[Any, ...]]) -> Verdicts:
    """The verdicts of all blocks as one."""
    empty = np.empty(0, np.int64)
    columns = list(zip(*blocks, strict=True)) or [(empty,)] * 6 + [(np.zeros(1, np.int64),)] * 3
    marks, canonical, distance, splits, back, repaired, _, stands, _ = columns
    ends = np.concatenate([np.diff(block[6]) for block in blocks] or [empty])
    in_text = {row: f for block in blocks for row, f in block[8].items()}
    return Verdicts(
        given, offsets, np.concatenate(marks), np.concatenate(canonical).astype(np.bool_),
        np.concatenate(distance), np.concatenate(splits), np.concatenate(back).astype(np.bool_),
        Ragged(np.concatenate(repaired), np.concatenate([[0], np.cumsum(ends)])),
        np.concatenate(stands).astype(np.bool_), in_text,
    )  # fmt: skip


def _broken(text: bytes) -> list[tuple[int, int]]:
    """Begin and end of every stretch that is not UTF-8."""
    found: list[tuple[int, int]] = []
    at = 0
    while True:
        try:
            text[at:].decode("utf8")
            return found
        except UnicodeDecodeError as e:
            begin, end = at + e.start, at + e.end
            if found and found[-1][1] == begin:
                begin = found.pop()[0]
            found.append((begin, end))
            at = end
