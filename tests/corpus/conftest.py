"""A small tokenizer of its own, documents to draw, and the local engine without processes."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from robustok.corpus import Receipt, run_corpus
from robustok.corpus.documents import Task
from robustok.corpus.run import Job, make_shard
from robustok.models import train_tokenizer
from robustok.tokenizer.vocabulary import Vocabulary

SCHEME = "uniform-k(alpha=0.5)"


def documents(count: int, seed: int = 0) -> list[str]:
    """Sentences of invented words, some with letters beyond ASCII, digits and odd spaces."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdeiorstn", k=rng.randint(1, 9))) for _ in range(300)]
    words += ["1850", "don't", "naïve", "Größe", "日本語", "🙂", "\t", "  ", "<|endoftext|>"]
    return [" ".join(rng.choices(words, k=rng.randint(1, 60))) for _ in range(count)]


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE tokenizer.json of 500 ids, trained on such documents."""
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    texts = [document.replace("<|endoftext|>", "") for document in documents(200)]
    train_tokenizer(texts, 500).save(str(path))
    return path


@pytest.fixture(scope="session")
def vocab(tokenizer: Path) -> Vocabulary:
    return Vocabulary.load(tokenizer)


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The local engine in this process and backwards."""

    def work(job: Job, tasks: Sequence[Task], *_: Any) -> list[Any]:
        return [make_shard(job, task, lambda read: None) for task in reversed(tasks)][::-1]

    monkeypatch.setattr("robustok.corpus.run._work", work)


@pytest.fixture
def run(tmp_path: Path, tokenizer: Path) -> Callable[..., Receipt]:
    """`run_corpus` into a folder of the test, with the tokenizer, scheme and seed of most tests."""

    def call(inputs: Any, out: str | Path = "out", scheme: str = SCHEME, **options: Any) -> Receipt:
        return run_corpus(inputs, tmp_path / out, tokenizer, scheme, **{"seed": 1, **options})

    return call


def write_rows(path: Path, rows: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf8")
    return path


def write_jsonl(path: Path, values: Sequence[Any], field: str = "text") -> Path:
    return write_rows(path, [{field: value} for value in values])
