"""What several benchmarks share: their data, options, median times and tables."""

from __future__ import annotations

import argparse
import json
import lzma
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

DATA = Path(os.environ.get("ROBUSTOK_DATA", "../shared/data")).resolve()


def tokenizer_file(name: str) -> Path:
    return DATA / "tokenizers" / name / "tokenizer.json"


def options_of(description: str | None) -> argparse.ArgumentParser:
    """A parser described by the first line of a docstring."""
    return argparse.ArgumentParser(description=(description or "").splitlines()[0])


def arguments(
    description: str | None, size: int = 600_000, names: tuple[str, ...] = ("gpt2", "llama3"),
    parts: tuple[str, ...] = ("english", "languages", "known"),
) -> argparse.Namespace:  # fmt: skip
    """What to measure on: by default these tokenizers and the English text of ROBUSTOK_DATA."""
    parser = options_of(description)
    parser.add_argument("--tokenizer", action="append", help="default: those in ROBUSTOK_DATA")
    parser.add_argument("--text", type=Path, default=DATA / "corpus" / "english_val.jsonl.xz")
    parser.add_argument("--bytes", type=int, default=size)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--part", choices=parts)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.tokenizer = options.tokenizer or [str(tokenizer_file(name)) for name in names]
    missing = [p for p in [*options.tokenizer, str(options.text)] if not Path(p).exists()]
    if missing:
        sys.exit(f"{missing[0]} is not there: name tokenizers and a text, or set ROBUSTOK_DATA")
    return options


def read_documents(path: Path, total: int) -> list[str]:
    """Documents of 1 to 16 KB, up to ``total`` bytes, from .jsonl, .jsonl.xz or .txt."""
    opener = lzma.open if path.suffix == ".xz" else open
    documents: list[str] = []
    size = 0
    with opener(path, "rt", encoding="utf8") as lines:  # type: ignore[operator]
        for i, line in enumerate(lines):
            text = json.loads(line)["text"] if ".jsonl" in path.name else line
            raw = text.encode("utf8")[: (1 << 10) << (i % 5)]  # 1, 2, 4, 8, 16 KB in turn
            text = raw.decode("utf8", errors="ignore")
            if len(text) < 500:
                continue
            documents.append(text)
            size += len(text.encode("utf8"))
            if size >= total:
                break
    return documents


def in_turns(
    jobs: Mapping[str, Callable[[], object]], rounds: int,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, list[float]]:  # fmt: skip
    """Seconds of each job in each round, all jobs once a round so that noise is shared."""
    for job in jobs.values():
        job()
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            start = clock()
            share = job()  # a job too slow for all documents says which share of them it did
            spent = clock() - start
            seconds[name].append(spent / share if isinstance(share, float) else spent)
            del share  # freeing an encoder's result takes milliseconds: not the next job's
    return seconds


def medians(
    jobs: Mapping[str, Callable[[], object]], rounds: int,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, float]:  # fmt: skip
    """Median seconds of each job."""
    seconds = in_turns(jobs, rounds, clock)
    return {name: statistics.median(values) for name, values in seconds.items()}


def print_heads(*heads: str, texts: int = 1) -> None:
    """The first lines of a Markdown table, whose columns after ``texts`` hold numbers."""
    print(f"| {' | '.join(heads)} |\n|" + "---|" * texts + "--:|" * (len(heads) - texts))


def print_row(*cells: Any) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
