"""A small tokenizer of its own, documents to draw, and the local engine without processes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import normalizers

from robustok.corpus.shard import Job, ShardProgress, make_shard
from robustok.corpus.sources import Chunk
from robustok.models import train_tokenizer
from robustok.tokenizer.vocabulary import Vocabulary


def documents(count: int, seed: int = 0) -> list[str]:
    """Sentences of invented words, some with letters beyond ASCII, digits and odd spaces."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdeiorstn", k=rng.randint(1, 9))) for _ in range(300)]
    words += ["1850", "don't", "naïve", "Größe", "日本語", "🙂", "\t", "  ", "<|endoftext|>"]
    return [" ".join(rng.choices(words, k=rng.randint(1, 60))) for _ in range(count)]


def train(folder: Path, **parts: Any) -> Path:
    """A byte-level BPE tokenizer.json of 500 ids, trained on such documents."""
    tokenizer = train_tokenizer([d.replace("<|endoftext|>", "") for d in documents(200)], 500)
    if "normalizer" in parts:
        tokenizer.normalizer = normalizers.NFC()  # type: ignore
    tokenizer.add_tokens(parts.get("added", []))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def vocab(tokenizer: Path) -> Vocabulary:
    return Vocabulary.load(tokenizer)


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The local engine in this process and backwards; gives the numbers of the chunks it does."""
    done: list[int] = []

    def run(
        job: Job, chunks: Sequence[Chunk], _: str, workers: int | None, progress: ShardProgress
    ) -> Iterator[dict]:
        for chunk in reversed(chunks):
            done.append(chunk.number)
            yield make_shard(job, chunk, lambda read, n=chunk.number: progress(n, read))

    monkeypatch.setattr("robustok.corpus.run._manifests", run)
    return done


def write_jsonl(path: Path, rows: Sequence[Any], field: str = "text") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({field: row}) + "\n" for row in rows), encoding="utf8")
    return path
