"""Perplexity of held-out text as a cell."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from robustok.display import Progress
from robustok.study.cells.base import Summary
from robustok.study.cells.corpus import CorpusCell
from robustok.study.cells.measurement import MeasurementCell, rounded
from robustok.study.cells.models import ModelCell
from robustok.study.cells.tokenizer import TokenizerCell
from robustok.study.cost import scoring_seconds

DOCUMENT_TOKENS = 2_500


@dataclass(frozen=True)
class PerplexityCell(MeasurementCell):
    """Perplexity of held-out documents drawn by a scheme."""

    kind: ClassVar[str] = "perplexity"

    eval_scheme: str
    seed: int
    tokenizer: TokenizerCell
    corpus: CorpusCell
    model: ModelCell

    @property
    def fields(self) -> dict[str, Any]:
        return {"query": self.eval_scheme, "seed": self.seed}

    @property
    def query(self) -> str:
        return self.eval_scheme

    @property
    def label(self) -> str:
        return f"perplexity {self.model.description} on {self.eval_scheme}"

    @property
    def work(self) -> float:
        tokens = self.corpus.text.measured * DOCUMENT_TOKENS
        return scoring_seconds(self.model.parameters, tokens) + 0.5

    def run(self, folder: Path, progress: Progress) -> Summary:
        from robustok.evaluation import perplexity
        from robustok.samplers import sampler
        from robustok.strength import measure

        vocab = self.tokenizer.vocabulary(folder)
        texts = self.corpus.held_out(folder)
        drawn = sampler(self.eval_scheme, vocab).sample_batch(texts, seed=self.seed)
        strength = measure(vocab, vocab.encode_batch(texts), drawn).mean()
        result = perplexity(
            self.model.load(folder),
            vocab,
            texts,
            self.eval_scheme,
            seed=self.seed,
            start=next(iter(self.model.start_ids(vocab)), None),
            progress=progress,
        )
        summary = asdict(result)
        return {"query": summary.pop("eval_scheme")} | summary | rounded(strength)
