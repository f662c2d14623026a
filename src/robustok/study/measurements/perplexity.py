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
from robustok.study.cells.base import QUESTION_TOKENS, Summary
from robustok.study.cells.models import FINETUNED
from robustok.study.measurements.base import (
    ByScheme,
    MeasuredCell,
    Opened,
    Subject,
    rounded,
)

DOCUMENT_TOKENS = 2_500  # of a held-out document, for estimates of cost


@dataclass(frozen=True, kw_only=True)
class Perplexity(ByScheme):
    """Held-out text under each scheme, for every pre-trained model; without text the questions."""

    kind: ClassVar[str] = "perplexity"

    draws: int = option("draws of each text", "--draws", "-n", default=1, min=1)

    def measured_on(self, subject: Subject) -> Iterator[JsonFields]:
        if subject.model.training != FINETUNED:
            corpus = subject.corpus
            yield {"corpus": corpus, "questions": () if corpus else subject.questions}

    def tokens_read(self, cell: MeasuredCell) -> float:
        if cell.corpus is None:
            return 2 * QUESTION_TOKENS * sum(data.count for data in cell.questions)
        return (cell.corpus.text.measured or 1) * DOCUMENT_TOKENS

    def run(self, at: Opened) -> Summary:
        corpus, folder = at.cell.corpus, at.run_folder
        if corpus is not None:
            texts = corpus.held_out(folder)
        else:  # those without a question consist of whole sentences
            each = [data.test_and_examples(folder, 0)[0] for data in at.cell.questions]
            texts = [item.question for items in each for item in items if item.question]
        drawn_by = self.sampler(at.vocab, texts)
        result = evaluation.perplexity(
            at.model,
            at.vocab,
            texts,
            drawn_by,
            draws=self.draws,
            seed=at.seed,
            start=next(iter(at.start), None),
            progress=at.progress,
        )
        numbers = asdict(result)
        strength = numbers.pop("strength")
        return {
            **numbers,
            "high": result.high if isfinite(result.high) else None,  # JSON has no infinity
            **rounded(strength),
            "precision": at.precision,
            **self.spec_of(drawn_by),
        }

    def line(self, row: JsonFields) -> str:
        high = "∞" if row["high"] is None else f"{row['high']:.4f}"
        bits = f"{row['bits_per_byte']:.4f} [{row['low']:.4f}, {high}] bits per byte"
        texts = counted(row["texts"], "text")
        return (
            f"{row['eval_scheme']}: perplexity {row['perplexity']:.2f} per token, {bits}, {texts}"
        )
