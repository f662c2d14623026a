"""Completions that a model samples after questions, and how many of them are not canonical."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import ClassVar

from robustok.checks import option
from robustok.runtime.files import JsonFields
from robustok.study.cells.base import QUESTION_TOKENS, Summary
from robustok.study.measurements.base import MeasuredCell, Measurement, Opened, Subject

SAMPLING_COST = 15  # of sampling a token, as a multiple of reading one of a long row


@dataclass(frozen=True, kw_only=True)
class Drift(Measurement):
    """Completions sampled after canonical questions, at temperature 1, checked by the guard."""

    kind: ClassVar[str] = "drift"

    prompts: int = option("the first questions of each task", default=20, min=1)
    samples: int = option("completions of each prompt", default=4, min=1)
    tokens: int = option("tokens of a completion", default=32, min=1)

    def measured_on(self, subject: Subject) -> Iterator[JsonFields]:
        if subject.is_last and subject.questions:
            yield {"questions": subject.questions}

    @property
    def eval_scheme(self) -> str:
        return "sampled completions"

    def tokens_read(self, cell: MeasuredCell) -> float:
        sampled = SAMPLING_COST * self.samples * self.tokens
        return self.prompts * len(cell.questions) * (QUESTION_TOKENS + sampled)

    def run(self, at: Opened) -> Summary:
        from robustok.evaluation.completions import completion_drift

        texts = [text for questions in at.question_texts() for text in questions[: self.prompts]]
        drift = completion_drift(
            at.model,
            at.vocab,
            texts,
            samples=self.samples,
            tokens=self.tokens,
            seed=at.seed,
            start=at.start,
            progress=at.progress,
        )
        at.write_items({"key": str(i), "completions": c} for i, c in enumerate(drift.completions))
        return asdict(drift) | {"completions": len(texts) * self.samples}
