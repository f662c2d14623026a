"""Tokenizations of a few texts under every scheme, which the report shows in color."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from robustok.display import Progress
from robustok.files import write_json
from robustok.study.cells.base import Cell, Summary
from robustok.study.cells.tokenizer import TokenizerCell
from robustok.study.equal_strength import solved


@dataclass(frozen=True)
class ExamplesCell(Cell):
    """Draws of each scheme for each text, as the bytes of their tokens."""

    kind: ClassVar[str] = "examples"

    texts: tuple[str, ...]
    schemes: tuple[str, ...]
    draws: int
    seed: int
    tokenizer: TokenizerCell

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "texts": self.texts,
            "schemes": self.schemes,
            "draws": self.draws,
            "seed": self.seed,
        }

    def run(self, folder: Path, progress: Progress) -> Summary:
        from robustok.samplers import schedule

        vocab = self.tokenizer.vocabulary(folder)
        # Of a schedule, the scheme at the end of the training.
        samplers = {
            scheme: solved(scheme, vocab, self.texts) or schedule(scheme, vocab).at(1.0)
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
