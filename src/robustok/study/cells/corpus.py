"""A corpus as a cell: canonical ids of the training text in one flat file, and held-out documents.

Training reads the ids in any order, so they are memory-mapped: memory stays small for any corpus.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from robustok.display import Progress
from robustok.files import read_json, write_json
from robustok.ragged import Ragged
from robustok.study.cells.base import Cell, Summary
from robustok.study.cells.tokenizer import TokenizerCell
from robustok.study.text import Text

_CHUNK = 1_000  # documents that are encoded together


@dataclass(frozen=True)
class CorpusCell(Cell):
    """Text to pre-train on and to measure perplexity with."""

    kind: ClassVar[str] = "corpus"

    text: Text
    tokenizer: TokenizerCell

    @property
    def fields(self) -> dict[str, Any]:
        return self.text.fields

    @property
    def work(self) -> float:
        return 30.0

    @property
    def hub_names(self) -> tuple[str, ...]:
        return self.text.hub_names

    def run(self, folder: Path, progress: Progress) -> Summary:
        vocab, path = self.tokenizer.vocabulary(folder), self.path(folder)
        offsets = [0]
        texts = self.text.training()
        with (path / "ids.bin").open("wb") as out:
            while chunk := list(itertools.islice(texts, _CHUNK)):
                rows = vocab.encode_batch(chunk)
                out.write(np.ascontiguousarray(rows.values).data)
                offsets += (offsets[-1] + rows.offsets[1:]).tolist()
                progress(len(offsets), self.text.documents or 2 * len(offsets))
        np.save(path / "offsets.npy", np.array(offsets, np.int64), allow_pickle=False)
        held_out = list(self.text.held_out())
        write_json(path / "held_out.json", held_out)
        return {"documents": len(offsets) - 1, "tokens": offsets[-1], "held_out": len(held_out)}

    def training_ids(self, folder: Path) -> Ragged:
        """The ids of the training documents, int32, mapped from the disk."""
        path = self.path(folder)
        offsets = np.load(path / "offsets.npy", allow_pickle=False)
        return Ragged(np.memmap(path / "ids.bin", np.int32, "r"), offsets)

    def held_out(self, folder: Path) -> list[str]:
        return read_json(self.path(folder) / "held_out.json")
