"""A tokenizer as a cell: one that exists, or a byte-level BPE trained on the study's data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from robustok.display import Progress
from robustok.files import read_json, write_json, write_whole
from robustok.study.cells.base import Cell, Summary
from robustok.study.cells.data import DataCell
from robustok.study.external import External
from robustok.study.text import Text

if TYPE_CHECKING:
    from robustok.vocabulary import Vocabulary

NAME = "name.json"  # the name of an existing tokenizer or model, which is not copied


class TokenizerCell(Cell):
    """A tokenizer that other cells use."""

    kind: ClassVar[str] = "tokenizer"

    def source(self, folder: Path) -> str:
        """What `Vocabulary.load` takes."""
        path = self.path(folder)
        named = path / NAME
        return read_json(named) if named.is_file() else str(path / "tokenizer.json")

    def vocabulary(self, folder: Path) -> Vocabulary:
        from robustok.vocabulary import Vocabulary

        return Vocabulary.load(self.source(folder))


@dataclass(frozen=True)
class ExistingTokenizerCell(TokenizerCell):
    """A tokenizer that exists, under its name."""

    tokenizer: External

    @property
    def fields(self) -> dict[str, Any]:
        return {"name": self.tokenizer.identity}

    @property
    def hub_names(self) -> tuple[str, ...]:
        return (self.tokenizer.name,)

    def run(self, folder: Path, progress: Progress) -> Summary:
        write_json(self.path(folder) / NAME, self.tokenizer.name)
        vocab = self.vocabulary(folder)
        return {"size": vocab.size, "fingerprint": vocab.fingerprint}


@dataclass(frozen=True)
class TrainedTokenizerCell(TokenizerCell):
    """A byte-level BPE trained on the questions of a task (`data`), or on `text`."""

    size: int
    data: DataCell | None = None
    text: Text | None = None

    @property
    def fields(self) -> dict[str, Any]:
        return {"size": self.size} | ({"text": self.text.fields} if self.text else {})

    @property
    def work(self) -> float:
        return 60.0 if self.text else 1.0

    def run(self, folder: Path, progress: Progress) -> Summary:
        from robustok.models import train_tokenizer

        if self.data:
            items = self.data.training_items(folder)
            texts = [item.question + item.answer for item in items]
        else:
            assert self.text is not None
            texts = self.text.for_tokenizer()
        tokenizer = train_tokenizer(texts, self.size)
        write_whole(self.path(folder) / "tokenizer.json", tokenizer.to_str())
        return {"size": tokenizer.get_vocab_size()}
