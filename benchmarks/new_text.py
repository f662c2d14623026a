"""Throughput on new text, from strings, on one thread: the speed that a user sees first.

Each measurement begins with empty caches, draws other text first, and then times documents of 8 KB
that it has not seen. Numbers are medians of processor time, beside `tokenizers`' canonical encoding
of the same documents in the same rounds.
"""

from __future__ import annotations

import json
import lzma
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import robustok as rt
from common import print_heads, print_row

SPECS = (
    "stochastok(alpha=1)", "stochastok-uniform(alpha=1)", "uniform", "uniform-k(alpha=0.1)",
    "uniform-k(alpha=1)", "uniform-k(alpha=3)", "bpe-dropout(p=0.1)",
)  # fmt: skip
ENCODERS = ("tokenizers", "Vocabulary.encode_batch")
LANGUAGES = {"code": "python", "Chinese": "zh", "Hindi": "hi", "Arabic": "ar"}
_DOCUMENT = 8192  # bytes


def split_documents(text: str, total: int) -> list[str]:
    """The first ``total`` bytes of a text as documents of 8 KB."""
    raw = text.encode("utf8")[:total]
    return [raw[i : i + _DOCUMENT].decode("utf8", "ignore") for i in range(0, len(raw), _DOCUMENT)]


def read_languages(path: Path) -> dict[str, str]:
    """The texts of `multilingual_code.jsonl.xz` by the names of `LANGUAGES`, and all mixed."""
    by_code: dict[str, list[str]] = {}
    mixed: list[str] = []
    with lzma.open(path, "rt", encoding="utf8") as lines:
        for line in lines:
            row = json.loads(line)
            by_code.setdefault(row["lang"], []).append(row["text"])
            mixed.append(row["text"][:500])
    texts = {name: "\n".join(by_code[code]) for name, code in LANGUAGES.items()}
    return texts | {"mixed": "\n".join(mixed)}


def _forget(vocab: rt.Vocabulary) -> None:
    """Empty the caches of the vocabulary that grow with the text."""
    vars(vocab).pop("gigatoken", None)
    vocab.gigatoken.load()
    for key in [k for k in vocab._derived if str(k).startswith("bpe-dropout merges")]:
        vocab._derived.pop(key)


def _calls(vocab: rt.Vocabulary, name: str) -> Callable[[Sequence[str]], object]:
    """A fresh encoder or sampler as a function of texts."""
    if name == "tokenizers":
        return lambda texts: vocab.data.library.encode_batch(texts, add_special_tokens=False)
    if name == "Vocabulary.encode_batch":
        return vocab.encode_batch
    sampler = rt.sampler(name, vocab)
    return lambda texts: sampler.sample_batch(texts, seed=0, threads=1)


def rates(
    vocab: rt.Vocabulary,
    other: Sequence[str],
    new: Sequence[str],
    rounds: int,
    names: Sequence[str],
) -> dict[str, float]:
    """MB/s of each encoder and spec on ``new``, after drawing ``other``; medians of ``rounds``."""
    size = sum(len(text.encode("utf8")) for text in new)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            _forget(vocab)
            call = _calls(vocab, name)
            call(other)
            start = time.process_time()
            call(new)
            seconds[name].append(time.process_time() - start)
    return {name: size / statistics.median(times) / 1e6 for name, times in seconds.items()}


def print_english(paths: Sequence[str], english: str, rounds: int) -> None:
    """A table of all specs on the last fifth of the documents, after drawing the others."""
    print("New English text, from strings, one thread: MB/s (times `tokenizers`)\n")
    print_heads("what", *(Path(p).parent.name for p in paths))
    documents = split_documents(english, 5 << 20)
    first = len(documents) * 4 // 5
    columns = []
    for path in paths:
        vocab = rt.Vocabulary.load(path)
        names = (*ENCODERS, *SPECS)
        columns.append(rates(vocab, documents[:first], documents[first:], rounds, names))
    for name in (*ENCODERS, *SPECS):
        cells = [f"{c[name]:.1f} ({c[name] / c['tokenizers']:.1f})" for c in columns]
        print_row(name, *cells)


def print_languages(paths: Sequence[str], english: str, data: Path, rounds: int) -> None:
    """A table of tokenizers by languages: MB/s, and times `tokenizers`."""
    texts = {"English": english[:300_000], **read_languages(data)}
    names = (*ENCODERS, *SPECS[:3], "uniform-k(alpha=1)", "bpe-dropout(p=0.1)")
    print("\nNew text by tokenizer and language, from strings: MB/s (times `tokenizers`)\n")
    print_heads("tokenizer", "text", *names, texts=2)
    for path in paths:
        vocab = rt.Vocabulary.load(path)
        for language, text in texts.items():
            documents = split_documents(text, 300_000)
            half = len(documents) // 2
            row = rates(vocab, documents[:half], documents[half:], rounds, names)
            cells = [f"{row[n]:.1f} ({row[n] / row['tokenizers']:.1f})" for n in names]
            print_row(Path(path).parent.name, language, *cells)
