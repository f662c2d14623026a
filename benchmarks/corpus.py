"""How fast a corpus is drawn, beside reading it and encoding it with `tokenizers`.

    python benchmarks/corpus.py --tokenizer T.json CORPUS [--scheme SPEC ...] [--rounds 3]

Every round runs, one after another, the same corpus through (a) a loop that reads it and encodes it
canonically with `tokenizers`, once on one thread and once on as many as `--workers`, and (b)
`run_corpus` with one worker and with `--workers`. Prints medians and ratios as Markdown: the rate
from the first shard on, without the seconds that processes and vocabularies take to start, and the
wall and processor seconds of the whole job. A byte is one of the files as they are stored: compare
rates of one format only. On a busy machine compare rates to each other only, and processor seconds
before wall seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import options_of, print_heads, print_row

BATCH = 1 << 20  # bytes of a call of encode_batch
READ_AND_ENCODE = "read and encode with tokenizers, {} thread(s)"


class Rate:
    """Bytes a second between the first and the last shard."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.reports: list[tuple[float, float]] = []

    def __call__(self, done: int, total: int) -> None:
        self.reports.append((time.perf_counter(), self.size * done / total))

    def __float__(self) -> float:
        (first, start), (last, done) = self.reports[0], self.reports[-1]
        if done == start:
            raise SystemExit("the corpus is one shard, too small for a rate: give a larger one")
        return (done - start) / (last - first)


def baseline(files: list[Any], tokenizer: str, rate: Rate) -> None:
    """Read JSON Lines and encode their texts with `tokenizers`."""
    from tokenizers import Tokenizer

    path = Path(tokenizer)
    encoder = Tokenizer.from_file(str(path / "tokenizer.json" if path.is_dir() else path))
    done, total = 0, sum(file.size for file in files)
    for file in files:
        with file.path.open("rb") as lines:
            while batch := lines.readlines(BATCH):
                texts = [json.loads(line)["text"] for line in batch]
                encoded = encoder.encode_batch_fast(texts, add_special_tokens=False)
                sum(len(e.ids) for e in encoded)
                done += sum(map(len, batch))
                rate(done, total)


def in_process(arguments: list[str], threads: int) -> dict[str, float]:
    """Rate, wall seconds and processor seconds of one job, in its own process."""
    env = os.environ | {
        "RAYON_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
        "OMP_NUM_THREADS": "1",
    }
    before, start = os.times(), time.perf_counter()
    command = [sys.executable, __file__, "--job", *arguments]
    output = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True).stdout
    seconds, after = time.perf_counter() - start, os.times()
    spent = after.children_user - before.children_user
    spent += after.children_system - before.children_system
    return {"MB/s": float(output) / 1e6, "seconds": seconds, "processor seconds": spent}


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each job: medians over the rounds, all jobs once a round."""
    jobs: dict[str, tuple[list[str], int]] = {}
    for threads in (1, args.workers):
        name = READ_AND_ENCODE.format(threads)
        jobs[name] = (["baseline", args.tokenizer, *args.inputs], threads)
    for scheme in args.scheme:
        for workers in (1, args.workers):
            job = ["drawn", args.tokenizer, scheme, str(workers), *args.inputs]
            jobs[f"{scheme}, {workers} worker(s)"] = (job, workers)
    rates: dict[str, list[dict[str, float]]] = {name: [] for name in jobs}
    for _ in range(args.rounds):
        for name, (job, threads) in jobs.items():
            rates[name].append(in_process(job, threads))
            print(f"{name}: {rates[name][-1]['MB/s']:.1f} MB/s", file=sys.stderr, flush=True)
    return [
        {"job": name} | {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in rates.items()
    ]


def ratios(rows: list[dict[str, Any]], schemes: list[str], workers: int) -> list[str]:
    """The two ratios of each scheme: of workers, and to the tokenizer on as many threads."""
    by = {row["job"]: row for row in rows}
    parts = []
    for scheme in schemes:
        one, many = (by[f"{scheme}, {n} worker(s)"] for n in (1, workers))
        plain, threaded = (by[READ_AND_ENCODE.format(n)] for n in (1, workers))
        parts.append(
            f"{scheme}: {workers} workers {many['MB/s'] / one['MB/s']:.2f} times one; to reading "
            f"and encoding {one['MB/s'] / plain['MB/s']:.2f} on one thread, "
            f"{many['MB/s'] / threaded['MB/s']:.2f} on {workers}, and by processor seconds of the "
            f"whole job {plain['processor seconds'] / one['processor seconds']:.2f}"
        )
    return parts


def job(arguments: list[str]) -> None:
    """One job; prints its bytes a second."""
    from robustok.corpus import run_corpus
    from robustok.runtime.inputs import find_inputs

    kind, tokenizer, *rest = arguments
    inputs = rest if kind == "baseline" else rest[2:]
    files = find_inputs(inputs).files
    rate = Rate(sum(file.size for file in files))
    if kind == "baseline":
        baseline(files, tokenizer, rate)
    else:
        scheme, workers = rest[:2]
        with tempfile.TemporaryDirectory() as out:
            run_corpus(inputs, out, tokenizer, scheme, seed=0, workers=int(workers), progress=rate)
    print(float(rate))


def main() -> None:
    if sys.argv[1:2] == ["--job"]:
        job(sys.argv[2:])
        return
    parser = options_of(__doc__)
    parser.add_argument("inputs", nargs="+", help="JSON Lines")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--scheme", action="append", default=[])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    args.scheme = args.scheme or ["uniform-k(alpha=0.5)"]
    rows = measure(args)
    keys = list(rows[0])
    print_heads(*keys)
    for row in rows:
        print_row(row["job"], *(f"{row[key]:.1f}" for key in keys[1:]))
    print("\n" + "\n".join(ratios(rows, args.scheme, args.workers)))


if __name__ == "__main__":
    main()
