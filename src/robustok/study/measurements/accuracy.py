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
from robustok.study.cell import Summary
from robustok.study.measurements.base import (
    ByScheme,
    MeasuredCell,
    OnQuestions,
    OpenedCell,
    chance,
    rounded,
)
from robustok.study.sections import NOT_IN_KEY

_NUMBERS = ("accuracy", "low", "high", "acc_norm", "acc_norm_low", "acc_norm_high", "n", "draws")


@dataclass(frozen=True, kw_only=True)
class Evaluate(ByScheme, OnQuestions):
    """Accuracy on questions drawn by each evaluation scheme in turn."""

    kind: ClassVar[str] = "evaluate"
    reads_chat: ClassVar[bool] = True

    draws: int = option(
        "draws of each question; a canonical scheme is drawn once", default=10, min=1
    )
    canonical_items: int | None = option(
        "number of questions under a scheme that always draws the same  [default: as many]",
        default=None,
        min=1,
        **NOT_IN_KEY,  # enters as `items`
    )
    ensemble: int | None = option(
        "also one answer by the mean over so many draws", default=None, min=2
    )
    overflow: Overflow = overflow_option()

    @property
    def eval_scheme(self) -> str:
        return f"ensemble({self.scheme}, draws={self.draws})" if self.ensemble else self.scheme

    def variants(self) -> Iterator[Self]:
        for variant in super().variants():
            draws, items = self.draws, self.items
            if variant.is_fixed:
                draws, items = 1, self.canonical_items or items
            variant = replace(variant, draws=draws, items=items, canonical_items=None)
            yield replace(variant, ensemble=None)
            if self.ensemble is not None and not variant.is_fixed:
                yield replace(variant, draws=self.ensemble, ensemble=self.ensemble)

    def tokens_read(self, cell: MeasuredCell) -> float:
        return 2 * self.question_tokens(cell) * self.draws

    def run(self, opened: OpenedCell) -> Summary:
        items, around_ids = opened.questions(self.items)
        texts = [text for item in items for text in item.drawn_texts.values()]
        eval_sampler = self.sampler(opened.vocab, texts)
        result = evaluation.evaluate(
            opened.model,
            opened.vocab,
            items,
            eval_sampler,
            draws=self.draws,
            seed=opened.seed,
            ensemble=self.ensemble is not None,
            overflow=self.overflow,
            progress=opened.progress,
            **around_ids,
        )
        opened.write_items(result.table())
        measured = {name: getattr(result, name) for name in (*_NUMBERS, "precision")}
        if result.consistency is not None:
            measured["consistency"] = round(result.consistency, 4)
        return {
            **measured,
            **({"overflowed": result.overflowed} if result.overflowed else {}),
            "chance": chance([outcome.item for outcome in result.outcomes]),
            **rounded(result.strength),
            "tokens_per_question": round(result.tokens_computed / result.n, 1),
            **self.spec_of(eval_sampler),
        }

    def line(self, row: JsonFields) -> str:
        return evaluation_line(row)
