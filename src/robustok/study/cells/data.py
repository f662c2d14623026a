"""Questions as cells: language games that are generated, and benchmarks that are read."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from robustok.display import Progress
from robustok.errors import RobustokError
from robustok.study.cells.base import Cell, Summary
from robustok.study.external import External
from robustok.tasks import HUB, Item, cute, frequent_words, langgame, read_items, write_items

GENERATORS = {"langgame": langgame, "cute": cute}


def evenly_by_kind(items: list[Item]) -> list[Item]:
    """The items in turn by kind, each kind in its order, so that every start has all kinds.

    >>> items = [Item(f"{n}", "?", ("a", "b"), 0, kind) for n, kind in enumerate("xxyy")]
    >>> [item.kind for item in evenly_by_kind(items)]
    ['x', 'y', 'x', 'y']
    """
    counts: Counter[str] = Counter()
    rounds = []
    for item in items:
        rounds.append(counts[item.kind])
        counts[item.kind] += 1
    return [item for _, item in sorted(zip(rounds, items, strict=True), key=lambda pair: pair[0])]


class QuestionsCell(Cell):
    """Questions that a model is evaluated on."""

    @property
    @abstractmethod
    def task(self) -> str:
        """The name of the task in results."""

    @property
    def description(self) -> str:
        """The task in the label of a measurement; empty for the study's own."""
        return ""

    @abstractmethod
    def test_and_examples(self, folder: Path, count: int) -> tuple[list[Item], list[Item]]:
        """The questions to evaluate on, and `count` others to show solved before them."""


@dataclass(frozen=True)
class DataCell(QuestionsCell):
    """Questions about words: generated from frequent ones or a list, or read from files."""

    kind: ClassVar[str] = "data"

    game: Literal["langgame", "cute"]
    words: int | tuple[str, ...]
    train: int
    test: int
    seed: int
    format: Literal["paper", "short"] = "paper"
    files: tuple[External, ...] = ()  # of questions to train and to test on, instead

    @property
    def fields(self) -> dict[str, Any]:
        if self.files:
            content = [file.identity for file in self.files]
            return {"kind": self.game, "files": content, "train": self.train, "test": self.test}
        # The short format came first, so its keys have no field for it.
        return ({"format": self.format} if self.format != "short" else {}) | {
            "kind": self.game,
            "words": self.words,
            "train": self.train,
            "test": self.test,
            "seed": self.seed,
        }

    @property
    def task(self) -> str:
        return self.game

    def run(self, folder: Path, progress: Progress) -> Summary:
        if self.files:
            return self._copy(folder)
        words = frequent_words(self.words) if isinstance(self.words, int) else self.words
        for done, (split, count) in enumerate({"train": self.train, "test": self.test}.items(), 1):
            items = GENERATORS[self.game](
                words, count, seed=self.seed, split=split, format=self.format
            )
            write_items(self.path(folder) / f"{split}.jsonl", items)
            progress(done, 2)
        return {"words": len(words), "train": self.train, "test": self.test}

    def _copy(self, folder: Path) -> Summary:
        counts = {"train": self.train, "test": self.test}
        for (split, count), file in zip(counts.items(), self.files, strict=True):
            items = read_items(file.name, limit=count)
            if len(items) < count:
                raise RobustokError(
                    f"{file.name} has {len(items)} questions: task.{split} is {count}, give less"
                )
            write_items(self.path(folder) / f"{split}.jsonl", items)
        return {"words": 0, **counts}

    def training_items(self, folder: Path) -> list[Item]:
        return read_items(self.path(folder) / "train.jsonl")

    def test_and_examples(self, folder: Path, count: int) -> tuple[list[Item], list[Item]]:
        test = read_items(self.path(folder) / "test.jsonl")
        return test, self.training_items(folder)[:count] if count else []


@dataclass(frozen=True)
class BenchmarkCell(QuestionsCell):
    """The first questions of a benchmark, from the hub or from a file, evenly of all its kinds."""

    kind: ClassVar[str] = "benchmark"

    name: str
    items: int
    file: External | None = None  # instead of the hub
    revision: str | None = None  # the commit of the hub's data set, if known
    examples: int = 0  # few-shot examples from the hub's training split

    @property
    def fields(self) -> dict[str, Any]:
        content = {"content": self.file.identity} if self.file else {}
        if self.revision:
            content["revision"] = self.revision
        if self.examples:
            content["examples"] = str(self.examples)
        return {"name": self.name, "items": self.items} | content

    @property
    def version(self) -> int:
        # HellaSwag, 2: its questions are without the label of the activity.
        # BLiMP and TokSuite, 2: the questions are evenly of all kinds.
        return 2 if self.name in ("hellaswag", "blimp", "toksuite") else 1

    @property
    def label(self) -> str:
        return f"benchmark {self.name}"

    @property
    def task(self) -> str:
        return self.name

    @property
    def description(self) -> str:
        return f" of {self.name}"

    @property
    def hub_names(self) -> tuple[str, ...]:
        return (f"{HUB[self.name].path}@{self.revision}",) if self.revision else ()

    def run(self, folder: Path, progress: Progress) -> Summary:
        name = f"{self.name}@{self.revision}" if self.revision else self.name
        items = evenly_by_kind(read_items(self.file.name if self.file else name))[: self.items]
        write_items(self.path(folder) / "test.jsonl", items)
        if self.examples:
            examples = read_items(name, limit=self.examples, split="train")
            write_items(self.path(folder) / "examples.jsonl", examples)
        return {"items": len(items)}

    def test_and_examples(self, folder: Path, count: int) -> tuple[list[Item], list[Item]]:
        """The examples are of the hub's training split; of a file, its last `count` questions."""
        items = read_items(self.path(folder) / "test.jsonl")
        if self.examples:
            return items, read_items(self.path(folder) / "examples.jsonl", limit=count)
        return items[: len(items) - count], items[len(items) - count :]
