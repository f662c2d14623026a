"""Cost of the first draw of a process: without compiled kernels, with them, and its memory.

    python benchmarks/first_call.py [--tokenizer T.json] [--rounds 5] [--workers 8] [--json]

Each measurement is a new process. ``cold`` starts with an empty cache of kernels, once a scheme:
processor seconds of the first draw. ``warm`` has the cache: wall and processor seconds of the first
draw, without the import and the loading of the tokenizer, as medians with the range of the rounds.
The memory is the resident set after the draw, and the proportional set size per process of workers
that were forked from a process that had drawn (Linux).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SPECS = ("stochastok", "uniform", "uniform-k(alpha=0.5)", "bpe-dropout")
DRAW = """
import json, resource, sys, time
begin = time.perf_counter()
import robustok as rt
imported = time.perf_counter()
vocab = rt.Vocabulary.load(sys.argv[1])
ids = vocab.encode("The quick brown fox jumps over the lazy dog.")
sampler = rt.sampler(sys.argv[2], vocab)
wall, cpu = time.perf_counter(), time.process_time()
sampler.sample(ids, seed=0)
row = {"import": imported - begin, "wall": time.perf_counter() - wall,
       "cpu": time.process_time() - cpu,
       "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
"""
FORK = """
import os, pathlib
def proportional_set_size():
    lines = pathlib.Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:"))
pipes = []
for worker in range(int(sys.argv[3])):
    answer, go = os.pipe(), os.pipe()
    if os.fork() == 0:
        for key in range(200):
            sampler.sample(ids, seed=0, key=key)
        os.write(answer[1], b"x")  # ready
        os.read(go[0], 1)  # when all are ready
        os.write(answer[1], b"%12.1f" % proportional_set_size())
        os.read(go[0], 1)  # when all have measured
        os._exit(0)
    pipes.append((answer[0], go[1]))
for answer, go in pipes:
    os.read(answer, 1)
sizes = []
for answer, go in pipes:
    os.write(go, b"x")
    sizes.append(float(os.read(answer, 12)))
for answer, go in pipes:
    os.write(go, b"x")
    os.wait()
row["worker_megabytes"] = sum(sizes) / len(sizes)
"""


def run(code: str, *arguments: Any, cache: Path) -> dict[str, float]:
    command = [sys.executable, "-c", code + "\nprint(json.dumps(row))", *map(str, arguments)]
    env = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def measure(tokenizer: Path, spec: str, rounds: int, workers: int) -> dict[str, Any]:
    """One row of the table, with a cache of its own."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        cold = run(DRAW, tokenizer, spec, cache=cache)
        warm = [run(DRAW, tokenizer, spec, cache=cache) for _ in range(rounds)]
        forked = run(DRAW + FORK, tokenizer, spec, workers, cache=cache)
    wall = [row["wall"] for row in warm]
    return {
        "cold_cpu": cold["cpu"],
        "warm_wall": statistics.median(wall),
        "warm_range": [min(wall), max(wall)],
        "warm_cpu": statistics.median(row["cpu"] for row in warm),
        "import": statistics.median(row["import"] for row in warm),
        "megabytes": statistics.median(row["megabytes"] for row in warm),
        "worker_megabytes": forked["worker_megabytes"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    data = Path(os.environ.get("ROBUSTOK_DATA", "../shared/data"))
    parser.add_argument("--tokenizer", type=Path, default=data / "tokenizers/gpt2/tokenizer.json")
    parser.add_argument("--schemes", nargs="+", default=SPECS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = {s: measure(given.tokenizer, s, given.rounds, given.workers) for s in given.schemes}
    if given.json:
        print(json.dumps(rows, indent=2))
        return
    print("| scheme | cold, CPU s | warm, s | range | warm, CPU s | import, s | MB | MB a worker |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for spec, row in rows.items():
        low, high = row["warm_range"]
        print(
            f"| `{spec}` | {row['cold_cpu']:.1f} | {row['warm_wall']:.2f} | {low:.2f} to {high:.2f}"
            f" | {row['warm_cpu']:.2f} | {row['import']:.2f} | {row['megabytes']:.0f}"
            f" | {row['worker_megabytes']:.0f} |"
        )


if __name__ == "__main__":
    main()
