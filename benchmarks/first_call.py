"""Cost of the first draw of a process, without compiled kernels and with them.

    python benchmarks/first_call.py [--tokenizer T.json] [--rounds 5] [--json]
    python benchmarks/first_call.py --shares [--schemes "uniform-k(alpha=0.5)"] [--json]

Each measurement is a new process. ``cold`` starts with an empty cache of kernels, once a scheme:
processor seconds of the first draw. ``warm`` has the cache: wall and processor seconds of the first
draw, without the import and the loading of the tokenizer, as medians with the range of the rounds.

``--shares`` prints what a first draw without compiled kernels is spent on: processor seconds of
each function, without those of the functions that it calls, and of each of numba's passes. A
function with ``inline="always"`` counts for its callers. Optimization and machine code count for
the kernel, in the pass ``native_lowering``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import options_of, print_heads, print_row, tokenizer_file

SPECS = ("stochastok", "uniform", "uniform-k(alpha=0.5)", "bpe-dropout")
DRAW = """
import json, sys, time
begin = time.perf_counter()
import robustok as rt
imported = time.perf_counter()
vocab = rt.Vocabulary.load(sys.argv[1])
ids = vocab.encode("The quick brown fox jumps over the lazy dog.")
sampler = rt.sampler(sys.argv[2], vocab)
wall, cpu = time.perf_counter(), time.process_time()
sampler.sample(ids, seed=0)
row = {"import": imported - begin, "wall": time.perf_counter() - wall,
       "cpu": time.process_time() - cpu}
"""

RECORD = """
import collections, time
from numba.core import event

class Passes(event.Listener):
    running = []  # of passes within each other: start and processor seconds of those within
    functions, passes = collections.Counter(), collections.Counter()

    def on_start(self, event):
        self.running.append([time.process_time(), 0.0])

    def on_end(self, event):
        start, within = self.running.pop()
        seconds = time.process_time() - start
        if self.running:
            self.running[-1][1] += seconds
        self.functions[f"{event.data['module']}.{event.data['qualname']}"] += seconds - within
        self.passes[event.data["name"].partition(" ")[0]] += seconds - within

event.register("numba:run_pass", Passes())
"""
SHARES = """
for name in "functions", "passes":
    seconds = getattr(Passes, name)
    seconds["imports and the rest"] = row["cpu"] - seconds.total()
    row[name] = seconds.most_common()
"""


def run(code: str, *arguments: Any, cache: Path) -> dict[str, Any]:
    command = [sys.executable, "-c", code + "\nprint(json.dumps(row))", *map(str, arguments)]
    env = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def measure(tokenizer: Path, spec: str, rounds: int) -> dict[str, Any]:
    """One row of the table, with a cache of its own."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        cold = run(DRAW, tokenizer, spec, cache=cache)
        warm = [run(DRAW, tokenizer, spec, cache=cache) for _ in range(rounds)]
    wall = [row["wall"] for row in warm]
    return {
        "cold_cpu": cold["cpu"],
        "warm_wall": statistics.median(wall),
        "warm_range": [min(wall), max(wall)],
        "warm_cpu": statistics.median(row["cpu"] for row in warm),
        "import": statistics.median(row["import"] for row in warm),
    }


def measure_shares(tokenizer: Path, spec: str) -> dict[str, Any]:
    """Processor seconds of a first draw, of the functions compiled for it and of numba's passes."""
    with tempfile.TemporaryDirectory() as folder:
        return run(RECORD + DRAW + SHARES, tokenizer, spec, cache=Path(folder))


def print_shares(spec: str, row: dict[str, Any]) -> None:
    print(f"\n`{spec}`: {row['cpu']:.1f} CPU s")
    for title in ("functions", "passes"):
        print()
        print_heads(title, "CPU s", "share")
        for name, seconds in row[title]:
            if seconds > 0.005 * row["cpu"]:
                print_row(f"`{name}`", f"{seconds:.2f}", f"{seconds / row['cpu']:.1%}")


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--tokenizer", type=Path, default=tokenizer_file("gpt2"))
    parser.add_argument("--schemes", nargs="+", default=SPECS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shares", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.shares:
        rows = {s: measure_shares(given.tokenizer, s) for s in given.schemes}
    else:
        rows = {s: measure(given.tokenizer, s, given.rounds) for s in given.schemes}
    if given.json:
        print(json.dumps(rows, indent=2))
        return
    if given.shares:
        for spec, row in rows.items():
            print_shares(spec, row)
        return
    print_heads("scheme", "cold, CPU s", "warm, s", "range", "warm, CPU s", "import, s")
    for spec, row in rows.items():
        low, high = row["warm_range"]
        warm = f"{row['warm_wall']:.2f}", f"{low:.2f} to {high:.2f}", f"{row['warm_cpu']:.2f}"
        print_row(f"`{spec}`", f"{row['cold_cpu']:.1f}", *warm, f"{row['import']:.2f}")


if __name__ == "__main__":
    main()
