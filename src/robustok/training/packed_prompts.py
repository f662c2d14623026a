"""Questions packed into rows of one length: each attends to itself only, answers alone in the loss.

Positions restart at every question, by which transformers separates the questions of a row.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from robustok.errors import RobustokError
from robustok.training.collate import IGNORED
from robustok.training.prompts import PromptDataset, order_of

_GROUP = 256  # questions that one call of the sampler draws


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
    answers; ``position_ids``, which restart at each question and at the padding. A question that
    does not fit begins the next row. Each epoch goes through all questions in a new order.
    """

    def __init__(self, prompts: PromptDataset, *, pad_id: int = 0, batch_size: int = 1) -> None:
        self.prompts, self.pad_id, self.batch_size = prompts, pad_id, batch_size

    @property
    def overflowed(self) -> torch.Tensor:
        """Questions so far whose draw was longer than a row."""
        return self.prompts.overflowed

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        worker_id, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        self.prompts.counts_overflow = worker_id == 0  # each worker draws every question
        for number, questions in enumerate(self._rows()):
            if number // self.batch_size % workers == worker_id:
                yield self._row(questions)

    def _rows(self) -> Iterator[list[dict[str, Any]]]:
        """The questions of each row."""
        questions: list[dict[str, Any]] = []
        size = n_rows = 0
        for epoch in itertools.count():
            order = order_of(len(self.prompts), self.prompts.seed, epoch)
            for begin in range(0, len(order), _GROUP):
                keys = order[begin : begin + _GROUP]
                for question in self.prompts.rows(keys, epoch, n_rows):
                    length = len(question["input_ids"])
                    if size + length > self.prompts.max_length:
                        yield questions
                        questions, size, n_rows = [], 0, n_rows + 1
                    if length:  # empty: dropped for its length
                        questions.append(question)
                        size += length
            if not (questions or n_rows):
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
        return {"input_ids": ids, "labels": labels, "position_ids": positions}


def packed_batch(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Packed rows as a batch of int64 tensors [rows, max_length].

    There is no attention mask and no cache: only then do models separate by positions.
    """
    batch: dict[str, Any] = {
        name: torch.from_numpy(np.stack([row[name] for row in rows]))
        for name in ("input_ids", "labels", "position_ids")
    }
    return batch | {"use_cache": False}
