"""Perplexity of text under each scheme, and the probability of texts over all tokenizations."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import ClassVar

from robustok import evaluation
from robustok.checks import option
from robustok.models.devices import precision_of
from robustok.runtime.display import counted
from robustok.runtime.files import JsonFields
from robustok.study.cells.base import QUESTION_TOKENS, Summary
from robustok.study.cells.models import FINETUNED
from robustok.study.measurements.base import (
    ByScheme,
    MeasuredCell,
    Measurement,
    Opened,
    Subject,
    rounded,
)

DOCUMENT_TOKENS = 2_500  # of a held-out document, for estimates of cost


@dataclass(frozen=True, kw_only=True)
class OnText(Measurement):
    """A measurement of held-out text; without text, of the questions."""

    def measured_on(self, subject: Subject) -> Iterator[JsonFields]:
        if subject.model.training != FINETUNED:
            corpus = subject.corpus
            yield {"corpus": corpus, "questions": () if corpus else subject.questions}

    def tokens_read(self, cell: MeasuredCell) -> float:
        if cell.corpus is None:
            return 2 * QUESTION_TOKENS * sum(data.count for data in cell.questions)
        return (cell.corpus.text.measured or 1) * DOCUMENT_TOKENS

    def texts(self, at: Opened) -> list[str]:
        """The held-out documents, or else the questions of all tasks."""
        if at.cell.corpus is not None:
            return at.cell.corpus.held_out(at.run_folder)
        return [text for texts in at.question_texts() for text in texts]


@dataclass(frozen=True, kw_only=True)
class Perplexity(OnText, ByScheme):
    """Held-out text under each scheme, for every pre-trained model; without text the questions."""

    kind: ClassVar[str] = "perplexity"
    printed: ClassVar[tuple[str, ...]] = (
        "model",
        "eval_scheme",
        "perplexity",
        "bits_per_byte",
        "low",
        "high",
        "texts",
        "tokens",
        "bytes",
        "draws",
        "seed",
        "precision",
    )

    draws: int = option("draws of each text", "--draws", "-n", default=1, min=1)

    def run(self, at: Opened) -> Summary:
        texts = self.texts(at)
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
            **rounded(strength),
            "precision": precision_of(at.model),
            **self.spec_of(drawn_by),
        }

    def line(self, row: JsonFields) -> str:
        bits = "{bits_per_byte:.4f} [{low:.4f}, {high:.4f}] bits per byte".format_map(row)
        texts = counted(row["texts"], "text")
        return (
            f"{row['eval_scheme']}: perplexity {row['perplexity']:.2f} per token, {bits}, {texts}"
        )


@dataclass(frozen=True, kw_only=True)
class Marginal(OnText):
    """The probability of each held-out text over all its tokenizations."""

    kind: ClassVar[str] = "marginal"

    draws: int = option("draws of each text", default=256, min=1)

    def run(self, at: Opened) -> Summary:
        texts = self.texts(at)
        sums = evaluation.marginal(
            at.model,
            at.vocab,
            texts,
            draws=self.draws,
            seed=at.seed,
            start=next(iter(at.start), None),
            progress=at.progress,
        )
        at.write_items(
            # A count of any size does not fit a JSON number, and neither does infinity.
            {
                "text": text,
                **asdict(one),
                "tokenizations": str(Decimal(one.tokenizations)),
                "error": one.error if math.isfinite(one.error) else None,
            }
            for text, one in zip(texts, sums, strict=True)
        )
        return {
            "texts": len(texts),
            "log_marginal": math.fsum(one.log_marginal for one in sums),
            "log_canonical": math.fsum(one.log_canonical for one in sums),
            "draws": self.draws,
            "precision": precision_of(at.model),
        }

    def rows(self, row: JsonFields) -> Iterator[JsonFields]:
        for item in row["items"]:
            yield {**item, "precision": row["precision"]}

    def line(self, row: JsonFields) -> str:
        gain = row["log_marginal"] - row["log_canonical"]
        error = math.inf if row["error"] is None else row["error"]
        return (
            f"{row['log_marginal']:.3f} ± {error:.3f} nats over "
            f"{Decimal(row['tokenizations']):.3g} tokenizations, {gain:.3f} above the canonical "
            f"one; worth {row['effective']:.1f} of {row['draws']} draws: {row['text'][:50]!r}"
        )
