"""Distances between the hidden states of a word's tokenizations as a cell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from robustok.display import Progress
from robustok.study.cells.base import Summary
from robustok.study.cells.measurement import MeasurementCell
from robustok.study.cells.models import FinetuneCell, ModelCell
from robustok.study.cells.tokenizer import TokenizerCell
from robustok.study.cost import scoring_seconds
from robustok.tasks import frequent_words


@dataclass(frozen=True)
class EmbeddingsCell(MeasurementCell):
    """How far apart a model's layers put the tokenizations of each frequent word."""

    kind: ClassVar[str] = "embeddings"

    words: int
    draws: int
    seed: int
    tokenizer: TokenizerCell
    model: ModelCell

    @property
    def fields(self) -> dict[str, Any]:
        return {"words": self.words, "draws": self.draws, "seed": self.seed}

    @property
    def query(self) -> str:
        return "embeddings"

    @property
    def label(self) -> str:
        return f"embeddings {self.model.description}"

    @property
    def work(self) -> float:
        # A word has few tokens, and its tokenizations share them.
        return scoring_seconds(self.model.parameters, self.words * self.draws * 3) + 2

    def run(self, folder: Path, progress: Progress) -> Summary:
        from robustok.evaluation import embedding_distances

        # The name in a figure, different for a pre-trained model and the models trained from it.
        fine_tuned = isinstance(self.model, FinetuneCell)
        vocab = self.tokenizer.vocabulary(folder)
        result = embedding_distances(
            self.model.load(folder),
            vocab,
            frequent_words(self.words),
            draws=self.draws,
            seed=self.seed,
            prefix=self.model.start_ids(vocab) or None,
            name=self.model.description if fine_tuned else "before fine-tuning",
            progress=progress,
        )
        return {"query": self.query, "layers": result.table()}
