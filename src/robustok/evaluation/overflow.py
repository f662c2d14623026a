"""Policies for questions that are longer than the model's max_length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robustok.errors import RobustokError, nearest
from robustok.models.load import max_length_of
from robustok.ragged import Ragged
from robustok.scoring import Request

OVERFLOW = ("error", "drop", "left", "canonical")

Ids = Sequence[int] | np.ndarray


class Window:
    """The model's longest input and what happens to longer ones; the policies of fine-tuning.

    ``error`` raises. ``left`` cuts off the start: of the prefix first, then of the question.
    ``canonical`` puts the canonical question in place of a longer one. ``drop`` leaves the whole
    item out. ``overflowed`` counts the tokenizations that did not fit.
    """

    def __init__(self, model: Any, overflow: str = "error") -> None:
        if overflow not in OVERFLOW:
            raise RobustokError(
                f"unknown overflow policy '{overflow}': {nearest(overflow, OVERFLOW)}"
            )
        self.max_length = max_length_of(model)
        self.overflow, self.overflowed = overflow, 0

    def longest_row(self, options: Sequence[Ids], around: int) -> int | None:
        """The maximum tokens of a question with ``around`` tokens before and after it.

        None where the model has no longest input.
        """
        if self.max_length is None:
            return None
        return self.max_length - around - max(len(option) for option in options)

    def fit(self, request: Request, key: str, canonical: Ids) -> Request | None:
        """The request with every row in the window; None where its item is dropped.

        ``canonical`` are the canonical ids of the question with the suffix that stays behind it.

        Raises RobustokError where the policy is to raise, or cannot help.
        """
        if self.max_length is None:
            return request
        prefix = np.asarray([] if request.prefix is None else request.prefix, np.int32)
        rows = request.questions
        rows = rows if isinstance(rows, Ragged) else Ragged.from_rows(rows)
        answer = max(len(option) for option in request.options)
        room = self.max_length - answer
        long = rows.lengths + len(prefix) > room
        if not long.any():
            return request
        self.overflowed += int(long.sum())
        if self.overflow == "drop":
            return None
        longest = int(rows.lengths.max()) + len(prefix)
        if self.overflow == "left" and room > 0:
            whole = [np.concatenate([prefix, row])[-room:] for row in rows]
            return Request(Ragged.from_rows(whole), request.options)
        if self.overflow == "canonical" and len(prefix) + len(canonical) <= room:
            fitting = [np.asarray(canonical, np.int32) if far else row
                       for row, far in zip(rows, long, strict=True)]  # fmt: skip
            return Request(Ragged.from_rows(fitting), request.options, request.prefix)
        advice = {
            "error": "choose overflow drop, left or canonical",
            "canonical": "its canonical tokens do not fit either; choose overflow drop or left",
        }.get(self.overflow, "its answer alone does not fit; leave it out")
        raise RobustokError(
            f"item '{key}' has {longest} tokens before an answer of up to {answer}, more than the "
            f"model's max_length of {self.max_length}: {advice}"
        )
