"""Perplexity of text under each scheme."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import isfinite
from typing import ClassVar

from robustok import evaluation
from robustok.checks import option
from robustok.runtime.display import counted
from robustok.runtime.files import JsonFields
from robustok.study.cell import QUESTION_TOKENS, Summary
from robustok.study.measurements.base import (
    ByScheme,
    MeasuredCell,
    OpenedCell,
    Subject,
    rounded,
)
from robustok.study.models import FINETUNED

DOCUMENT_TOKENS = 2_500  # of a held-out document, for estimates of cost


@dataclass(frozen=True, kw_only=True)
class Perplexity(ByScheme):
    """Held-out text under each scheme, for every pre-trained model; without text the questions."""

    kind: ClassVar[str] = "perplexity"

    draws: int = option("draws of each text", default=1, min=1)

    def measured_on(self, subject: Subject) -> Iterator[JsonFields]:
        if subject.model.training != FINETUNED:
            corpus = subject.corpus
            yield {"corpus": corpus, "questions": () if corpus else subject.questions}

    def tokens_read(self, cell: MeasuredCell) -> float:
        if cell.corpus is None:
            return 2 * QUESTION_TOKENS * sum(data.count for data in cell.questions)
        return (cell.corpus.text.measured or 1) * DOCUMENT_TOKENS

    def run(self, opened: OpenedCell) -> Summary:
        corpus, folder = opened.cell.corpus, opened.run_folder
        if corpus is not None:
            texts = corpus.held_out(folder)
        else:  # those without a question consist of whole sentences
            item_lists = [data.test_and_examples(folder, 0)[0] for data in opened.cell.questions]
            texts = [item.question for items in item_lists for item in items if item.question]
        eval_sampler = self.sampler(opened.vocab, texts)
        result = evaluation.perplexity(
            opened.model,
            opened.vocab,
            texts,
            eval_sampler,
            draws=self.draws,
            seed=opened.seed,
            start=next(iter(opened.start), None),
            progress=opened.progress,
        )
        numbers = asdict(result)
        strength = numbers.pop("strength")
        return {
            **numbers,
            "high": result.high if isfinite(result.high) else None,  # JSON has no infinity
            **rounded(strength),
            "precision": opened.precision,
            **self.spec_of(eval_sampler),
        }

    def line(self, row: JsonFields) -> str:
        high = "∞" if row["high"] is None else f"{row['high']:.4f}"
        bits = f"{row['bits_per_byte']:.4f} [{row['low']:.4f}, {high}] bits per byte"
        texts = counted(row["texts"], "text")
        return (
            f"{row['eval_scheme']}: perplexity {row['perplexity']:.2f} per token, {bits}, {texts}"
        )
