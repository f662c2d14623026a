"""Draws of long words, full stores and special ids; `tests/samplers` has the distributions."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.oracles import dropout, samplers, walks
from tests.oracles.chi_square import assert_distribution
from tests.oracles.vocabulary import ENGLISH, toy
from tokenizers import Tokenizer, models

import robustok as rt

DRAWS = 400


def draws(scheme: rt.Sampler, ids: list[int] | tuple[int, ...], count: int = DRAWS) -> rt.Ragged:
    return scheme.sample_batch([list(ids)], seed=11, draws=count)


def canonical(text: bytes) -> tuple[int, ...]:
    return tuple(ENGLISH.encode(text.decode()).tolist())


@pytest.mark.parametrize("support", ["all", "pairwise"])
def test_stochastok_uniform_of_a_token_with_many_segmentations(support: str) -> None:
    vocab = toy([b"a", b"aa", b"aaa", b"a" * 9])
    scheme = rt.StochasTokUniform(vocab, alpha=4, support=support)
    assert_distribution(draws(scheme, [3]), samplers.stochastok_uniform(vocab, (3,), 4, support))


def test_starts_of_tokenizations_without_an_end_cost_no_time() -> None:
    """A last character that is no token: the letters before it have 2 ** 40 segmentations."""
    names = {"a": 0, "aa": 1, "a" * 60 + "x": 2}
    vocab = rt.Vocabulary.load(Tokenizer(models.BPE(names, [("a", "a")], ignore_merges=True)))
    assert rt.StochasTokUniform(vocab, alpha=1).sample([2], seed=0).tolist() == [2]


def test_a_store_that_is_full_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of more words than a small store holds, each text fitting alone."""
    from robustok.kernels import store as stores

    rng = random.Random(1)
    texts = ["".join(rng.choices("abc d", k=12)) for _ in range(9)]
    new_store = stores.new_store
    schemes = ["uniform", "stochastok-uniform", "stochastok(alpha=1, ways=3)", "uniform-k(k=2)",
               "grampa"]  # fmt: skip
    for spec in schemes:
        expected = rt.sampler(spec, ENGLISH).sample_batch(texts, seed=3, draws=2)
        sizes = []

        def small(scale: int = 1, sizes: list[int] = sizes) -> stores.Store:
            sizes.append(scale)
            store = new_store()
            words = store.words[: 80 * scale]
            return store._replace(
                words=words, floats=words.view(np.float64), ints=words.view(np.int32),
                bytes=words.view(np.uint8),
            )  # fmt: skip

        monkeypatch.setattr("robustok.samplers.stored.new_store", small)
        drawn = rt.sampler(spec, ENGLISH).sample_batch(texts, seed=3, draws=2, threads=1)
        assert drawn == expected
        assert max(sizes) < 2000
        monkeypatch.undo()


def test_a_walk_through_a_long_word() -> None:
    """Longer than what is cached."""
    vocab = toy([b"a", b"aa"])
    distribution = walks.maxmatch_dropout(vocab, b"a" * 6, 0.5)
    rows = draws(rt.MaxMatchDropout(vocab, p=0.5), [0] * 60)
    firsts = [tuple(row[:3].tolist()) for row in rows]
    starts: dict[tuple[int, ...], float] = {}
    for path, p in distribution.items():
        starts[path[:3]] = starts.get(path[:3], 0.0) + p
    assert_distribution(firsts, starts)
    assert all(vocab.decode_bytes(row) == b"a" * 60 for row in rows)


def characters() -> rt.Vocabulary:
    """A BPE of characters with byte fallback."""
    tokens = ["<unk>", *(f"<0x{b:02X}>" for b in range(256)), "a", "b", "c", "ab", "abc", "bc"]
    names = {token: i for i, token in enumerate(tokens)}
    merges = [("a", "b"), ("ab", "c"), ("b", "c")]
    return rt.Vocabulary.load(
        Tokenizer(models.BPE(names, merges, unk_token="<unk>", byte_fallback=True))
    )


@pytest.mark.parametrize("rule", ["provilkov", "hf", "sentencepiece"])
def test_bpe_dropout_of_characters(rule: str) -> None:
    a, b, c, ab, abc, bc = range(257, 263)
    merges = {(a, b): (0, ab), (ab, c): (1, abc), (b, c): (2, bc)}
    distribution = getattr(dropout, rule)(merges, (a, b, c, b, c), 0.3)
    rows = draws(rt.BpeDropout(characters(), p=0.3, rule=rule), [abc, bc])
    assert_distribution(rows, distribution)


def test_bpe_dropout_of_characters_without_a_token_and_of_long_text() -> None:
    vocab, text = characters(), "aéb" + "abc" * 120
    assert vocab.decode(rt.BpeDropout(vocab, p=0.2).sample(text, seed=1)) == text


def test_bpe_dropout_of_short_texts_is_not_by_blocks_in_any_thread(monkeypatch) -> None:
    from robustok.kernels import dropout as kernels

    merge_texts, blocks = kernels.merge_texts, []

    def spy(*arguments: object) -> object:
        blocks.append(arguments[-2])
        return merge_texts(*arguments)

    monkeypatch.setattr(kernels, "merge_texts", spy)
    rt.BpeDropout(characters(), p=0.2).sample_batch(["abc" * 100] * 300, seed=1, threads=2)
    assert blocks == [None, None]


@pytest.mark.parametrize(("size", "k"), [(120, 3), (120, 100), (1300, 40)])
def test_uniform_k_of_long_words(size: int, k: int) -> None:
    """Words too long for a table, beside short ones; every draw has the distance k."""
    vocab = toy([b"a", b"aa", b"aaa", b" ", b"b", b"bb", b" b"])
    ids = vocab.encode("a" * size + " bb b" * 3 + "a" * 60).tolist()
    for row in draws(rt.UniformK(vocab, k=k), ids, 2):
        assert vocab.decode_bytes(row) == vocab.decode_bytes(ids)
        assert rt.distance(vocab, ids, row) == k


def test_uniform_of_a_long_word() -> None:
    vocab = toy([b"a", b"aa"])
    rows = draws(rt.Uniform(vocab), vocab.encode("a" * 60).tolist(), 3)
    assert {vocab.decode_bytes(row) for row in rows} == {b"a" * 60}
