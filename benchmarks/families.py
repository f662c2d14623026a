"""Which tokenizers load, whether they are right, and how fast they are beside their own library.

    python benchmarks/families.py FOLDER [--text FILE.jsonl.xz] [--bytes 3000000] [--rounds 5]

FOLDER has a folder for each tokenizer, whose name is that of the row. Each is loaded in a process
of its own. The invariants are those of `robustok doctor -t`. The speed is that of English
documents of 8 KB, from strings and on one thread: two thirds are encoded first, since every encoder
remembers words, and each round takes new ones, all jobs in turns. Prints the table of
docs/tokenizers.md; --json: the rows, with load times and the first example of what is wrong.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # read at import: one thread for all encoders
os.environ["RAYON_NUM_THREADS"] = "1"

import robustok as rt
from common import DATA, options_of, print_heads, print_row, read_documents
from encoding import DOCUMENT, measured
from robustok.guard.invariants import check_invariants
from robustok.tokenizer.sources import open_tokenizer

SAMPLERS = "uniform", "stochastok(alpha=1)"
HEADS = ("tokenizer", "kind", "ids", "invariants", "fast encoder", "library, MB/s", "encode",
         "`uniform`", "`stochastok(1)`")  # fmt: skip


def library_job(tokenizer: Any) -> Callable[[list[str]], object]:
    """Canonical encoding by the tokenizer's own library, on one thread."""
    module = type(tokenizer).__module__.split(".")[0]
    if module == "tiktoken":
        return lambda texts: tokenizer.encode_ordinary_batch(texts, num_threads=1)
    if module == "sentencepiece":
        return lambda texts: tokenizer.encode(texts, num_threads=1)
    return lambda texts: tokenizer.encode_batch_fast(texts, add_special_tokens=False)


def row_of(folder: Path, texts: list[str], rounds: int) -> dict[str, Any]:
    """All that is known of one tokenizer."""
    row: dict[str, Any] = {"tokenizer": folder.name, "refused": None}
    start = time.process_time()
    try:
        library = open_tokenizer(folder).library()
        opened = time.process_time()
        vocab = rt.Vocabulary.load(folder)
    except rt.RobustokError as error:
        return row | {"refused": str(error).replace(str(folder), folder.name)}
    row["load_seconds"] = {"library": opened - start, "robustok": time.process_time() - opened}
    row |= {"kind": vocab.data.family, "ids": vocab.size, "added": len(vocab.data.added)}
    result = check_invariants(folder, vocab)
    row["invariants"] = [vars(check) for check in result.checks]
    row["refused_texts"] = dict(result.refused)
    jobs: dict[str, Callable[[list[str]], object]] = {
        "library": library_job(library), "encode": vocab.encode_batch
    }  # fmt: skip
    for spec in SAMPLERS:
        scheme = rt.sampler(spec, vocab)
        jobs[spec] = lambda texts, scheme=scheme: scheme.sample_batch(texts, seed=0, threads=1)
    rates = measured(jobs, texts, rounds)
    row["fast_encoder"] = vocab.gigatoken.reason or "used"
    row["library_megabytes_per_second"] = statistics.median(rates["library"])
    row["times"] = {
        name: statistics.median(a / b for a, b in zip(values, rates["library"], strict=True))
        for name, values in rates.items()
        if name != "library"
    }
    return row


def cells_of(row: dict[str, Any]) -> list[str]:
    """The cells of a row of the table."""
    if row["refused"]:
        return [row["tokenizer"], f"refused: {row['refused']}", *[""] * (len(HEADS) - 2)]
    wrong = [check["name"] for check in row["invariants"] if check["failed"]]
    refused = sum(row["refused_texts"].values())
    holds = f"not {', '.join(wrong)}" if wrong else "hold"
    return [
        row["tokenizer"], row["kind"], f"{row['ids']:,}",
        f"{holds}; texts refused: {refused}" if refused else holds,
        "yes" if row["fast_encoder"] == "used" else "no",
        f"{row['library_megabytes_per_second']:.1f}",
        *(f"{times:.1f}" for times in row["times"].values()),
    ]  # fmt: skip


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--text", type=Path, default=DATA / "corpus" / "english_val.jsonl.xz")
    parser.add_argument("--bytes", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", action="store_true", help="FOLDER is that of one tokenizer")
    options = parser.parse_args()
    if options.one:
        text = " ".join(read_documents(options.text, options.bytes))
        texts = [text[i : i + DOCUMENT] for i in range(0, len(text), DOCUMENT)]
        json.dump(row_of(options.folder, texts, options.rounds), sys.stdout)
        return
    rows = []
    if not options.json:
        print_heads(*HEADS, texts=5)
    for folder in sorted(path for path in options.folder.iterdir() if path.is_dir()):
        command = [sys.executable, __file__, str(folder), "--one", "--text", str(options.text),
                   "--bytes", str(options.bytes), "--rounds", str(options.rounds)]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(done.stdout))
        if not options.json:
            print_row(*cells_of(rows[-1]))
    if options.json:
        json.dump(rows, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
