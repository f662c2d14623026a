"""How fast a corpus is drawn, beside reading it and encoding it with `tokenizers`.

    python benchmarks/corpus.py --tokenizer T.json CORPUS [--scheme SPEC ...] [--rounds 3]

Every round runs, one after another, the same corpus through (a) a loop that reads it and encodes it
canonically with `tokenizers`, once on one thread and once on as many as `--workers`, and (b)
`run_corpus` with one worker and with `--workers`. Whole runs are timed, processes and vocabulary
included, until the receipt is written. Prints medians and ratios, as Markdown or --json, and the
peak resident memory of all processes together.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

BATCH = 1 << 20  # characters a call of encode_batch
READ_AND_ENCODE = "read and encode with tokenizers, {} thread(s)"


def baseline(inputs: list[str], tokenizer: str) -> int:
    """Read the corpus as run_corpus does, and encode it with `tokenizers`; returns its ids."""
    from tokenizers import Tokenizer

    from robustok.corpus.read import find_column, read_chunk
    from robustok.corpus.sources import cut_chunks, find_sources

    path = Path(tokenizer)
    encoder = Tokenizer.from_file(str(path / "tokenizer.json" if path.is_dir() else path))
    sources = find_sources(inputs)
    column = find_column(sources, None)
    total = 0
    for chunk in cut_chunks(sources):
        for batch in read_chunk(chunk, column, BATCH):
            texts = [text.decode() for text in batch.table.column(column.name).to_pylist()]
            encoded = encoder.encode_batch_fast(texts, add_special_tokens=False)
            total += sum(len(e.ids) for e in encoded)
    return total


def drawn(inputs: list[str], out: Path, tokenizer: str, scheme: str, workers: int) -> int:
    from robustok.corpus import run_corpus

    return run_corpus(inputs, out, tokenizer, scheme, seed=0, workers=workers).tokens


def in_process(arguments: list[str], threads: int) -> tuple[float, float, int]:
    """Wall seconds, processor seconds and peak bytes of one job in a process of its own."""
    env = os.environ | {
        "RAYON_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
        "OMP_NUM_THREADS": "1",
    }
    before = os.times()
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, __file__, "--job", *arguments], env=env)
    peak = [0]
    watch = threading.Thread(target=_watch, args=(process, peak))
    watch.start()
    code = process.wait()
    seconds = time.perf_counter() - start
    after = os.times()
    watch.join()
    if code:
        raise SystemExit(f"the job {arguments} failed")
    spent = after.children_user - before.children_user
    spent += after.children_system - before.children_system
    return seconds, spent, peak[0]


def _watch(process: subprocess.Popen[bytes], peak: list[int]) -> None:
    import psutil

    while process.poll() is None:
        try:
            whole = psutil.Process(process.pid)
            family = [whole, *whole.children(recursive=True)]
            peak[0] = max(peak[0], sum(p.memory_info().rss for p in family))
        except psutil.Error:
            pass
        time.sleep(0.1)


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each job: medians over the rounds, all jobs once a round."""
    sizes = sum(source_size(path) for path in args.inputs)
    jobs: dict[str, tuple[list[str], int]] = {}
    for threads in (1, args.workers):
        name = READ_AND_ENCODE.format(threads)
        jobs[name] = (["baseline", args.tokenizer, *args.inputs], threads)
    for scheme in args.scheme:
        for workers in (1, args.workers):
            job = ["drawn", args.tokenizer, scheme, str(workers), *args.inputs]
            jobs[f"{scheme}, {workers} worker(s)"] = (job, workers)
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in jobs}
    for _ in range(args.rounds):
        for name, (job, threads) in jobs.items():
            found[name].append(in_process(job, threads))
            print(f"{name}: {found[name][-1][0]:.1f} s", file=sys.stderr, flush=True)
    rows = []
    for name, runs in found.items():
        wall, cpu = (statistics.median(run[i] for run in runs) for i in (0, 1))
        rows.append({"job": name, "seconds": wall, "cpu_seconds": cpu, "MB/s": sizes / wall / 1e6,
                     "peak_MB": max(run[2] for run in runs) / 1e6})  # fmt: skip
    return rows


def source_size(path: str) -> int:
    """The bytes of text of an input, decompressed."""
    from robustok.corpus.sources import find_sources, open_stream

    total = 0
    for source in find_sources(path):
        if not source.compression:
            total += source.size
            continue
        stream, raw = open_stream(source)
        with raw, stream:
            while block := stream.read(1 << 20):
                total += len(block)
    return total


def ratios(rows: list[dict[str, Any]], schemes: list[str], workers: int) -> list[str]:
    """The two ratios of each scheme: of workers, and to the tokenizer on as many threads."""
    seconds = {row["job"]: row["seconds"] for row in rows}
    said = []
    for scheme in schemes:
        one, many = seconds[f"{scheme}, 1 worker(s)"], seconds[f"{scheme}, {workers} worker(s)"]
        to_one, to_many = (seconds[READ_AND_ENCODE.format(n)] for n in (1, workers))
        said.append(
            f"{scheme}: {workers} workers {one / many:.2f} times one; to reading and encoding "
            f"{to_one / one:.2f} on one thread, {to_many / many:.2f} on {workers}"
        )
    return said


def job(arguments: list[str]) -> None:
    kind, tokenizer, *rest = arguments
    if kind == "baseline":
        baseline(rest, tokenizer)
        return
    scheme, workers, *inputs = rest
    folder = Path(tempfile.mkdtemp())
    try:
        drawn(inputs, folder / "out", tokenizer, scheme, int(workers))
    finally:
        shutil.rmtree(folder)


def main() -> None:
    if sys.argv[1:2] == ["--job"]:
        job(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("inputs", nargs="+")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--scheme", action="append", default=[])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.scheme = args.scheme or ["uniform-k(alpha=0.5)"]
    rows = measure(args)
    if args.json:
        print(json.dumps(rows))
        return
    print("| job | seconds | processor seconds | MB/s | peak MB |\n|---|--:|--:|--:|--:|")
    for row in rows:
        print(f"| {row['job']} | {row['seconds']:.1f} | {row['cpu_seconds']:.1f} "
              f"| {row['MB/s']:.1f} | {row['peak_MB']:.0f} |")  # fmt: skip
    print("\n" + "\n".join(ratios(rows, args.scheme, args.workers)))


if __name__ == "__main__":
    main()
