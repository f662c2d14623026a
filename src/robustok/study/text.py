"""A study's text: training and held-out documents, streamed from files or from the hub."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from robustok.study.external import External
from robustok.tasks import read_texts

TOKENIZER_CHARACTERS = 20_000_000  # of the training text that a tokenizer is trained on


@dataclass(frozen=True)
class Text(ABC):
    """Where the documents of a study come from."""

    documents: int | None  # at most this many to train on
    measured: int  # held-out documents

    @property
    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """What decides the documents, as JSON, for the keys of cells."""

    @property
    def hub_names(self) -> tuple[str, ...]:
        return ()

    @abstractmethod
    def _all_training(self) -> Iterator[str]: ...

    @abstractmethod
    def _all_held_out(self) -> Iterator[str]: ...

    def training(self) -> Iterator[str]:
        return itertools.islice(self._all_training(), self.documents)

    def held_out(self) -> Iterator[str]:
        return itertools.islice(self._all_held_out(), self.measured)

    def for_tokenizer(self) -> Iterator[str]:
        """The first training documents, about `TOKENIZER_CHARACTERS` in all."""
        characters = 0
        for text in self.training():
            yield text
            characters += len(text)
            if characters >= TOKENIZER_CHARACTERS:
                return


@dataclass(frozen=True)
class FileText(Text):
    """Documents of .txt, .jsonl and .parquet files."""

    train_files: tuple[External, ...]
    held_out_file: External | None
    sample_by: str

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "documents": self.documents,
            "measured": self.measured,
            "train": [file.identity for file in self.train_files],
            "held_out": self.held_out_file.identity if self.held_out_file else None,
            "sample_by": self.sample_by,
        }

    def _all_training(self) -> Iterator[str]:
        return read_texts([file.name for file in self.train_files], sample_by=self.sample_by)

    def _all_held_out(self) -> Iterator[str]:
        if self.held_out_file is None:
            return iter(())
        return read_texts(self.held_out_file.name, sample_by=self.sample_by)


@dataclass(frozen=True)
class HubText(Text):
    """A data set of the hub, streamed. Its first documents are held out."""

    name: str  # with its commit

    @property
    def fields(self) -> dict[str, Any]:
        return {"documents": self.documents, "measured": self.measured, "hub": self.name}

    @property
    def hub_names(self) -> tuple[str, ...]:
        return (self.name,)

    def _all_training(self) -> Iterator[str]:
        return self._rows(skip=self.measured)

    def _all_held_out(self) -> Iterator[str]:
        return self._rows(skip=0)

    def _rows(self, *, skip: int) -> Iterator[str]:
        from datasets import load_dataset

        from robustok.hub_names import split_revision

        repository, revision = split_revision(self.name)
        rows = load_dataset(repository, revision=revision, split="train", streaming=True)
        return (row["text"] for row in rows.skip(skip))
