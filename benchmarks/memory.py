"""Memory of a process that samples, and of workers forked from it (Linux).

    python benchmarks/memory.py [--tokenizer T.json ...] [--schemes S ...] [--workers 8] [--json]

The first table has one new process for each tokenizer: its resident memory (MB) after each step.
The column `private` is the part that belongs to this process alone; the rest is mostly the code of
LLVM and of other libraries, which the system loads once for all processes and can drop. `peak` is
the largest resident memory so far.

The second table has a new process for each scheme. It draws from one sentence and is forked; each
worker draws 1 MB of English from text, or from ids. `workers` is the mean proportional set size of
the workers while all of them are alive: memory that n processes share counts as 1/n in each.
`private` is the part of it that a worker shares with no other process.
"""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
from pathlib import Path
from typing import Any

from common import DATA, options_of, print_heads, print_row, read_documents, tokenizer_file

SPECS = ("stochastok", "stochastok-uniform", "uniform", "uniform-k(alpha=0.5)", "bpe-dropout")
SENTENCE = "The quick brown fox jumps over the lazy dog."


def memory() -> dict[str, float]:
    """Resident, private and proportional memory of this process, and its peak, in MB."""
    sizes: dict[str, float] = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        name, kilobytes = line.split()[:2]
        sizes[name] = int(kilobytes) / 1024
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
    private = sizes["Private_Dirty:"] + sizes["Private_Clean:"]
    return {"resident": sizes["Rss:"], "private": private, "share": sizes["Pss:"], "peak": peak}


def steps(tokenizer: str) -> list[dict[str, Any]]:
    """The memory of this new process after each step."""
    rows: list[dict[str, Any]] = []

    def note(step: str) -> None:
        rows.append({"step": step, **memory()})

    import numpy  # noqa: F401
    import tokenizers  # noqa: F401

    note("numpy and tokenizers imported")
    import robustok as rt

    vocab = rt.Vocabulary.load(tokenizer)
    note("Vocabulary.load")
    ids = vocab.encode(SENTENCE)
    for spec in SPECS:
        sampler = rt.sampler(spec, vocab)
        sampler.sample(ids, seed=0)
        sampler.sample(SENTENCE, seed=0)
        note(spec)
    vocab.encode(" ".join([SENTENCE] * (4 * vocab.size // len(SENTENCE) + 1)))
    note("gigatoken loaded")
    return rows


def library(tokenizer: str) -> list[dict[str, Any]]:
    """The memory of a process that encodes with `tokenizers` alone."""
    import tokenizers

    encoder = tokenizers.Tokenizer.from_file(tokenizer)
    encoder.encode(SENTENCE)
    return [{"step": "`tokenizers` alone", **memory()}]


def forked(tokenizer: str, spec: str, source: str, text: str, workers: int) -> dict[str, float]:
    """Mean memory of workers that each drew from all documents; the parent drew a sentence."""
    import robustok as rt

    vocab = rt.Vocabulary.load(tokenizer)
    sampler = rt.sampler(spec, vocab)
    documents: Any = read_documents(Path(text), 1_000_000)
    if source == "text":
        sampler.sample_batch([SENTENCE] * 20_000, seed=0)  # gigatoken is loaded before the fork
    else:
        documents = list(vocab.encode_batch(documents))
        sampler.sample(documents[0], seed=0)
    context = multiprocessing.get_context("fork")
    all_drew, all_measured = context.Barrier(workers, timeout=120), context.Barrier(workers)
    sizes = context.Queue()

    def work(worker: int) -> None:
        rows = len(documents) // 16 + 1  # a batch of a data loader
        for begin in range(0, len(documents), rows):
            part = documents[begin : begin + rows]
            keys = [worker * len(documents) + begin + i for i in range(len(part))]
            sampler.sample_batch(part, seed=0, keys=keys, threads=1)
        all_drew.wait()
        sizes.put(memory())
        all_measured.wait()

    processes = [context.Process(target=work, args=(worker,)) for worker in range(workers)]
    for process in processes:
        process.start()
    measured = [sizes.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    parent = memory()["resident"]
    means = {name: sum(size[name] for size in measured) / workers for name in ("share", "private")}
    return {**means, "parent": parent}


def in_new_process(function: str, *arguments: Any) -> Any:
    """The result of a function of this file in a new process."""
    code = f"import json, memory\nprint(json.dumps(memory.{function}(*{arguments!r})))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def main() -> None:
    parser = options_of(__doc__)
    default = [tokenizer_file(name) for name in ("gpt2", "llama3")]
    parser.add_argument("--tokenizer", type=Path, nargs="+", default=default)
    parser.add_argument("--schemes", nargs="+", default=SPECS)
    parser.add_argument("--text", type=Path, default=DATA / "corpus/english_val.jsonl.xz")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tables: dict[str, list[dict[str, Any]]] = {"steps": [], "workers": []}
    text = str(options.text.resolve())
    for path in map(str, map(Path.resolve, options.tokenizer)):
        name = Path(path).parent.name
        in_new_process("steps", path)  # compiles the kernels
        for row in in_new_process("steps", path) + in_new_process("library", path):
            tables["steps"].append({"tokenizer": name, **row})
        for spec in options.schemes:
            for source in ("text", "ids"):
                sizes = in_new_process("forked", path, spec, source, text, options.workers)
                tables["workers"].append({"tokenizer": name, "spec": spec, "from": source, **sizes})
    if options.json:
        print(json.dumps(tables, indent=1))
        return
    keys = ("resident", "private", "peak")
    print_heads("tokenizer", "step", *keys, texts=2)
    for row in tables["steps"]:
        print_row(row["tokenizer"], row["step"], *(f"{row[key]:.0f}" for key in keys))
    print()
    print_heads("tokenizer", "scheme", "from", "parent", "workers", "private", texts=3)
    for row in tables["workers"]:
        sizes = (f"{row[key]:.0f}" for key in ("parent", "share", "private"))
        print_row(row["tokenizer"], f"`{row['spec']}`", row["from"], *sizes)


if __name__ == "__main__":
    main()
