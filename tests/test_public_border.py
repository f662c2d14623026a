"""Calls of the public API with any arguments, and objects that eight threads share."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from fuzz import api
from tests.guard.tokenizers_of import LLAMA3, byte_level, metaspace

import robustok as rt


def test_a_call_gives_what_holds_or_one_line() -> None:
    """Calls of the fuzzer, which checks each result: plausible arguments, and hostile ones."""
    counts = Counter(api.call(1, number) for number in range(2500))
    assert len(counts) >= len(api.CALLS)


SPECS = ("stochastok(alpha=1)", "stochastok(alpha=1, ways=3)", "stochastok-uniform(alpha=1)",
         "uniform", "uniform-k(alpha=1)", "bpe-dropout(p=0.2)", "grampa(temperature=2)",
         "maxmatch-dropout(p=0.3)", "mix(0.5 canonical, 0.5 uniform)")  # fmt: skip
TEXTS = ["the theater is there <|end|>", "caf\u00e9 \u6771\u4eac 12 345", b"\xff broken \xc3", "",
         "rest " * 40, "aaaaaaaaaaaaaaaaaaaa"]  # fmt: skip


def _calls(vocab: rt.Vocabulary) -> list[Callable[[], Any]]:
    guard = rt.Guard(vocab)
    rows = list(vocab.encode_batch(TEXTS))
    samplers = [rt.sampler(spec, vocab) for spec in SPECS]
    calls: list[Callable[[], Any]] = []
    for i, (text, row) in enumerate(zip(TEXTS, rows, strict=True)):
        calls += [
            lambda text=text: vocab.encode(text).tolist(),
            lambda text=text: vocab.encode(text, parse_special=True).tolist(),
            lambda row=row: guard.check(row).repaired.tolist(),
            lambda row=row: guard.check_batch([row, row]).distance.tolist(),
            lambda row=row: vocab.lattice(vocab.decode_bytes(row)).count(),
        ]
        for s in samplers:
            calls.append(lambda s=s, row=row, i=i: s.sample(row, seed=i).tolist())
            calls.append(lambda s=s, text=text, i=i: s.sample(text, seed=i).tolist())
    return calls


@pytest.mark.parametrize("make", [lambda: byte_level(LLAMA3), lambda: metaspace(prefix=True)],
                         ids=["byte-level", "sentencepiece"])  # fmt: skip
def test_eight_threads_get_what_one_gets(make: Callable[[], rt.Vocabulary]) -> None:
    expected = [call() for call in _calls(make())]
    calls = _calls(make())  # cold tables, filled by all threads at once

    def work(thread: int) -> list[int]:
        order = np.random.default_rng(thread).permutation(len(calls))
        return [int(n) for n in order if calls[n]() != expected[n]]

    with ThreadPoolExecutor(8) as pool:
        assert [wrong for wrong in pool.map(work, range(8)) if wrong] == []
