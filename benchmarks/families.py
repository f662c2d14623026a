"""Which tokenizers load, whether they are right, and how fast they are beside their own library.

    python benchmarks/families.py FOLDER [--text FILE.jsonl.xz] [--bytes 3000000] [--rounds 5]

FOLDER has a folder for each tokenizer, whose name is that of the row. Each is loaded in a process
of its own. The invariants are those of `robustok doctor -t`. The speed is that of new English
documents of 8 KB, as `encoding.py` measures it. Prints the table of docs/tokenizers.md.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import robustok as rt
from common import (
    ENGLISH,
    Encode,
    cut,
    options_of,
    print_heads,
    print_row,
    rates_of_new_text,
    read_documents,
)
from robustok.guard.invariants import check_invariants
from robustok.tokenizer.sources import open_tokenizer

SAMPLERS = "uniform", "stochastok(alpha=1)"
HEADS = ("tokenizer", "kind", "ids", "invariants", "fast encoder", "library, MB/s", "encode",
         "`uniform`", "`stochastok(1)`")  # fmt: skip


def library_job(tokenizer: Any) -> Encode:
    """Canonical encoding by the tokenizer's own library, on one thread."""
    module = type(tokenizer).__module__.split(".")[0]
    if module == "tiktoken":
        return lambda texts: tokenizer.encode_ordinary_batch(texts, num_threads=1)
    if module == "sentencepiece":
        return lambda texts: tokenizer.encode(texts, num_threads=1)
    return lambda texts: tokenizer.encode_batch_fast(texts, add_special_tokens=False)


def print_tokenizer(folder: Path, texts: list[str], rounds: int) -> None:
    """The row of one tokenizer."""
    try:
        library = open_tokenizer(folder).library()
        vocab = rt.Vocabulary.load(folder)
    except rt.RobustokError as error:
        refused = f"refused: {str(error).replace(str(folder), folder.name)}"
        print_row(folder.name, refused, *[""] * (len(HEADS) - 2))
        return
    result = check_invariants(folder, vocab)
    wrong = [check.name for check in result.checks if check.failed]
    n_refused = sum(dict(result.refused).values())
    holds = f"not {', '.join(wrong)}" if wrong else "hold"
    jobs: dict[str, Encode] = {"library": library_job(library), "encode": vocab.encode_batch}
    for spec in SAMPLERS:
        scheme = rt.sampler(spec, vocab)
        jobs[spec] = lambda texts, s=scheme: s.sample_batch(texts, seed=0, threads=1)
    rates = rates_of_new_text(jobs, texts, rounds)
    times = [
        statistics.median(a / b for a, b in zip(rates[name], rates["library"], strict=True))
        for name in ("encode", *SAMPLERS)
    ]
    print_row(
        folder.name, vocab.data.family, f"{vocab.size:,}",
        f"{holds}; texts refused: {n_refused}" if n_refused else holds,
        "no" if vocab.gigatoken.reason else "yes",
        f"{statistics.median(rates['library']):.1f}", *(f"{x:.1f}" for x in times),
    )  # fmt: skip


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--text", type=Path, default=ENGLISH)
    parser.add_argument("--bytes", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", action="store_true", help="FOLDER is that of one tokenizer")
    options = parser.parse_args()
    if options.one:
        texts = cut(" ".join(read_documents(options.text, options.bytes)))
        print_tokenizer(options.folder, texts, options.rounds)
        return
    print_heads(*HEADS, texts=5)
    sys.stdout.flush()
    for folder in sorted(path for path in options.folder.iterdir() if path.is_dir()):
        command = [sys.executable, __file__, str(folder), "--one", "--text", str(options.text),
                   "--bytes", str(options.bytes), "--rounds", str(options.rounds)]  # fmt: skip
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
