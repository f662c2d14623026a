"""Draws of id sequences in which some ids stay: each run of the others is a text of its own.

The draw of a run depends on the seed, the epoch, the ids of the run and its number in the sequence,
and on nothing else. So a conversation keeps the draws of its earlier turns when it grows. The epoch
and the mode are in memory that worker processes share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from robustok.checks import check_epoch, check_seed
from robustok.ragged import Ragged
from robustok.runtime.processes import State
from robustok.samplers import Sampler, Spec, sampler
from robustok.tokenizer.vocabulary import Vocabulary

Scheme = str | Spec | Sampler


class SeededScheme:
    """A scheme with its seed, epoch and mode.

    Args:
        scheme: a spec, or a sampler.
        seed: any integer.
        load: returns the vocabulary; called again after :meth:`forget`.
        state: the epoch and the mode.
    """

    def __init__(
        self, scheme: Scheme, seed: int, load: Callable[[], Vocabulary], state: State | None = None
    ) -> None:
        check_seed(seed)
        self.scheme, self.seed, self.load = scheme, seed, load
        self.state = state or State()
        self._sampler: Sampler | None = None

    @property
    def sampler(self) -> Sampler:
        if self._sampler is None:
            self._sampler = sampler(self.scheme, self.load())
        return self._sampler

    @property
    def vocab(self) -> Vocabulary:
        return self.sampler.vocab

    def forget(self) -> None:
        """Read the vocabulary again at the next draw: the tokenizer has changed."""
        if isinstance(self.scheme, Sampler):
            self.scheme = self.scheme.spec
        self._sampler = None

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, an int64; each value gives other draws."""
        self.state.epoch = check_epoch(epoch)

    def draw(
        self, rows: Sequence[np.ndarray], fixed: Sequence[np.ndarray] | None = None, number: int = 0
    ) -> list[np.ndarray]:
        """New tokenizations of canonical ids, int32 [ids] each.

        ``fixed`` marks ids that stay, bool [ids] a row; special ids always do. ``number`` is that
        of the draw: the same ids have another draw for each.
        """
        marks = fixed or [np.zeros(len(row), np.bool_) for row in rows]
        runs = [self._runs(row, mark) for row, mark in zip(rows, marks, strict=True)]
        texts = [
            (row[begin:end], i)
            for row, spans in zip(rows, runs, strict=True)
            for i, (begin, end) in enumerate(spans)
        ]
        drawn = iter(self._drawn(texts, number))
        results = []
        for row, spans in zip(rows, runs, strict=True):
            if spans == [(0, len(row))]:
                results.append(next(drawn))
                continue
            parts, last = [], 0
            for begin, end in spans:
                parts += [row[last:begin], next(drawn)]
                last = end
            results.append(np.concatenate([*parts, row[last:]]).astype(np.int32, copy=False))
        return results

    def _runs(self, row: np.ndarray, fixed: np.ndarray) -> list[tuple[int, int]]:
        free = self.vocab.readable[row] & ~fixed
        if len(row) and free.all():
            return [(0, len(row))]
        edges = np.flatnonzero(np.diff(free, prepend=False, append=False)).tolist()
        return list(zip(edges[::2], edges[1::2], strict=True))

    def _drawn(self, texts: list[tuple[np.ndarray, int]], number: int) -> list[np.ndarray]:
        if not texts:
            return []
        if len(texts) == 1:  # a tenth of the time of a batch of one row
            ids, place = texts[0]
            key = row_key(ids, place, number)
            return [self.sampler.sample(ids, seed=self.seed, key=key, epoch=self.state.epoch)]
        keys = np.array([row_key(ids, i, number) for ids, i in texts], np.int64)
        rows = Ragged.from_rows([ids for ids, _ in texts])
        drawn = self.sampler.sample_batch(rows, seed=self.seed, keys=keys, epoch=self.state.epoch)
        return drawn.rows()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if not k.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._sampler = None


def row_key(ids: np.ndarray, place: int = 0, number: int = 0) -> int:
    """An int64 that names a run by its ids, its place in the sequence and the number of the draw.

    >>> row_key(np.array([276, 275])) == row_key(np.array([276, 275])) != row_key(np.array([276]))
    True
    """
    salt = np.array([place, number], "<i8").tobytes()
    digest = hashlib.blake2b(np.asarray(ids, "<i4").tobytes(), digest_size=8, salt=salt).digest()
    return int.from_bytes(digest, "little", signed=True)
