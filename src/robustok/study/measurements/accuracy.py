"""Accuracy on multiple-choice questions drawn by each scheme in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from robustok import evaluation
from robustok.checks import option
from robustok.evaluation.comparison import evaluation_line
from robustok.models.load import Overflow, overflow_option
from robustok.runtime.files import JsonFields
from robustok.study.cells.base import Summary
from robustok.study.measurements.base import (
    ByScheme,
    MeasuredCell,
    OnQuestions,
    Opened,
    chance,
    rounded,
)
from robustok.study.sections import NOT_IN_KEY

_NUMBERS = (
    "accuracy",
    "low",
    "high",
    "acc_norm",
    "acc_norm_low",
    "acc_norm_high",
    "n",
    "draws",
)


@dataclass(frozen=True, kw_only=True)
class Evaluate(ByScheme, OnQuestions):
    """Accuracy on questions drawn by each evaluation scheme in turn."""

    kind: ClassVar[str] = "evaluate"
    reads_chat: ClassVar[bool] = True

    draws: int = option(
        "draws of each question; a canonical scheme is drawn once",
        "--draws",
        "-n",
        default=10,
        min=1,
    )
    canonical_items: int | None = option(
        "number of questions under a scheme that always draws the same  [default: as many]",
        default=None,
        min=1,
        flags=(),
        **NOT_IN_KEY,  # enters as `items`
    )
    ensemble: int | None = option(
        "also one answer by the mean over so many draws", default=None, min=2, flags=()
    )
    overflow: Overflow = overflow_option()

    @property
    def eval_scheme(self) -> str:
        return f"ensemble({self.scheme}, draws={self.draws})" if self.ensemble else self.scheme

    def variants(self) -> Iterator[Self]:
        for one in super().variants():
            draws, items = self.draws, self.items
            if one.is_fixed:
                draws, items = 1, self.canonical_items or items
            one = replace(one, draws=draws, items=items, canonical_items=None, ensemble=None)
            yield one
            if self.ensemble is not None and not one.is_fixed:
                yield replace(one, draws=self.ensemble, ensemble=self.ensemble)

    def tokens_read(self, cell: MeasuredCell) -> float:
        return 2 * self.question_tokens(cell) * self.draws

    def run(self, at: Opened) -> Summary:
        items, around = at.questions(self.items)
        texts = [text for item in items for text in item.drawn_texts.values()]
        drawn_by = self.sampler(at.vocab, texts)
        result = evaluation.evaluate(
            at.model,
            at.vocab,
            items,
            drawn_by,
            draws=self.draws,
            seed=at.seed,
            ensemble=self.ensemble is not None,
            overflow=self.overflow,
            progress=at.progress,
            **around,
        )
        at.write_items(result.table())
        measured = {name: getattr(result, name) for name in (*_NUMBERS, "precision")}
        if result.consistency is not None:
            measured["consistency"] = round(result.consistency, 4)
        return {
            **measured,
            **({"overflowed": result.overflowed} if result.overflowed else {}),
            "chance": chance(items),
            **rounded(result.strength),
            "tokens_per_question": round(result.tokens_computed / result.n, 1),
            **self.spec_of(drawn_by),
        }

    def line(self, row: JsonFields) -> str:
        return evaluation_line(row)
