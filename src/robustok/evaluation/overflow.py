"""Policies for tokenizations that are longer than the model's max_length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robustok.errors import RobustokError, check_choice
from robustok.evaluation.questions import Ids
from robustok.models.load import OVERFLOW, max_length_of
from robustok.ragged import Ragged
from robustok.scoring import Request

NO_FIT = "choose overflow left or canonical"


class Window:
    """The model's longest input and what happens to longer ones; the policies of fine-tuning.

    ``error`` raises. ``left`` cuts off the start: of the prefix first, then of the question.
    ``canonical`` puts the canonical question in place of a longer one. ``drop`` leaves the whole
    item out. ``overflowed`` counts the tokenizations that did not fit.
    """

    def __init__(self, model: Any, overflow: str = "error") -> None:
        check_choice("overflow policy", overflow, OVERFLOW)
        self.max_length = max_length_of(model)
        self.overflow, self.overflowed = overflow, 0

    def fit(self, request: Request, key: str, canonical: Ids) -> Request | None:
        """The request with every row in the window; None where its item is dropped.

        ``canonical`` are the canonical ids of the question with the suffix that stays behind it.

        Raises RobustokError where the policy is to raise, or cannot help.
        """
        fitted, too_long = self.fitted(request, key, canonical)
        self.overflowed += too_long
        return fitted

    def fitted(self, request: Request, key: str, canonical: Ids) -> tuple[Request | None, int]:
        """What :meth:`fit` returns, and the number of rows that did not fit, which is not added."""
        if self.max_length is None:
            return request, 0
        prefix = np.asarray([] if request.prefix is None else request.prefix, np.int32)
        rows = request.questions
        rows = rows if isinstance(rows, Ragged) else Ragged.from_rows(rows)
        answer = max(len(option) for option in request.options)
        longest = self.max_length - answer
        long = rows.lengths + len(prefix) > longest
        too_long = int(long.sum())
        if not too_long:
            return request, 0
        if self.overflow == "drop":
            return None, too_long
        if self.overflow == "left" and longest > 0:
            whole = [np.concatenate([prefix, row])[-longest:] for row in rows]
            return Request(Ragged.from_rows(whole), request.options), too_long
        if self.overflow == "canonical" and len(prefix) + len(canonical) <= longest:
            fitting = [np.asarray(canonical, np.int32) if far else row
                       for row, far in zip(rows, long, strict=True)]  # fmt: skip
            return Request(Ragged.from_rows(fitting), request.options, request.prefix), too_long
        advice = {
            "error": "choose overflow drop, left or canonical",
            "canonical": "its canonical tokens do not fit either; choose overflow drop or left",
        }.get(self.overflow, "its answer alone does not fit; leave it out")
        raise RobustokError(
            f"item '{key}' has {int(rows.lengths.max()) + len(prefix)} tokens before an answer of "
            f"up to {answer}, more than the model's max_length of {self.max_length}: {advice}"
        )


def max_candidate_length(
    model: Any, continuations: Sequence[Ids], prefix: Ids | None, suffix: Ids | None
) -> int | None:
    """Tokens that a model's longest input leaves to a text; None without a longest input."""
    limit = max_length_of(model)
    if limit is None:
        return None
    around = sum(0 if ids is None else len(ids) for ids in (prefix, suffix))
    return limit - around - max((len(ids) for ids in continuations), default=0)


def check_max_candidate_length(model: Any, limit: int | None) -> None:
    """Raise RobustokError where nothing is left to a text."""
    if limit is not None and limit < 1:
        raise RobustokError(
            "the chat template, the system prompt and the target alone fill the model's "
            f"{max_length_of(model)} positions: shorten them"
        )


def check_candidate_length(name: str, length: int, limit: int | None) -> None:
    """Raise RobustokError for a text of more tokens than :func:`max_candidate_length` leaves."""
    if limit is not None and length > limit:
        raise RobustokError(
            f"{name} has {length} tokens, and the model's longest input leaves {limit} to it: "
            "shorten it"
        )


def check_generated_length(model: Any, length: int, max_new_tokens: int) -> None:
    """Raise RobustokError where a prompt and what is generated do not fit the longest input."""
    limit = max_length_of(model)
    if limit is not None and length + max_new_tokens > limit:
        raise RobustokError(
            f"{length} tokens and {max_new_tokens} to generate are more than the model's "
            f"{limit} positions: shorten the prompt or generate fewer"
        )
