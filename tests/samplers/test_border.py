"""Samplers refuse what they cannot take, in one line, and stay inside their arrays."""

import os
import random
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.data import real
from tests.oracles.processes import run
from tests.oracles.vocabulary import canonical, cases, toy

import robustok as rt
from robustok.samplers.base import check_vocabulary_of

TOY = toy([bytes([b]) for b in b"abc "] + [b"ab", b"abc", b" a", b"bc"], special=[b"<s>", b""])
OTHER = toy([b"a", b"b", b"c", b" "])
LARGEST = [
    "stochastok(alpha=10000)", "stochastok(alpha=10000, ways=2147483647)",
    "stochastok-uniform(alpha=10000)", "stochastok-uniform(alpha=10000, support=pairwise)",
    "uniform-k(alpha=10000)", "uniform-k(k=2147483647)", "grampa(temperature=1e6)",
    "grampa(temperature=1e-6)", "grampa(min_length=2147483647)", "maxmatch-dropout(p=1)",
    "mix(1e-300 uniform, 1 stochastok(alpha=10000))",
]  # fmt: skip


@pytest.mark.parametrize("spec", LARGEST)
def test_the_largest_settings_keep_the_text(spec: str) -> None:
    scheme = rt.sampler(spec, TOY)
    for ids in (TOY.encode("abc ab cab" * 20), [8, *TOY.encode("abc"), 9, 9], []):
        row = scheme.sample(ids, seed=1)
        assert TOY.decode_bytes(row) == TOY.decode_bytes(ids)


@given(case=cases(most=40), alpha=st.floats(0, 50), ways=st.integers(2, 5), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_stochastok_splits_all_it_can_at_a_large_alpha(case, alpha, ways, seed) -> None:
    vocab, text = case
    ids = canonical(vocab, text)
    some = rt.StochasTok(vocab, alpha=alpha, ways=ways).sample(ids, seed=seed)
    every = rt.StochasTok(vocab, alpha=10_000, ways=ways).sample(ids, seed=seed)
    assert vocab.decode_bytes(some) == vocab.decode_bytes(every) == text
    # Five-way splits take every token of these vocabularies to letters.
    assert ways < 5 or len(every) == len(text)


def test_a_sampler_of_another_vocabulary_is_refused() -> None:
    scheme = rt.Uniform(OTHER)
    same = toy([b"a", b"b", b"c", b" "])
    assert rt.sampler(scheme, same) is scheme
    for call in (
        lambda: rt.sampler(scheme, TOY),
        lambda: rt.Mix(TOY, parts=[(0.5, "canonical"), (0.5, scheme)]),
        lambda: check_vocabulary_of(rt.schedule("stochastok(alpha=0->1)", OTHER), TOY),
    ):
        with pytest.raises(rt.RobustokError, match="another vocabulary"):
            call()


def test_one_text_and_a_batch_are_not_exchanged() -> None:
    uniform = rt.Uniform(TOY)
    for texts in ("hello", b"hello", 5, None):
        for call in (lambda x: uniform.sample_batch(x, seed=0), TOY.encode_batch):
            with pytest.raises(rt.RobustokError, match="give a list"):
                call(texts)  # type: ignore[arg-type]
    for rows in (["ab", [1]], [[1], "ab"]):
        with pytest.raises(rt.RobustokError):
            uniform.sample_batch(rows, seed=0)  # type: ignore[arg-type]
    for rows in (["a", "b"], [b"a"], ("a", "b")):
        with pytest.raises(rt.RobustokError, match="use sample_batch for a list of texts"):
            uniform.sample(rows, seed=0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "spec",
    [
        *("canonical", "uniform", "uniform-k(alpha=1)", "stochastok(alpha=1)", "characters"),
        *("maxmatch-dropout(p=0.1)", "mix(0.5 canonical, 0.5 uniform)"),
    ],
)
def test_more_draws_than_memory_are_refused(spec: str) -> None:
    scheme = rt.sampler(spec, TOY)
    for rows in ([""], [[]], ["abc" * 1000] * 3):
        for draws in (2**31 - 1, 2**31, 2**70):
            with pytest.raises(rt.RobustokError, match="draw"):
                scheme.sample_batch(rows, seed=0, draws=draws)


def test_ids_are_checked_in_threads_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robustok.samplers.base._MANY_IDS", 1)
    monkeypatch.setattr("robustok.samplers.base._SMALL_BYTES", 1)
    vocab = toy([b"a", b"b", b"ab"], [b"<s>"])
    scheme = rt.StochasTok(vocab, alpha=1)
    rows: list[list[int]] = [[2, 0, 2], [], [3, 2], [1], [2, 3, 2, 2]]
    assert scheme.sample_batch(rows, seed=1, threads=3) == scheme.sample_batch(
        rows, seed=1, threads=1
    )
    with pytest.raises(rt.RobustokError, match="id 4 at position 9 is not in"):
        scheme.sample_batch([*rows[:4], [2, 3, 2, 4]], seed=1, threads=3)


def test_stores_do_not_grow_with_the_number_of_threads() -> None:
    scheme = rt.Uniform(TOY)
    start = threading.Barrier(12)

    def draw() -> None:
        start.wait()
        for seed in range(20):
            scheme.sample("abc ab" * 200, seed=seed)

    threads = [threading.Thread(target=draw) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= len(scheme._stores) <= (os.cpu_count() or 1)


_PERTURBED = """
import hashlib, sys
import robustok as rt
from tests.oracles.vocabulary import toy
long = bytes(range(97, 105))
vocab = toy([bytes([b]) for b in long] + [long[i:j] for i in range(7) for j in range(i + 2, 9)])
digest = hashlib.sha256()
text = vocab.encode_batch(["abcdefgh" * 2000, "abc", "hgfedcba" * 300])
for spec in sys.argv[1:]:
    rows = rt.sampler(spec, vocab).sample_batch(text, seed=1, draws=2)
    for i, row in enumerate(rows):
        assert vocab.decode_bytes(row) == vocab.decode_bytes(text[i // 2])
    digest.update(spec.encode() + rows.values.tobytes() + rows.offsets.tobytes())
print(digest.hexdigest())
"""


def test_draws_read_no_freed_memory() -> None:
    """The same draws where malloc overwrites each block that is freed."""
    specs = [
        "canonical", "stochastok(alpha=1)", "stochastok(alpha=2, ways=3)", "uniform", "grampa",
        "stochastok-uniform(alpha=1)", "stochastok-uniform(support=pairwise)", "uniform-k(alpha=1)",
        "grampa(temperature=2, min_length=2)", "maxmatch-dropout(p=0.3)",
        "mix(0.5 canonical, 0.5 uniform)",
    ]  # fmt: skip
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    plain = run(_PERTURBED, *specs, PYTHONPATH=path)
    assert run(_PERTURBED, *specs, PYTHONPATH=path, MALLOC_PERTURB_="165").stdout == plain.stdout


def test_a_segmentation_too_rare_to_be_drawn_ends_in_an_error() -> None:
    """Two-way splits of 2**k bytes cut aligned halves only: 1 in 10**6 of 20 segments of 128."""
    vocab = toy([b"a" * 2**k for k in range(8)])
    scheme = rt.sampler("stochastok-uniform(alpha=19, support=pairwise)", vocab)
    with pytest.raises(rt.RobustokError, match="come from two-way splits: use support='all'"):
        scheme.sample([7], seed=0)


def test_the_longest_token_that_is_split_is_cut_uniformly() -> None:
    """It has 2**1023 segmentations, nearly as many as float64 holds."""
    vocab = toy([b"a" * n for n in range(1, 1025)])
    scheme = rt.sampler("stochastok-uniform(alpha=511)", vocab)
    rows = scheme.sample_batch([[1023]], seed=0, draws=20)
    halves = [int((np.cumsum(row + 1) <= 512).sum()) for row in rows]  # 256 of 512 cuts, sd 8
    assert all(len(row) == 512 for row in rows)
    assert min(halves) > 200 and max(halves) < 312 and len({*halves}) > 5


def test_a_text_of_large_distinct_words_leaves_the_store_at_its_first_size() -> None:
    """Random letters: blocks of up to 500 bytes, whose tables would take 45 MB."""
    vocab = real("gpt2")
    text = "".join(random.Random(0).choices("acgtehilnorsu", k=200_000))
    ids = vocab.encode(text)
    scheme = rt.UniformK(vocab, alpha=0.5)
    alone = scheme.sample(ids, seed=0)
    assert vocab.decode(alone) == text
    assert rt.distance(vocab, ids, alone) == -(-len(ids) // 2)
    assert len(scheme._stores) == 1  # a larger one is not kept
    rows = rt.Ragged.from_rows([vocab.encode(text[:5000]), ids])
    batch = scheme.sample_batch(rows, seed=0, keys=[1, 0])
    assert batch[1].tolist() == alone.tolist()
