"""What a study reads from outside: models, tokenizers, files, and the documents of its text."""

from __future__ import annotations

import hashlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import Tokenizer

from robustok.errors import RobustokError
from robustok.models.load import load_config, pinned
from robustok.runtime.files import sha256_of
from robustok.runtime.hub import hub_failure, is_packaged, packaged_identity, split_revision
from robustok.study.schema import NOT_IN_KEY
from robustok.tasks import HUB, read_items, read_texts
from robustok.tokenizer.vocabulary import Vocabulary

_CONFIGS = ("config.json", "adapter_config.json")  # of a model, and of LoRA weights
TOKENIZER_CHARACTERS = 20_000_000  # of the training text that a tokenizer is trained on


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
        return () if is_packaged(self.name) else (self.name,)


def external_file(path: str | Path, *, read: bool = True) -> External:
    """A file, identified by its content, or by its path if it is not read."""
    return External(str(path), _digest(Path(path)) if read else str(path))


def external_model(name: str, *, read: bool = True) -> External:
    """A model or tokenizer: one of the hub by its commit, a folder or file by its content.

    A packaged model, such as smollm2-135m, is identified by the digest of its weights.
    """
    if is_packaged(name):
        return External(name, packaged_identity(name))
    # With its commit, so that another revision is another cell.
    found = pinned(name, "model") if read else name
    return External(found, _content_or_name(found))


def added_start_token(name: str) -> str | None:
    """The special token that a model's tokenizer itself puts before every text; None for none."""
    vocab = Vocabulary.load(name)
    source = vocab.data.source
    first = source.encode("a").ids[0] if isinstance(source, Tokenizer) else None
    return vocab.tokens[first].decode() if first in vocab.special else None


def _content_or_name(name: str) -> str:
    path = Path(name)
    if path.is_file():
        return _digest(path)
    if not path.is_dir():
        return name
    tokenizers = [path / file for file in ("tokenizer.json", "tokenizer.model")]
    tokenizer = [file for file in tokenizers if file.is_file()][:1]  # as `Vocabulary.load` chooses
    configs = [file for name in _CONFIGS if (file := path / name).is_file()]
    files = [*sorted(path.glob("*.safetensors")), *tokenizer, *configs]
    digests = [_digest(file) for file in files]
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
    measured: int  # held-out documents

    @property
    def hub_names(self) -> tuple[str, ...]:
        return ()

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
    held_out_file: External | None
    sample_by: str

    def _read(self, *, held_out: bool) -> Iterator[str]:
        files = (self.held_out_file,) if held_out else self.train_files
        return read_texts([file.name for file in files if file], sample_by=self.sample_by)


@dataclass(frozen=True)
class HubText(Text):
    """A data set of the hub, streamed. Its first documents are held out."""

    name: str  # with its commit

    @property
    def hub_names(self) -> tuple[str, ...]:
        return (self.name,)

    def _read(self, *, held_out: bool) -> Iterator[str]:
        from datasets import load_dataset

        repository, revision = split_revision(self.name)
        rows = load_dataset(repository, revision=revision, split="train", streaming=True)
        return (row["text"] for row in rows.skip(0 if held_out else self.measured))


def open_on_hub(kind: str, name: str) -> str | None:
    """Open what a study names; what is wrong in one line, or None.

    Of a benchmark or a text one row is read, of a model its configuration; no weights are
    downloaded.

    Args:
        kind: "model", "tokenizer", "benchmark" or "text".
        name: hub name with its commit, or name of a benchmark.
    """
    try:
        if kind == "model":
            load_config(name)
        elif kind == "tokenizer":
            Vocabulary.load(name)
        elif kind == "benchmark":
            read_items(name, limit=1)
            if isinstance(HUB[name].config, str):  # its examples
                read_items(name, limit=1, split="train")
        elif not next(HubText(None, 1, name).held_out(), ""):
            return f"{name} has no text in its first row"
    except Exception as error:  # the hub's libraries raise many kinds, all with the same meaning
        return str(error) if isinstance(error, RobustokError) else hub_failure(error)
    return None
