"""What models are trained and measured with, as cells: questions, tokenizers, and text.

Questions are generated, or read from files or benchmarks. A tokenizer exists, or is a byte-level
BPE trained on the study's data. A corpus is the canonical ids of the training text in one flat
file, and the held-out documents. Training reads the ids in any order, so they are memory-mapped:
memory stays small for any corpus.
"""

from __future__ import annotations

import hashlib
import itertools
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from robustok.errors import RobustokError
from robustok.models import train_tokenizer
from robustok.models.load import pinned
from robustok.models.served import ServedModel
from robustok.ragged import Ragged
from robustok.runtime.display import Progress, counted
from robustok.runtime.environment import computed_once
from robustok.runtime.files import read_json, read_json_or_none, write_json, write_whole
from robustok.runtime.hub import (
    is_packaged,
    is_served,
    own_tokenizer,
    packaged_identity,
    split_revision,
)
from robustok.runtime.inputs import TEXTS, find_inputs, kind_of
from robustok.runtime.records import json_digest, sha256_of
from robustok.study.cell import Cell, Summary
from robustok.study.sections import NOT_IN_KEY
from robustok.tasks import (
    GAMES,
    HUB,
    Item,
    frequent_words,
    read_items,
    read_texts,
    write_items,
)
from robustok.tokenizer.sources import tokenizer_files
from robustok.tokenizer.vocabulary import Vocabulary
from robustok.training.recipe import recorded_identity

_CHUNK = 1_000  # documents that are encoded together
# The files of a model, of LoRA weights, of generation and of chats that change a result.
_CONFIGS = (
    "config.json",
    "adapter_config.json",
    "generation_config.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
)
SEEDS_OF_EXAMPLES = 16  # whose few-shot examples are kept of a training split
QUESTIONS_OF_A_FILE = 500  # for estimates of cost
TOKENIZER_CHARACTERS = 20_000_000  # of the training text that a tokenizer is trained on


def evenly_by_kind(items: list[Item]) -> list[Item]:
    """The items in turn by kind, each kind in its order, so that every start has all kinds."""
    rounds = defaultdict[str, Iterator[int]](itertools.count)  # numbers the items of each kind
    return sorted(items, key=lambda item: next(rounds[item.kind]))


class QuestionsCell(Cell):
    """Questions that a model is evaluated on."""

    description: ClassVar[str] = ""  # the task in the label of a measurement
    is_attacked: ClassVar[bool] = True  # whether the attacks of a study are on these questions
    has_questions: ClassVar[bool] = True  # else sentences alone, which are not attacked
    examples_file: ClassVar[str]  # few-shot examples, in the cell's folder

    @property
    @abstractmethod
    def task(self) -> str:
        """The name of the task in results."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of questions, at most."""

    def test_and_examples(
        self, folder: Path, count: int, seed: int = 0
    ) -> tuple[list[Item], list[Item]]:
        """The questions to evaluate on, and `count` others to show solved before them.

        Each seed shows others, as long as there are some: seed 0 the first ones, seed 1 the next.
        """
        test = read_items(self.path(folder) / "test.jsonl")
        others = read_items(self.path(folder) / self.examples_file) if count else []
        shown = range(seed * count, seed * count + min(count, len(others)))
        return test, [others[i % len(others)] for i in shown]


@dataclass(frozen=True)
class DataCell(QuestionsCell):
    """Questions about words: generated from frequent ones or a list, or read from files."""

    kind: ClassVar[str] = "data"
    examples_file: ClassVar[str] = "train.jsonl"

    game: Literal["langgame", "cute"]
    words: int | tuple[str, ...]
    train: int
    test: int
    seed: int
    format: Literal["paper", "short"] = "paper"
    files: tuple[External, ...] = ()  # of questions to train and to test on, instead

    @property
    def task(self) -> str:
        return self.game

    @property
    def count(self) -> int:
        return self.test

    def run(self, folder: Path, progress: Progress) -> Summary:
        counts = {"train": self.train, "test": self.test}
        words = self.words or ()
        if isinstance(words, int):
            words = frequent_words(words)
        make, settings = GAMES[self.game], {"seed": self.seed, "format": self.format}
        read = self._read if self.files else partial(make, words, **settings)
        train, test = (read(count, split=split) for split, count in counts.items())
        trained = {(item.question, item.choices) for item in train}
        if shared := [item.key for item in test if (item.question, item.choices) in trained]:
            raise RobustokError(
                f"task.data.test shares {counted(len(shared), 'question')} with task.data.train, "
                f"such as '{shared[0]}': leave them out of one"
            )
        for done, (split, items) in enumerate((("train", train), ("test", test)), 1):
            write_items(self.path(folder) / f"{split}.jsonl", items)
            progress(done, 2)
        return {"words": len(words), **counts}

    def _read(self, count: int, *, split: str) -> list[Item]:
        from robustok.evaluation.questions import check_keyed  # torch

        name = self.files[0 if split == "train" else 1].name
        items = read_items(name, limit=count)
        if len(items) < count:
            message = f"has {len(items)} questions: task.{split} is {count}, give less"
            raise RobustokError(f"{name} {message}")
        # Here, so that a repeated key is an error before anything is trained.
        return items if split == "train" else check_keyed("item", items)

    def training_items(self, folder: Path) -> list[Item]:
        return read_items(self.path(folder) / "train.jsonl")


@dataclass(frozen=True)
class BenchmarkCell(QuestionsCell):
    """The first questions of a benchmark, or all of a user's own, from the hub or from a file.

    Few-shot examples are of the hub's training split where the benchmark has one, and else the last
    questions of all, the same for every seed, whatever the number of questions.
    """

    kind: ClassVar[str] = "benchmark"
    examples_file: ClassVar[str] = "examples.jsonl"

    name: str
    items: int | None  # at most; None: all
    file: External | None = None  # instead of the hub
    revision: str | None = None  # the commit of the hub's data set, if known
    examples: int = 0  # few-shot examples that are not evaluated
    own: bool = False  # of `questions`: in the order of the file, and attacked too

    @property
    def label(self) -> str:
        return f"{'questions' if self.own else 'benchmark'} {self.name}"

    @property
    def task(self) -> str:
        return self.name

    @property
    def count(self) -> int:
        return self.items or QUESTIONS_OF_A_FILE

    @property
    def is_attacked(self) -> bool:
        return self.own or self.file is not None

    @computed_once
    def has_questions(self) -> bool:  # asked for each model and attack of a plan
        if self.file is None or not Path(self.file.name).is_file():
            return True
        (first,) = read_items(self.file.name, limit=1)
        return bool(first.question)

    @property
    def description(self) -> str:
        return f" of {self.name}"

    @property
    def hub_names(self) -> tuple[str, ...]:
        if self.file or self.name not in HUB:
            return ()
        path = HUB[self.name].path
        return (f"{path}@{self.revision}" if self.revision else path,)

    def run(self, folder: Path, progress: Progress) -> Summary:
        name, count = f"{self.name}@{self.revision}" if self.revision else self.name, self.examples
        items, examples = read_items(self.file.name if self.file else name), []
        if count and self.file is None and not self.own:
            examples = read_items(name, limit=count * SEEDS_OF_EXAMPLES, split="train")
        elif count >= len(items):
            raise RobustokError(
                f"'{self.name}' has {len(items)} questions: too few for {count} few-shot examples"
            )
        elif count:
            items, examples = items[:-count], items[-count:]
        items = (items if self.own else evenly_by_kind(items))[: self.items]
        write_items(self.path(folder) / "test.jsonl", items)
        if examples:
            write_items(self.path(folder) / self.examples_file, examples)
        return {"items": len(items)}


class TokenizerCell(Cell):
    """A tokenizer that other cells use."""

    kind: ClassVar[str] = "tokenizer"

    def source(self, folder: Path) -> str:
        """What `Vocabulary.load` takes."""
        return str(self.path(folder) / "tokenizer.json")

    def vocabulary(self, folder: Path) -> Vocabulary:
        return Vocabulary.load(self.source(folder))


@dataclass(frozen=True)
class ExistingTokenizerCell(TokenizerCell):
    """A tokenizer that exists, under its name."""

    tokenizer: External

    def source(self, folder: Path) -> str:
        return self.tokenizer.name

    def run(self, folder: Path, progress: Progress) -> Summary:
        vocab = self.vocabulary(folder)
        return {"size": vocab.size, "fingerprint": vocab.fingerprint}


@dataclass(frozen=True)
class TrainedTokenizerCell(TokenizerCell):
    """A byte-level BPE trained on the questions of a task (`data`), or on `text`."""

    size: int
    data: DataCell | None = None
    text: Text | None = None

    @property
    def work(self) -> float:
        return 60.0 if self.text else 1.0

    def run(self, folder: Path, progress: Progress) -> Summary:
        if self.data:
            items = self.data.training_items(folder)
            texts = [item.question + item.answer for item in items]
        else:
            assert self.text is not None
            texts = self.text.for_tokenizer()
        tokenizer = train_tokenizer(texts, self.size)
        write_whole(self.path(folder) / "tokenizer.json", tokenizer.to_str())
        return {"size": tokenizer.get_vocab_size()}


@dataclass(frozen=True)
class CorpusCell(Cell):
    """Text to pre-train on and to measure perplexity with."""

    kind: ClassVar[str] = "corpus"
    work: ClassVar[float] = 30.0

    text: Text
    tokenizer: TokenizerCell

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
        # An empty file cannot be mapped.
        ids = np.memmap(path / "ids.bin", np.int32, "r") if offsets[-1] else np.empty(0, np.int32)
        return Ragged(ids, offsets)

    def held_out(self, folder: Path) -> list[str]:
        return read_json(self.path(folder) / "held_out.json")


@dataclass(frozen=True)
class External:
    """A hub name, a folder or a file: ``name`` opens it, ``identity`` enters the key of a cell.

    >>> External("org/model@1a2b", "org/model@1a2b").name
    'org/model@1a2b'
    """

    name: str = field(metadata=NOT_IN_KEY)
    identity: str

    @property
    def hub_names(self) -> tuple[str, ...]:
        """The name of a model or tokenizer, but for one that comes with the package."""
        here = is_packaged(self.name) or own_tokenizer(self.name) or is_served(self.name)
        return () if here else (self.name,)


def external_file(path: str | Path, *, by_content: bool = True) -> External:
    """A file or a folder, identified by its content, or by its path."""
    path = Path(path)
    if not by_content or not path.is_dir():
        return External(str(path), _digest(path) if by_content else str(path))
    files = sorted(file for file in path.rglob("*") if file.is_file())
    named = (f"{file.relative_to(path)} {_digest(file)}" for file in files)
    return External(str(path), hashlib.sha256("\n".join(named).encode()).hexdigest()[:16])


def external_questions(path: str | Path, *, by_content: bool = True) -> External:
    """A file of questions, identified by them as they are read: the file's name may word them."""
    items = [asdict(item) for item in read_items(path)] if by_content else []
    return External(str(path), json_digest(items) if by_content else str(path))


def external_text(path: str | Path, *, by_content: bool = True) -> External:
    """Text as :func:`read_texts` takes it: identified by its content and the format of its name."""
    if by_content and not Path(path).exists():
        files = find_inputs(path, TEXTS).files
        named = (f"{file.format} {file.compression} {_digest(file.path)}" for file in files)
        return External(str(path), json_digest([*named]))
    text, kind = external_file(path, by_content=by_content), kind_of(Path(path))
    return replace(text, identity=" ".join([text.identity, *filter(None, kind or ())]))


def external_model(name: str, *, by_content: bool = True) -> External:
    """A model or tokenizer: one of the hub by its commit, a folder or file by its content.

    A packaged model is identified by the digest of its weights, and one behind a server by what the
    server calls it, wherever the server is.
    """
    if is_served(name):
        return External(name, ServedModel(name).fingerprint() if by_content else name)
    if is_packaged(name):
        return External(name, packaged_identity(name))
    # With its commit, so that another revision is another cell.
    name = pinned(name, "model") if by_content else name
    return External(name, _content_or_name(name))


def start_token_of(name: str) -> str | None:
    """The special token before every text of a model; None for none.

    It is that of a fine-tuning by robustok, or else the one that the tokenizer adds.
    """
    vocab = Vocabulary.load(name)
    ids = recorded_identity(Path(name)).get("prefix", vocab.frame[0])
    return vocab.tokens[ids[0]].decode() if ids and ids[0] in vocab.special else None


def _content_or_name(name: str) -> str:
    path = own_tokenizer(name) or Path(name)
    if path.is_file():
        return _digest(path)
    if not path.is_dir():
        return name
    configs = [file for name in _CONFIGS for file in sorted(path.glob(name)) if file.is_file()]
    files = [*sorted(path.glob("*.safetensors")), *tokenizer_files(path), *configs]
    digests = [_digest(file) for file in files]
    adapter = read_json_or_none(path / "adapter_config.json")
    base = adapter.get("base_model_name_or_path") if isinstance(adapter, dict) else None
    if base and Path(base).is_dir() and not path.samefile(base):
        digests.append(_content_or_name(base))
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:16]


def _digest(path: Path) -> str:
    try:
        return sha256_of(path)[:16]
    except OSError as error:
        raise RobustokError(f"{path} cannot be read: {error.strerror}") from None


@dataclass(frozen=True)
class Text(ABC):
    """Where the documents of a study come from. They are streamed."""

    documents: int | None  # at most this many to train on
    measured: int | None  # held-out documents, at most
    hub_names: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def _read(self, *, held_out: bool) -> Iterator[str]:
        """All documents that are held out, or all others."""

    def training(self) -> Iterator[str]:
        return itertools.islice(self._read(held_out=False), self.documents)

    def held_out(self) -> Iterator[str]:
        return itertools.islice(self._read(held_out=True), self.measured)

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
    held_out_files: tuple[External, ...]
    sample_by: str

    def _read(self, *, held_out: bool) -> Iterator[str]:
        files = self.held_out_files if held_out else self.train_files
        return read_texts([file.name for file in files], sample_by=self.sample_by)


@dataclass(frozen=True)
class HubText(Text):
    """A data set of the hub, streamed. Its first documents are held out."""

    measured: int
    name: str  # with its commit

    @property
    def hub_names(self) -> tuple[str, ...]:
        return (self.name,)

    def _read(self, *, held_out: bool) -> Iterator[str]:
        from datasets import load_dataset

        repository, revision = split_revision(self.name)
        try:
            rows = load_dataset(repository, revision=revision, split="train", streaming=True)
            for row in rows.skip(0 if held_out else self.measured):
                yield row["text"]
        except ConnectionError as error:
            raise RobustokError(
                f"the hub cannot be reached for the text '{repository}': connect, or give files "
                "with --corpus and --held-out"
            ) from error
