"""Draws of each scheme for a few texts, which need no model; the report shows them in color."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from robustok.runtime.display import Progress
from robustok.runtime.files import write_json
from robustok.samplers import schedule
from robustok.samplers.strength import sampler_at_splits
from robustok.study.cells.base import Cell, Summary
from robustok.study.cells.inputs import TokenizerCell


@dataclass(frozen=True)
class ExamplesCell(Cell):
    """Draws of each scheme for a few texts, as the bytes of their tokens; reports show them."""

    kind: ClassVar[str] = "examples"

    texts: tuple[str, ...]
    schemes: tuple[str, ...]
    draws: int
    seed: int
    tokenizer: TokenizerCell

    def run(self, folder: Path, progress: Progress) -> Summary:
        vocab = self.tokenizer.vocabulary(folder)
        # Of a schedule, the scheme at the end of the training.
        samplers = {
            scheme: sampler_at_splits(scheme, vocab, self.texts) or schedule(scheme, vocab).at(1.0)
            for scheme in self.schemes
        }
        examples = []
        for text in self.texts:
            for scheme, drawn in samplers.items():
                draws = 1 if drawn.deterministic else self.draws
                rows = drawn.sample_batch([text], seed=self.seed, draws=draws)
                tokens = [[vocab.tokens[i].decode("latin-1") for i in row] for row in rows]
                examples.append({"text": text, "scheme": scheme, "draws": tokens})
        write_json(self.path(folder) / "examples.json", examples)
        return {"texts": len(self.texts)}
