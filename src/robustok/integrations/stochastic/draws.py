"""Draws of id sequences in which some ids stay: each run of the others is a text of its own.

The draw of a run depends on the seed, the epoch, the ids of the run and its number in the sequence,
and on nothing else. So a conversation keeps the draws of its earlier turns when it grows. The epoch
and the mode are in memory that worker processes share.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from robustok.checks import check_epoch, check_seed
from robustok.kernels import batch as kernels
from robustok.ragged import Ragged
from robustok.runtime.processes import State
from robustok.samplers import Sampler, Spec, sampler
from robustok.tokenizer.vocabulary import Vocabulary

Scheme = str | Spec | Sampler
_INT32 = np.dtype("<i4")


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
        vocab, epoch = self.vocab, self.state.epoch
        if len(rows) == 1 and fixed is None and vocab.special.isdisjoint(rows[0].tolist()):
            key = row_key(rows[0], 0, number)  # a fifth of the time of a batch of one row
            return [self.sampler.sample(rows[0], seed=self.seed, key=key, epoch=epoch)]
        batch = Ragged.from_rows(rows)
        stays = ~vocab.readable[batch.values]
        if fixed is not None:
            stays |= np.concatenate(fixed)
        runs = kernels.split_at_fixed(batch.offsets, stays)
        texts = Ragged(*kernels.gather(batch.values, runs))
        keys = [row_key(ids, i, number) for ids, i in zip(texts, runs[:, 1].tolist(), strict=True)]
        drawn = self.sampler.sample_batch(texts, seed=self.seed, keys=keys, epoch=epoch)
        values, offsets = kernels.reassemble(
            batch.values, batch.offsets, stays, runs, 1, drawn.values, drawn.offsets
        )
        return list(Ragged(values, offsets))

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
    salt = struct.pack("<qq", place, number)
    little_endian = np.ascontiguousarray(ids, _INT32)
    digest = hashlib.blake2b(little_endian.data, digest_size=8, salt=salt).digest()
    return int.from_bytes(digest, "little", signed=True)
