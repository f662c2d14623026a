"""Documents as an endless stream of full blocks, with new draws in every epoch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from robustok.errors import RobustokError
from robustok.ragged import Ragged
from robustok.training.moving import moves, scheme_at

if TYPE_CHECKING:
    from robustok.samplers import Sampler, Schedule

_GROUP = 1 << 16


class PackedStream(IterableDataset):
    """Blocks of ``block_size`` ids: documents drawn, shuffled, ended and concatenated.

    >>> uniform = rt.sampler("uniform", vocab)
    >>> stream = PackedStream(vocab.encode_batch(texts), uniform, seed=0, block_size=64, end=0)
    >>> next(iter(stream))["input_ids"].shape
    (64,)

    Args:
        documents: canonical ids, a row for each document.
        sampler: draws the tokenization of each document, anew in every epoch.
        seed: any integer. The order and the draws depend on it and the epoch only.
        block_size: ids in a block.
        end: id that is put after each document.
        batch_size: the data loader's batch size, by default 1. With worker processes, each worker
            yields every n-th batch, so that their number changes nothing.
        total: number of blocks over which a schedule moves from its start to its end. Needed for a
            schedule, without effect on other samplers.

    A block is a dictionary with ``input_ids``, int64 [block_size]. The stream is endless: each
    epoch goes through all documents in a new order.

    Raises RobustokError for documents without ids, and for a schedule without ``total``.
    """

    def __init__(
        self,
        documents: Ragged,
        sampler: Sampler | Schedule,
        *,
        seed: int,
        block_size: int,
        end: int,
        batch_size: int = 1,
        total: int | None = None,
    ) -> None:
        if not len(documents.values):
            raise RobustokError("there is no text to train on: every document is empty")
        self.documents, self.sampler, self.seed = documents, sampler, seed
        self.block_size, self.end, self.batch_size = block_size, end, batch_size
        self.total = total
        if moves(sampler) and total is None:
            raise RobustokError(
                f"{sampler.spec} is a schedule: say over how many blocks in total it moves"
            )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        worker_id, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        for number, block in enumerate(self._blocks()):
            if number // self.batch_size % workers == worker_id:
                yield {"input_ids": block}

    def _blocks(self) -> Iterator[np.ndarray]:
        waiting: list[np.ndarray] = []
        size = n_blocks = 0
        for epoch in itertools.count():
            for rows, keys in self._groups(epoch):
                drawn = self._drawn(rows, keys, epoch, n_blocks)
                waiting.append(drawn)
                size += len(drawn)
                if size < self.block_size:
                    continue
                joined = np.concatenate(waiting)
                full = size // self.block_size * self.block_size
                n_blocks += full // self.block_size
                yield from joined[:full].astype(np.int64).reshape(-1, self.block_size)
                waiting, size = [joined[full:]], size - full

    def _drawn(self, rows: Ragged, keys: np.ndarray, epoch: int, n_blocks: int) -> np.ndarray:
        """Drawn documents with the end token after each, after ``n_blocks`` earlier blocks."""
        sampler = scheme_at(self.sampler, n_blocks, self.total)
        drawn = sampler.sample_batch(rows, seed=self.seed, keys=keys, epoch=epoch)
        return np.insert(drawn.values, drawn.offsets[1:], self.end)

    def _groups(self, epoch: int) -> Iterator[tuple[Ragged, np.ndarray]]:
        """Some documents at a time and their numbers: enough that a call of the sampler pays."""
        generator = np.random.default_rng([abs(self.seed), int(self.seed < 0), epoch])
        order = generator.permutation(len(self.documents))
        ends = np.cumsum(self.documents.lengths[order])
        marks = np.searchsorted(ends, np.arange(_GROUP, ends[-1], _GROUP), side="left") + 1
        for keys in np.split(order, np.unique(marks)):
            if not len(keys):
                continue
            yield Ragged.from_rows([self.documents[i] for i in keys]), keys


def block_batch(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Full blocks as a batch: int64 of shape [rows, block_size], every id in the loss."""
    ids = torch.from_numpy(np.stack([row["input_ids"] for row in rows]))
    return {"input_ids": ids, "labels": ids}
