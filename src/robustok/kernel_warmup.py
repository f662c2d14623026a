"""Compile all kernels ahead of the first draw."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from robustok.guard import Guard
from robustok.kernels.alignment import align
from robustok.kernels.store import clear, copy_records, new_store
from robustok.ragged import Ragged
from robustok.runtime.environment import available_cores
from robustok.samplers import BUILT_IN, measure, sampler
from robustok.samplers.parameters import SCORES
from robustok.tokenizer.data import TokenizerData, byte_alphabet
from robustok.tokenizer.stages import spelling_bytes
from robustok.tokenizer.tokenizer_json import from_json
from robustok.tokenizer.tokenizers_api import AddedToken, tokenizer_json
from robustok.tokenizer.vocabulary import Vocabulary

_COMPLETE = "all"  # file that marks a cache of all kernels
_OTHERS = "others"  # kernels of the guard, the lattice and measures
_MOST_PROCESSES = 4  # of half a GB each; the longest scheme alone takes a third of the time
_LONGEST = ("uniform-k", "bpe-dropout", "stochastok-uniform")  # to compile: they begin
_WORKER = "import sys; from robustok.kernel_warmup import compile_jobs; compile_jobs(sys.argv[1:])"


def warmup() -> None:
    """Compile every kernel, or load it from the cache of an earlier process.

    >>> warmup()

    Where kernels are missing, up to four processes compile, at most one a core: about 100 seconds
    of processor time together. Later processes load each kernel in hundredths of a second. Worth
    calling in an image's build or before timing anything.
    """
    from robustok.kernels.compiler import cache  # imports numba

    jobs = [scheme.name for scheme in BUILT_IN] + [_OTHERS]
    processes = min(available_cores(), _MOST_PROCESSES)
    is_complete = cache.read(_COMPLETE) is not None
    if processes > 1 and not is_complete and cache.cache_directory() is not None:
        _compile_in_processes(jobs, processes)
    compile_jobs(jobs)
    if not is_complete:
        cache.write(_COMPLETE, b"")


def _compile_in_processes(jobs: list[str], processes: int) -> None:
    """Compile in processes that share the cache, one for each job.

    They are started as commands, for a script that calls :func:`warmup` at its top level would call
    it again where it is imported. What a process fails to compile is left to the caller.
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}

    def compile_job(job: str) -> None:
        command = [sys.executable, "-P", "-c", _WORKER, job]  # nothing of the working folder
        subprocess.run(command, env=env, capture_output=True, check=False)

    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(compile_job, sorted(jobs, key=lambda job: job not in _LONGEST)))


def compile_jobs(jobs: list[str]) -> None:
    """Call every kernel of the named schemes once."""
    data = _toy_tokenizer()
    vocab = Vocabulary(data)
    scores = dict.fromkeys(range(258), 0.0)
    scored = Vocabulary(replace(data, family="Unigram", scores=scores))
    rows = Ragged.from_rows([[257, 97], [257, 258, 257]])  # the second with a special token
    for scheme in BUILT_IN:
        for spec in (scheme.example, *scheme.variants) if scheme.name in jobs else ():
            drawing = sampler(spec, scored if scheme.needs is SCORES else vocab)
            drawing.sample_batch(rows, seed=0)
            if scheme.name == "uniform-k":  # draws texts without the distance 3 by another kernel
                drawing.sample_batch(Ragged.from_rows([[256] * 4]), seed=0)
            if scheme.exact:
                drawing.log_prob([257])
                drawing.log_prob([97, 98, 99])  # a token in three segments
    if _OTHERS in jobs:
        _compile_others(vocab, rows)


def _toy_tokenizer() -> TokenizerData:
    ids = {**byte_alphabet(), "ab": 256, "abc": 257}
    model = {"type": "BPE", "vocab": ids, "merges": [["a", "b"], ["ab", "c"]]}
    toy = json.loads(tokenizer_json(model, spelling_bytes() | {"use_regex": True}))
    toy["added_tokens"] = [
        AddedToken("<end>", special=True, normalized=False)._asdict() | {"id": 258}
    ]
    return from_json(json.dumps(toy), "toy")


def _compile_others(vocab: Vocabulary, rows: Ragged) -> None:
    measure(vocab, rows, rows)
    vocab.decode_bytes([257] * 1024)
    vocab.encode(b"\xff" * 1025)  # compared with its bytes by a kernel
    lattice = vocab.lattice("abc")
    lattice.neighbors([257])
    lattice.count()
    lattice.count(distance=2)
    Guard(vocab).check_batch(rows)
    row, offsets = rows[0], np.array([0, len(rows[0])])
    spans = np.zeros((len(row), 2), np.int64)
    align(row, offsets, row, offsets, vocab.token_bytes, vocab.token_offsets, spans)
    store = new_store()  # otherwise compiled when a store is full for the first time
    copy_records(store, new_store())
    clear(store)
