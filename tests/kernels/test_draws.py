"""The draw kernels follow their distributions, which the twins in tests/oracles enumerate."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from tests.oracles import dropout, samplers, walks
from tests.oracles.chi_square import assert_distribution
from tests.oracles.vocabulary import toy
from tokenizers import Tokenizer, models, pre_tokenizers

import robustok as rt
from robustok.tokenizer.data import byte_alphabet

DRAWS = 400
VOCAB = toy([bytes([b]) for b in b"abc d"] + [b"ab", b"bc", b"abc", b" d", b"cab", b" ab", b"cc"])


def draws(scheme: rt.Sampler, ids: list[int] | tuple[int, ...], count: int = DRAWS) -> rt.Ragged:
    return scheme.sample_batch([list(ids)], seed=11, draws=count)


def canonical(text: bytes) -> tuple[int, ...]:
    return tuple(VOCAB.encode(text.decode()).tolist())


@pytest.mark.parametrize("ways", [2, 3])
@pytest.mark.parametrize(("alpha", "most"), [(0.7, None), (20.0, 2)])  # few and many for a token
def test_stochastok(ways: int, alpha: float, most: int | None) -> None:
    ids = canonical(b"abcab d")
    scheme = rt.StochasTok(VOCAB, alpha=alpha, ways=ways, max_picks=most)
    assert_distribution(draws(scheme, ids), samplers.stochastok(VOCAB, ids, alpha, ways, most))


@pytest.mark.parametrize("ways", [2, 3])
def test_many_picks_split_all_that_splits(ways: int) -> None:
    rows = draws(rt.StochasTok(VOCAB, alpha=5000, ways=ways), canonical(b"abcab d"), 3)
    assert [row.tolist() for row in rows] == [[0, 1, 2, 0, 1, 3, 4]] * 3


@pytest.mark.parametrize("support", ["all", "pairwise"])
def test_stochastok_uniform(support: str) -> None:
    ids = canonical(b"abcab d")
    scheme = rt.StochasTokUniform(VOCAB, alpha=1.2, support=support)
    assert_distribution(draws(scheme, ids), samplers.stochastok_uniform(VOCAB, ids, 1.2, support))


@pytest.mark.parametrize("support", ["all", "pairwise"])
def test_stochastok_uniform_of_a_token_with_many_segmentations(support: str) -> None:
    vocab = toy([b"a", b"aa", b"aaa", b"a" * 9])
    scheme = rt.StochasTokUniform(vocab, alpha=4, support=support)
    assert_distribution(draws(scheme, [3]), samplers.stochastok_uniform(vocab, (3,), 4, support))


def test_uniform() -> None:
    ids = canonical(b"abcab d")
    assert_distribution(draws(rt.Uniform(VOCAB), ids), samplers.uniform(VOCAB, ids))


@pytest.mark.parametrize("k", [1, 3])
def test_uniform_k(k: int) -> None:
    ids = canonical(b"abcab d")
    assert_distribution(draws(rt.UniformK(VOCAB, k=k), ids), samplers.uniform_k(VOCAB, ids, k))


def test_a_store_that_is_full_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of more words than a small store holds, each text fitting alone."""
    from robustok.kernels import store as stores

    rng = random.Random(1)
    texts = ["".join(rng.choices("abc d", k=12)) for _ in range(9)]
    new_store = stores.new_store
    schemes = ["uniform", "stochastok-uniform", "stochastok(alpha=1, ways=3)", "uniform-k(k=2)",
               "grampa"]  # fmt: skip
    for spec in schemes:
        expected = rt.sampler(spec, VOCAB).sample_batch(texts, seed=3, draws=2)
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
        drawn = rt.sampler(spec, VOCAB).sample_batch(texts, seed=3, draws=2, threads=1)
        assert drawn == expected
        assert max(sizes) < 2000
        monkeypatch.undo()


def test_grampa() -> None:
    distribution = walks.grampa(VOCAB, b"abcab d", 2.0, 2)
    scheme = rt.Grampa(VOCAB, temperature=2.0, min_length=2)
    rows = draws(scheme, canonical(b"abcab d"))
    assert_distribution(rows, distribution)
    path = max(distribution, key=lambda path: distribution[path])
    assert np.exp(scheme.log_prob(list(path))) == pytest.approx(distribution[path])


def test_maxmatch_dropout() -> None:
    distribution = walks.maxmatch_dropout(VOCAB, b"abcab d", 0.3)
    assert_distribution(
        draws(rt.MaxMatchDropout(VOCAB, p=0.3), canonical(b"abcab d")), distribution
    )


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


def scored() -> rt.Vocabulary:
    scores = [("<unk>", 0.0), ("a", -2.0), ("b", -2.5), ("ab", -3.0), ("ba", -3.5)]
    scores += [(f"<0x{b:02X}>", 0.0) for b in range(256)]
    return rt.Vocabulary.load(Tokenizer(models.Unigram(scores, 0, True)))


def test_unigram() -> None:
    vocab = scored()
    ids = vocab.encode("abab").tolist()
    distribution = walks.unigram(
        vocab, b"abab",
        dict.fromkeys(range(vocab.size), -50.0) | {1: -2.0, 2: -2.5, 3: -3.0, 4: -3.5}, 1.5,
    )  # fmt: skip
    scheme = rt.Unigram(vocab, temperature=1.5)
    rows = draws(scheme, ids)
    assert_distribution(rows, {path: p for path, p in distribution.items() if p > 1e-12})
    other = scheme.sample("abé", seed=0)
    assert vocab.decode_bytes(other) == "abé".encode()
    assert scheme.log_prob(vocab.encode("abé")) < 0


def bpe(from_bytes: bool) -> rt.Vocabulary:
    """Byte-level BPE, or BPE of characters with byte fallback."""
    if from_bytes:
        names = dict(byte_alphabet())
        merges = [("a", "b"), ("c", "d"), ("ab", "c"), ("ab", "cd"), ("b", "c")]
        for i, (left, right) in enumerate(merges):
            names.setdefault(left + right, 256 + i)
        tokenizer = Tokenizer(models.BPE(names, merges))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore
        return rt.Vocabulary.load(tokenizer)
    tokens = ["<unk>", *(f"<0x{b:02X}>" for b in range(256)), "a", "b", "c", "ab", "abc", "bc"]
    names = {token: i for i, token in enumerate(tokens)}
    merges = [("a", "b"), ("ab", "c"), ("b", "c")]
    return rt.Vocabulary.load(
        Tokenizer(models.BPE(names, merges, unk_token="<unk>", byte_fallback=True))
    )


@pytest.mark.parametrize("p", [0.3, 1.0])
@pytest.mark.parametrize("rule", ["provilkov", "hf", "sentencepiece"])
@pytest.mark.parametrize(
    ("from_bytes", "text"), [(True, b"abcd"), (True, b"abcab"), (False, b"abcbc")]
)
def test_bpe_dropout(from_bytes: bool, text: bytes, rule: str, p: float) -> None:
    vocab = bpe(from_bytes)
    ids = {vocab.tokens[i]: int(i) for i in np.flatnonzero(vocab.ordinary)}
    pairs = [(b"a", b"b"), (b"c", b"d"), (b"ab", b"c"), (b"ab", b"cd"), (b"b", b"c")]
    if not from_bytes:
        pairs = [(b"a", b"b"), (b"ab", b"c"), (b"b", b"c")]
    merges = {(ids[a], ids[b]): (rank, ids[a + b]) for rank, (a, b) in enumerate(pairs)}
    symbols = tuple(ids[bytes([b])] for b in text)
    distribution = getattr(dropout, rule)(merges, symbols, p)
    rows = draws(rt.BpeDropout(vocab, p=p, rule=rule), vocab.encode(text.decode()).tolist())
    assert_distribution(rows, {path: q for path, q in distribution.items() if q > 0})


def test_bpe_dropout_of_characters_without_a_token_and_of_long_text() -> None:
    vocab = bpe(False)
    drawn = rt.BpeDropout(vocab, p=0.2).sample("aéb" + "abc" * 120, seed=1)
    assert vocab.decode_bytes(drawn) == ("aéb" + "abc" * 120).encode()


@pytest.mark.parametrize("measure", ["splits", "length_ratio"])
def test_exactly_uniform(measure: str) -> None:
    ids = canonical(b"abcab d")
    rows = draws(rt.sampler(f"exactly(uniform, {measure}={2 if measure == 'length_ratio' else 1})",
                            VOCAB), ids, 50)  # fmt: skip
    sizes = {len(row) for row in rows}
    if measure == "length_ratio":
        assert sizes == {min(2 * len(ids), 7)}


def test_special_tokens_and_kept_ids_stay() -> None:
    vocab = toy([b"a", b"b", b"ab", b"aba"], special=[b"<s>", b"</s>"])
    rows = [[4, 3, 2, 5, 2], [5], [], [2, 4]]
    keep = np.array([False, False, True, False, False, False, False, False])
    drawn = rt.Uniform(vocab).sample_batch(rows, seed=1, draws=40, keep=keep)
    for i, row in enumerate(drawn):
        given, ids = rows[i // 40], row.tolist()
        assert [x for x in ids if x >= 4] == [x for x in given if x >= 4]
        assert vocab.decode_bytes(ids) == vocab.decode_bytes(given)
    assert all(2 in row.tolist() for row in list(drawn)[:40])
    assert len({tuple(row.tolist()) for row in list(drawn)[:40]}) == 6


def test_pairs_of_one_vocabulary() -> None:
    from robustok.kernels.stochastok import pairs_of

    pairs = pairs_of(VOCAB.trie, VOCAB.token_bytes, VOCAB.token_offsets, VOCAB.ordinary)
    for i, (begin, end) in enumerate(pairwise(pairs.start.tolist())):
        cuts = set(
            zip(pairs.left[begin:end].tolist(), pairs.right[begin:end].tolist(), strict=True)
        )
        assert cuts == set(samplers.expansions(VOCAB, i, 2))


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
