"""How a draw's time grows with its text, and what a second thread gives.

    python benchmarks/scaling.py [--tokenizer T.json] [--text FILE.jsonl]

Prints, for every scheme, processor seconds at 64 KB over those at 8 KB, and the throughput of two
threads over that of one (wall clock, so it wants two quiet cores).
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import robustok as rt
from sampling import FLOORS, arguments, read_documents


def median(job: Callable[[], object], clock: Callable[[], float], rounds: int) -> float:
    job()
    seconds = []
    for _ in range(rounds):
        start = clock()
        job()
        seconds.append(clock() - start)
    return statistics.median(seconds)


def main() -> None:
    options = arguments(__doc__ or "")
    texts = read_documents(options.text, 4_000_000)
    whole = "\n".join(texts)
    for path in options.tokenizer:
        vocab = rt.Vocabulary.load(path)
        many = vocab.encode_batch(texts)
        print(f"\n{Path(path).parent.name}\n\n| scheme | 64 KB over 8 KB | two threads over one |")
        print("|---|---|---|")
        for spec in FLOORS:
            scheme = rt.sampler(spec, vocab)
            times = []
            for size in (8 << 10, 64 << 10):
                ids = vocab.encode(whole[:size])
                # A draw of 8 KB is too short for the clock, and some take more attempts.
                draws = [rt.Ragged.from_rows([ids])] * 20
                times.append(
                    median(
                        lambda scheme=scheme, draws=draws: [
                            scheme.sample_batch(rows, seed=i, threads=1)
                            for i, rows in enumerate(draws)
                        ],
                        time.process_time,
                        options.rounds,
                    )
                )
            one, two = (
                median(
                    lambda scheme=scheme, n=n, many=many: scheme.sample_batch(
                        many, seed=0, threads=n, draws=8
                    ),
                    time.perf_counter,
                    options.rounds,
                )
                for n in (1, 2)
            )
            print(f"| {spec} | {times[1] / times[0]:.1f} | {one / two:.2f} |", flush=True)


if __name__ == "__main__":
    main()
