"""Rows of different lengths into one padded batch, with labels on the answers only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

IGNORED = -100


class AnswerCollator:
    """Pad on the left, so that all answers end at the right edge.

    >>> batch = AnswerCollator(pad_id=0)([{"input_ids": [5, 6, 7], "answer": 1},
    ...                                   {"input_ids": [8, 9], "answer": 1}])
    >>> batch["input_ids"], batch["labels"]
    (tensor([[5, 6, 7], [0, 8, 9]]), tensor([[-100, 7], [-100, 9]]))

    Args:
        pad_id: id that fills a row up; the attention mask hides it.
        short_labels: whether the labels, and by ``logits_to_keep`` the model's output layer, cover
            only the last few positions, which hold every answer and the position before it.
            Otherwise labels are as wide as the ids.
        positions: whether to count positions from each row's own start, for models that take
            ``position_ids``; other models derive them from the mask.

    All tensors are int64 [rows, length]; the label of a position outside the answers is -100.
    Padding costs time only.
    """

    def __init__(self, pad_id: int, *, short_labels: bool = True, positions: bool = True) -> None:
        self.pad_id, self.short_labels, self.positions = pad_id, short_labels, positions

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        length = max(1, *(len(row["input_ids"]) for row in rows))
        ids = np.full((len(rows), length), self.pad_id, np.int64)
        mask = np.zeros((len(rows), length), np.int64)
        labels = np.full((len(rows), length), IGNORED, np.int64)
        for i, row in enumerate(rows):
            size, answer = len(row["input_ids"]), row["answer"]
            if not size:
                continue
            ids[i, length - size :] = row["input_ids"]
            mask[i, length - size :] = 1
            labels[i, length - answer :] = row["input_ids"][size - answer :]
        # An empty row attends to its last position: some kernels turn a fully masked row into NaN.
        empty = ~mask.any(axis=1)
        mask[empty, -1] = 1
        batch: dict[str, Any] = {
            "input_ids": torch.from_numpy(ids),
            "attention_mask": torch.from_numpy(mask),
        }
        if self.positions:
            batch["position_ids"] = torch.from_numpy(np.maximum(mask.cumsum(axis=1) - 1, 0))
        if self.short_labels:
            keep = max(row["answer"] for row in rows) + 1
            batch["logits_to_keep"] = min(keep, length)
            labels = np.ascontiguousarray(labels[:, -keep:])
        batch["labels"] = torch.from_numpy(labels)
        return batch
