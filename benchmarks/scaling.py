"""How a draw's time grows with its text, and what more threads give.

    python benchmarks/scaling.py [--part model] [--tokenizer T.json] [--text FILE.jsonl]

Prints, for every scheme, processor seconds at 64 KB over those at 8 KB, the throughput of two
threads over that of one (wall clock, so it wants two quiet cores), and a model of 2 and 8 threads;
with ``--part model`` the model alone. All from ids, `uniform` from strings.
The model needs no quiet cores: it is the processor time of one thread over that of the calling
thread without its draws plus the longest draws of a thread, and threads take turns. It leaves out
that cores share caches and memory.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import robustok as rt
from common import arguments, medians, print_heads, print_row, read_documents
from robustok.samplers import base
from sampling import FLOORS

MODELLED = (
    "stochastok(alpha=0.1)", "stochastok(alpha=1)", "stochastok(alpha=3)",
    "stochastok-uniform(alpha=1)", "uniform", "uniform-k(alpha=1)", "bpe-dropout(p=0.1)",
)  # fmt: skip


class Model(NamedTuple):
    """Processor seconds of a batch."""

    alone: float  # drawn by one thread
    serial: float  # of the calling thread, without its draws
    longest: float  # of the draws of the slowest thread

    @property
    def speedup(self) -> float:
        return self.alone / (self.serial + self.longest)


def modelled(scheme: rt.Sampler, rows: Any, threads: int, rounds: int) -> Model:
    """The median of batches whose threads draw one after another, each for itself.

    ``rows``: ids (Ragged) or strings.
    """
    draws: dict[int, float] = {}  # seconds by thread
    draw, turn = scheme._draw, threading.Lock()

    def timed(*batch: Any) -> None:
        with turn:
            start = time.thread_time()
            draw(*batch)
            draws[threading.get_ident()] = time.thread_time() - start

    scheme._draw = timed  # type: ignore[method-assign]
    cores = base.cores_read_once
    base.cores_read_once = lambda: threads  # type: ignore[assignment]  # each keeps its store
    models = []
    for i in range(rounds + 1):
        start = time.thread_time()
        scheme.sample_batch(rows, seed=i, threads=1)
        alone = time.thread_time() - start
        draws.clear()
        start = time.thread_time()
        scheme.sample_batch(rows, seed=i, threads=threads)
        caller = time.thread_time() - start
        serial = caller - draws[threading.get_ident()]
        models.append(Model(alone, serial, max(draws.values())))
    del scheme._draw
    base.cores_read_once = cores
    return sorted(models[1:], key=lambda m: m.speedup)[rounds // 2]  # the first one fills caches


def print_model(vocab: rt.Vocabulary, texts: list[str], rounds: int) -> None:
    """A table of the modelled threads."""
    print_heads("scheme", "serial share", "modelled: 2 threads", "8")
    ids = vocab.encode_batch(texts)
    for spec in MODELLED:
        scheme = rt.sampler(spec, vocab)
        print_row(spec, *model_cells(scheme, ids, rounds))


def model_cells(scheme: rt.Sampler, rows: Any, rounds: int) -> tuple[str, str, str]:
    """The share of the calling thread, and what 2 and 8 threads give."""
    pair, eight = (modelled(scheme, rows, n, rounds) for n in (2, 8))
    return f"{eight.serial / eight.alone:.1%}", f"{pair.speedup:.2f}", f"{eight.speedup:.1f}"


def main() -> None:
    options = arguments(__doc__, parts=("model",))
    texts = read_documents(options.text, 4_000_000)
    whole = "\n".join(texts)
    copies = -(-8_000_000 // len(whole.encode("utf8")))
    for path in options.tokenizer:
        vocab = rt.Vocabulary.load(path)
        if options.part == "model":
            print(f"\n{Path(path).parent.name}\n")
            print_model(vocab, texts * copies, options.rounds)
            continue
        many = vocab.encode_batch(texts)
        repeated = rt.Ragged.from_rows([*many] * copies)  # 8 MB
        print(f"\n{Path(path).parent.name}\n")
        print_heads("scheme", "64 KB over 8 KB", "two threads over one",
                    "serial share", "modelled: 2 threads", "8")  # fmt: skip
        for spec in FLOORS:
            scheme = rt.sampler(spec, vocab)

            def draw_texts(ids: Any, scheme: rt.Sampler = scheme) -> None:
                for seed in range(20):  # one draw of 8 KB is too short for the clock
                    scheme.sample_batch([ids], seed=seed, threads=1)

            def draw_many(threads: int, scheme: rt.Sampler = scheme, many: Any = many) -> None:
                scheme.sample_batch(many, seed=0, threads=threads, draws=8)

            ids = {size: vocab.encode(whole[: size << 10]) for size in (8, 64)}
            jobs = {str(size): partial(draw_texts, ids[size]) for size in ids}
            times = medians(jobs, options.rounds)
            threads = {str(n): partial(draw_many, n) for n in (1, 2)}
            walls = medians(threads, options.rounds, time.perf_counter)
            cells = f"{times['64'] / times['8']:.1f}", f"{walls['1'] / walls['2']:.2f}"
            print_row(spec, *cells, *model_cells(scheme, repeated, options.rounds))


if __name__ == "__main__":
    main()
