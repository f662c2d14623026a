"""Cost of the first draw of a process, without compiled kernels and with them.

    python benchmarks/first_call.py [--tokenizer T.json] [--rounds 5]

Each measurement is a new process. ``cold`` starts with an empty cache of kernels, once a scheme:
processor seconds of the first draw. ``warm`` has the cache: wall and processor seconds of the first
draw, without the import and the loading of the tokenizer, as medians with the range of the rounds.
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


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--tokenizer", type=Path, default=tokenizer_file("gpt2"))
    parser.add_argument("--schemes", nargs="+", default=SPECS)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    rows = {s: measure(given.tokenizer, s, given.rounds) for s in given.schemes}
    print_heads("scheme", "cold, CPU s", "warm, s", "range", "warm, CPU s", "import, s")
    for spec, row in rows.items():
        low, high = row["warm_range"]
        warm = f"{row['warm_wall']:.2f}", f"{low:.2f} to {high:.2f}", f"{row['warm_cpu']:.2f}"
        print_row(f"`{spec}`", f"{row['cold_cpu']:.1f}", *warm, f"{row['import']:.2f}")


if __name__ == "__main__":
    main()
