"""Endless streams of full rows, with new draws in every epoch: documents, and whole questions.

Each question of a packed row attends to itself only, and only answers are in the loss. Positions
restart at every question, by which transformers separates the questions of a row.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from robustok.errors import RobustokError
from robustok.ragged import Ragged
from robustok.training.prompts import IGNORED, PromptDataset, is_scheduled, order_of, scheme_at

if TYPE_CHECKING:
    from robustok.samplers import Sampler, Schedule

_GROUP_IDS = 1 << 16
_GROUP_QUESTIONS = 256  # questions that one call of the sampler draws


def _of_this_worker(rows: Iterator[Any], batch_size: int) -> Iterator[Any]:
    """Every n-th batch of the rows in one of n worker processes of a data loader, else all."""
    worker = get_worker_info()
    worker_id, workers = (worker.id, worker.num_workers) if worker else (0, 1)
    for number, row in enumerate(rows):
        if number // batch_size % workers == worker_id:
            yield row


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
        if is_scheduled(sampler) and total is None:
            raise RobustokError(
                f"{sampler.spec} is a schedule: say over how many blocks in total it moves"
            )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for block in _of_this_worker(self._blocks(), self.batch_size):
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
        order = order_of(len(self.documents), self.seed, epoch)
        ends = np.cumsum(self.documents.lengths[order])
        marks = np.searchsorted(ends, np.arange(_GROUP_IDS, ends[-1], _GROUP_IDS), side="left") + 1
        for keys in np.split(order, np.unique(marks)):
            if not len(keys):
                continue
            yield Ragged.from_rows([self.documents[i] for i in keys]), keys


def block_batch(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Full blocks as a batch: int64 of shape [rows, block_size], every id in the loss."""
    ids = torch.from_numpy(np.stack([row["input_ids"] for row in rows]))
    return {"input_ids": ids, "labels": ids}


class PackedPrompts(IterableDataset):
    """An endless stream of rows that hold as many whole questions as fit.

    >>> data = PromptDataset(vocab, items, rt.sampler("uniform", vocab), seed=0, max_length=64)
    >>> row = next(iter(PackedPrompts(data)))
    >>> row["input_ids"].shape, row["position_ids"][:3]
    ((64,), array([0, 1, 2]))

    Args:
        prompts: the questions, whose ``max_length`` is the length of a row.
        pad_id: id that fills a row up after its last question.
        batch_size: the data loader's batch size, by default 1. With worker processes, each worker
            yields every n-th batch, so that their number changes nothing.

    A row is a dictionary of int64 arrays [max_length]: ``input_ids``; ``labels``, -100 outside the
    answers; ``position_ids``, which restart at each question and at the padding; and the number of
    its questions whose draw was too long, ``overflowed``. A question that does not fit begins the
    next row. Each epoch goes through all questions in a new order.
    """

    def __init__(self, prompts: PromptDataset, *, pad_id: int = 0, batch_size: int = 1) -> None:
        self.prompts, self.pad_id, self.batch_size = prompts, pad_id, batch_size

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for questions in _of_this_worker(self._rows(), self.batch_size):
            yield self._row(questions)

    def _rows(self) -> Iterator[list[dict[str, Any]]]:
        """The questions of each row."""
        questions: list[dict[str, Any]] = []
        size = n_rows = 0
        for epoch in itertools.count():
            order = order_of(len(self.prompts), self.prompts.seed, epoch)
            for begin in range(0, len(order), _GROUP_QUESTIONS):
                keys = order[begin : begin + _GROUP_QUESTIONS]
                for question in self.prompts.rows(keys, epoch, n_rows):
                    length = len(question["input_ids"])
                    if size + length > self.prompts.max_length:
                        yield questions
                        questions, size, n_rows = [], 0, n_rows + 1
                    questions.append(question)  # without ids where its draw was too long
                    size += length
            if not (size or n_rows):
                raise RobustokError(
                    f"no question fits into a row of {self.prompts.max_length} tokens: choose "
                    "overflow left or canonical, or a larger pack"
                )

    def _row(self, questions: Sequence[dict[str, Any]]) -> dict[str, Any]:
        length = self.prompts.max_length
        ids = np.full(length, self.pad_id, np.int64)
        labels = np.full(length, IGNORED, np.int64)
        positions = np.zeros(length, np.int64)
        begin = 0
        for question in questions:
            end = begin + len(question["input_ids"])
            ids[begin:end] = question["input_ids"]
            labels[end - question["answer"] : end] = ids[end - question["answer"] : end]
            positions[begin:end] = np.arange(end - begin)
            begin = end
        positions[begin:] = np.arange(length - begin)
        overflowed = sum(question["overflowed"] for question in questions)
        return {"input_ids": ids, "labels": labels, "position_ids": positions,
                "overflowed": overflowed}  # fmt: skip


def packed_batch(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Packed rows as a batch of int64 tensors [rows, max_length].

    Models separate by positions only without an attention mask and without a cache, which
    `run.trainer_arguments` switches off.
    """
    return {
        name: torch.from_numpy(np.stack([row[name] for row in rows]))
        for name in ("input_ids", "labels", "position_ids")
    }
