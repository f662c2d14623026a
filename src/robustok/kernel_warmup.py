"""Compile all kernels ahead of the first draw."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from robustok.kernels.compiler.cache import cache_directory, move_into
from robustok.kernels.compiler.first_use import one_process
from robustok.processes import available_cores
from robustok.samplers.needs import SCORES
from robustok.samplers.registry import BUILT_IN

_COMPLETE = "all.compiled"  # marks a cache of all kernels
_OTHERS = "others"  # kernels of the guard, the lattice and measures
_MOST_PROCESSES = 4  # of half a GB each; the longest scheme alone takes a third of the time
_COSTS = {"uniform-k": 6, "bpe-dropout": 4, "stochastok-uniform": 3}  # compile time, others 1
_SAME_KERNELS = {"exactly": "uniform-k"}  # costs more, and its process compiles both
_WORKER = "import sys; from robustok.kernel_warmup import compile_jobs; compile_jobs(sys.argv[1:])"


def warmup() -> None:
    """Compile every kernel, or load it from the cache of an earlier process.

    >>> warmup()

    Where kernels are missing, up to four processes compile, at most one a core: about 80 seconds
    of processor time together. Later processes load each kernel in hundredths of a second. Worth
    calling in an image's build or before timing anything.
    """
    jobs = [scheme.name for scheme in BUILT_IN] + [_OTHERS]
    processes = min(available_cores(), _MOST_PROCESSES)
    directory = cache_directory()
    if directory is not None and processes > 1 and not (directory / _COMPLETE).exists():
        with one_process(directory):
            _compile_in_processes(jobs, processes, directory)
    compile_jobs(jobs)
    if directory is not None:
        (directory / _COMPLETE).touch()


def _compile_in_processes(jobs: list[str], processes: int, directory: Path) -> None:
    """Compile in processes with a cache each, and collect what they compiled in ``directory``.

    Processes that share a cache overwrite each other's entries. They are started as commands, for
    a script that calls :func:`warmup` at its top level would call it again where it is imported.
    What a process fails to compile is left to the caller.
    """
    shares: list[list[str]] = [[] for _ in range(processes)]
    for job in sorted(jobs, key=lambda job: -_COSTS.get(job, 1)):
        same = next((share for share in shares if _SAME_KERNELS.get(job) in share), None)
        share = same or min(shares, key=lambda share: sum(_COSTS.get(j, 1) for j in share))
        share.append(job)
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        places = [Path(folder) / str(i) for i in range(processes)]
        path = os.pathsep.join(p for p in sys.path if p)
        running = [
            subprocess.Popen(
                [sys.executable, "-c", _WORKER, *share],
                env={**os.environ, "NUMBA_CACHE_DIR": str(place), "PYTHONPATH": path},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for share, place in zip(shares, places, strict=True)
        ]
        for process, place in zip(running, places, strict=True):
            process.wait()
            move_into(directory, place / "robustok" / directory.name)


def compile_jobs(jobs: list[str]) -> None:
    """Call every kernel of the named schemes once."""
    from robustok.ragged import Ragged
    from robustok.samplers import sampler
    from robustok.vocabulary import Vocabulary

    data = _toy_tokenizer()
    vocab = Vocabulary(data)
    scored = Vocabulary(replace(data, family="Unigram", scores=dict.fromkeys(range(258), 0.0)))
    rows = Ragged.from_rows([[257, 97], [257, 258, 257]])  # the second with a special token
    for scheme in BUILT_IN:
        for spec in (scheme.example, *scheme.variants) if scheme.name in jobs else ():
            drawing = sampler(spec, scored if scheme.needs is SCORES else vocab)
            drawing.sample_batch(rows, seed=0)
            if scheme.exact:
                drawing.log_prob([257])
    if _OTHERS in jobs:
        _compile_others(vocab, rows)


def _toy_tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    from robustok.tokenizer_files import byte_alphabet, read_tokenizer

    ids = {**byte_alphabet(), "ab": 256, "abc": 257}
    toy = Tokenizer(models.BPE(ids, [("a", "b"), ("ab", "c")]))
    toy.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    toy.add_special_tokens(["<end>"])
    return read_tokenizer(toy)


def _compile_others(vocab: Any, rows: Any) -> None:
    from robustok.guard import Guard
    from robustok.kernels.tables import clear, copy_records, new_store
    from robustok.strength import measure

    measure(vocab, rows, rows)
    vocab.decode_bytes([257] * 1024)
    lattice = vocab.lattice("abc")
    lattice.neighbors([257])
    lattice.count()
    lattice.count(distance=2)
    Guard(vocab).check_batch(rows)
    store = new_store()  # otherwise compiled when a store is full for the first time
    copy_records(store, new_store())
    clear(store)
