"""Distance between the tokenizations of a word, in each layer of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from robustok import evaluation
from robustok.checks import option
from robustok.study.cells.base import Summary
from robustok.study.cells.models import FINETUNED
from robustok.study.measurements.base import MeasuredCell, Measurement, Opened, Subject
from robustok.tasks import frequent_words


@dataclass(frozen=True, kw_only=True)
class Embeddings(Measurement):
    """Distance between the tokenizations of a word, in each layer of each model."""

    kind: ClassVar[str] = "embeddings"

    words: int = option("number of the most frequent English words", default=1000, min=2)
    draws: int = option("draws of each word", "--draws", "-n", default=50, min=1)

    def measured_on(self, subject: Subject) -> Iterator[Mapping[str, Any]]:
        yield {}

    def tokens_read(self, cell: MeasuredCell) -> float:
        return self.words * self.draws * 3  # a word has few tokens; its tokenizations share them

    def run(self, at: Opened) -> Summary:
        # The name in a figure, different for a pre-trained model and the models trained from it.
        model = at.cell.model
        before = "before fine-tuning"
        before = before if model.scheme == "canonical" else f"{model.scheme} {before}"
        result = evaluation.embedding_distances(
            at.model, at.vocab, frequent_words(self.words), draws=self.draws, seed=at.seed,
            prefix=at.start or None,
            name=model.description if model.training == FINETUNED else before,
            resume_file=at.folder / "words.jsonl", progress=at.progress,
        )  # fmt: skip
        return {"layers": result.table()}
