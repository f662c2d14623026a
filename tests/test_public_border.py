"""Every public callable, given anything: a result, or a RobustokError of one line.

Objects that eight threads share give each what one thread gets.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.guard.tokenizers_of import LLAMA3, byte_level, metaspace
from tests.oracles.strategies import cases
from tests.oracles.vocabulary import canonical, toy

import robustok as rt

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 12), st.integers(), st.floats(), st.text(max_size=4),
    st.binary(max_size=4), st.sampled_from([2**31, 2**63, 2**64, -(2**63) - 1, 1e300, 1j, object]),
)  # fmt: skip
GARBAGE = st.one_of(
    SCALARS,
    st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4), max_leaves=8),
    st.lists(st.integers(-1, 7), max_size=6),
    st.lists(st.lists(st.integers(-1, 7), max_size=3), max_size=3),
    st.dictionaries(st.integers(0, 3), st.integers(0, 3), max_size=2),
    st.sampled_from([
        np.array(3), np.zeros((2, 2), int), np.array([1.5]), np.array([True]), np.array(["a"]),
        np.array([2**32], np.int64), np.array([2**63], np.uint64), np.array([None, 1]), {1, 2},
        range(3), (1, 2), bytearray(b"ab"), rt.Ragged.from_rows([[0], [1, 2]]), np.arange(3),
    ]),
)  # fmt: skip
SCHEMES = [
    "canonical", "uniform", "uniform-k(k=2)", "stochastok(alpha=2)", "grampa(temperature=2)",
    "stochastok-uniform(alpha=1)", "maxmatch-dropout(p=0.5)",
]  # fmt: skip
Call = Callable[[rt.Vocabulary, Any, Any], Any]
CALLS: dict[str, Call] = {
    "sample": lambda v, x, y: rt.Uniform(v).sample(x, seed=0),
    "sample seed": lambda v, x, y: rt.Uniform(v).sample("a", seed=x, key=y),
    "sample epoch": lambda v, x, y: rt.Uniform(v).sample("a", seed=0, epoch=x, keep=y),
    "sample_batch": lambda v, x, y: rt.StochasTok(v).sample_batch(x, seed=0, keys=y),
    "sample_batch keep": lambda v, x, y: rt.UniformK(v, k=1).sample_batch([[0]], seed=0, keep=x),
    "sample_batch keys": lambda v, x, y: rt.Uniform(v).sample_batch(["a", "b"], seed=0, keys=x),
    "sample_batch threads": lambda v, x, y: rt.Uniform(v).sample_batch(["a"], seed=0, threads=x),
    "sampler": lambda v, x, y: rt.sampler(x, v),
    "sampler vocabulary": lambda v, x, y: rt.sampler("uniform", x),
    "distance vocabulary": lambda v, x, y: rt.distance(x, y, v),  # type: ignore[arg-type]
    "Lattice vocabulary": lambda v, x, y: rt.Lattice(x, y),
    "Guard vocabulary": lambda v, x, y: rt.Guard(x, max_length=y),
    "Guard.check": lambda v, x, y: rt.Guard(v).check(x),
    "Guard.admit": lambda v, x, y: rt.Guard(v).admit(x),
    "Guard.repair": lambda v, x, y: (rt.Guard(v).repair(x), rt.Guard(v).repair(y)),
    "Guard.check_batch": lambda v, x, y: rt.Guard(v).check_batch(x),
    "schedule": lambda v, x, y: rt.schedule(x, v),
    "at": lambda v, x, y: rt.Spec.parse(x).at(y),
    "progress": lambda v, x, y: rt.Spec.parse("stochastok(alpha=0->1)").at(x),
    "StochasTok": lambda v, x, y: rt.StochasTok(v, alpha=x, ways=y),
    "StochasTokUniform": lambda v, x, y: rt.StochasTokUniform(v, alpha=x, support=y),
    "UniformK": lambda v, x, y: (rt.UniformK(v, alpha=x), rt.UniformK(v, k=y)),
    "Grampa": lambda v, x, y: rt.Grampa(v, temperature=x, min_length=y),
    "MaxMatchDropout": lambda v, x, y: rt.MaxMatchDropout(v, p=x),
    "Mix": lambda v, x, y: rt.Mix(v, parts=x),
    "Mix parts": lambda v, x, y: rt.Mix(v, parts=[(x, "uniform"), (y, "canonical")]),
    "measure": lambda v, x, y: rt.measure(v, x, y),
    "at_strength": lambda v, x, y: rt.at_strength(x, v, y, splits=0.1),
    "at_strength target": lambda v, x, y: rt.at_strength("stochastok", v, x, splits=y),
    "encode": lambda v, x, y: v.encode(x),
    "encode_batch": lambda v, x, y: v.encode_batch(x),
    "decode_bytes": lambda v, x, y: v.decode_bytes(x),
    "decode": lambda v, x, y: v.decode(x),
    "from_rows": lambda v, x, y: rt.Ragged.from_rows(x),
    "Ragged": lambda v, x, y: rt.Ragged(x, y),
    **{f"log_prob {s}": lambda v, x, y, s=s: rt.sampler(s, v).log_prob(x) for s in SCHEMES[:7]},
}
LETTERS = toy([b"a", b"b", b"c", b"ab", b"bc"], special=[b"<s>", b""])


@pytest.mark.parametrize("name", CALLS)
@given(x=GARBAGE, y=GARBAGE)
@settings(max_examples=150)
def test_a_call_gives_a_result_or_one_line(name: str, x: Any, y: Any) -> None:
    try:
        CALLS[name](LETTERS, x, y)
    except rt.RobustokError as e:
        assert "\n" not in str(e)
        assert str(e)
    except AssertionError as e:  # the oracle's encoder, where no token starts
        assert "no token starts" in str(e)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(case=cases(most=12), rows=st.lists(GARBAGE, max_size=3), seed=st.integers())
@settings(max_examples=40)
def test_rows_of_any_kind_keep_their_text(scheme: str, case: Any, rows: Any, seed: int) -> None:
    vocab, text = case
    ids = canonical(vocab, text)
    for batch in ([ids, *rows], [*rows, ids]):
        try:
            drawn = rt.sampler(scheme, vocab).sample_batch(batch, seed=seed, draws=2)
        except rt.RobustokError as e:
            assert "\n" not in str(e)
            continue
        except AssertionError as e:
            assert "no token starts" in str(e)
            continue
        expected = itertools.chain.from_iterable((row, row) for row in batch)
        for row, given_ids in zip(drawn, expected, strict=True):
            assert vocab.decode_bytes(row) == vocab.decode_bytes(given_ids)


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
