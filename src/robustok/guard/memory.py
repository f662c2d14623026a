"""Runs of ids and their canonical forms, each encoded once and looked up ever after."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from robustok.guard.restarts import Restarts, restarts
from robustok.kernels import guard as kernels
from robustok.vocabulary import Vocabulary

ROOM = 1 << 17  # runs remembered at first; twice as many whenever that is too few
MOST = 1 << 20
LONG = 64  # bytes; texts beyond it hardly come twice, and could fill the machine


class Memory:
    """The table of runs, and what is known of each: one column an array, one row an entry.

    ``changed``: the canonical ids spell another text. ``canonical`` holds the canonical ids of
    entry e at ``canonical_start[e]``, and ``stands`` whether each of them stands in the run.
    """

    def __init__(self, vocab: Vocabulary, room: int, restart: Restarts, words: dict) -> None:
        self.vocab = vocab
        self.room = room
        self.restart = restart
        self.entries = 0
        self.runs = kernels.Runs(
            np.full(4 * room, -1, np.int32), np.zeros(room + 1, np.int64),
            np.empty(4 * room, np.int32), np.empty(4 * room, np.bool_),
        )  # fmt: skip
        self.distance, self.splits = np.empty(room, np.int64), np.empty(room, np.int64)
        self.changed = np.zeros(room, np.bool_)
        self.canonical, self.stands = np.empty(4 * room, np.int32), np.empty(4 * room, np.bool_)
        self.canonical_start = np.zeros(room + 1, np.int64)
        self._words: dict[bytes, tuple[list[int], bool]] = words

    @classmethod
    def ready(cls, memory: Memory | None, vocab: Vocabulary, ids: int) -> Memory:
        """A memory with room for as many more ids: this one, or a larger one that is empty."""
        if memory is None:
            return cls(vocab, _power(max(ROOM, 2 * ids)), restarts(vocab), {})
        used = int(memory.runs.start[memory.entries])
        if memory.entries + ids <= memory.room and used + ids <= len(memory.runs.ids):
            return memory
        room = _power(max(min(2 * memory.room, MOST), 2 * ids))
        words = memory._words if len(memory._words) < MOST else {}
        return cls(vocab, room, memory.restart, words)

    def find(self, values: np.ndarray, offsets: np.ndarray, whole: np.ndarray) -> np.ndarray:
        """Cut rows into runs: int64 [runs, 2], where each begins and its entry."""
        found = np.empty((len(values), 2), np.int64)
        first, last, cut = self.restart
        told: Any = kernels.find_runs(
            values, offsets, whole, self.vocab.readable, first, last, cut, self.runs,
            self.entries, found,
        )  # fmt: skip
        count, entries = told
        begin, self.entries = self.entries, entries
        if entries > begin:
            self._judge(begin, entries)
        return found[:count]

    def _judge(self, begin: int, end: int) -> None:
        start, v = self.runs.start, self.vocab
        tokens = v.tokens
        ids = self.runs.ids[start[begin] : start[end]].tolist()
        edges = (start[begin : end + 1] - start[begin]).tolist()
        texts = [
            b"".join([tokens[i] for i in ids[a:b]])
            for a, b in itertools.pairwise(edges)
        ]  # fmt: skip
        fresh = self._encode([text for text in dict.fromkeys(texts) if text not in self._words])
        known = [fresh.get(text) or self._words[text] for text in texts]
        changed = np.array([other for _, other in known], np.bool_)
        canonical = np.array([i for row, _ in known for i in row], np.int32)
        offsets = np.cumsum([0, *(len(row) for row, _ in known)])
        at = int(self.canonical_start[begin])
        stop = at + len(canonical)
        if stop > len(self.canonical):
            room = max(2 * len(self.canonical), 2 * stop)
            self.canonical, self.stands = (
                np.concatenate([old, np.empty(room - len(old), old.dtype)])
                for old in (self.canonical, self.stands)
            )
        self.canonical[at:stop] = canonical
        self.stands[at:stop] = False
        self.canonical_start[begin : end + 1] = at + offsets
        kernels.judge(
            self.runs, begin, v.token_offsets, canonical, offsets, changed,
            self.stands[at:stop], self.changed, self.distance, self.splits,
        )  # fmt: skip

    def _encode(self, texts: list[bytes]) -> dict[bytes, tuple[list[int], bool]]:
        """The canonical ids of each text in mid-row, and whether they spell another one."""
        made = {}
        encoded, tokens = self.vocab.encode_batch(texts), self.vocab.tokens
        values, ends = encoded.values.tolist(), encoded.offsets.tolist()
        for text, (begin, end) in zip(texts, itertools.pairwise(ends), strict=True):
            ids = values[begin:end]
            spelled = b"".join([tokens[i] for i in ids])
            if spelled == b" " + text:  # the encoder's own first space
                ids, spelled = self._without_space(text)
            made[text] = ids, spelled != text
        self._words.update((text, told) for text, told in made.items() if len(text) <= LONG)
        return made

    def _without_space(self, text: bytes) -> tuple[list[int], bytes]:
        """The canonical ids of a text of an encoder that puts a space before it."""
        v = self.vocab
        if text[:1] == b" ":
            ids = v.encode(text[1:])
            if v.decode_bytes(ids) == text:
                return ids.tolist(), text
        for before in (b"a", b"1", b"!", b"\n"):
            # What follows a restart is encoded as if it stood alone, and here without the space.
            head, ids = v.encode(before), v.encode(before + text)
            rest = ids[len(head) :]
            if np.array_equal(ids[: len(head)], head) and v.decode_bytes(rest) == text:
                first, last, cut = self.restart
                if cut[last[head[-1]], first[rest[0]]]:
                    return rest.tolist(), text
        ids = v.encode_continuation(text)
        return [int(i) for i in ids], v.decode_bytes(ids)


def _power(number: int) -> int:
    return 1 << (number - 1).bit_length()
