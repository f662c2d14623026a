"""The kernels that do not draw, each against a few lines of Python."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.guard.tokenizers_of import byte_level
from tests.oracles import lattice
from tests.oracles.vocabulary import toy

import robustok as rt
from robustok.kernels import batch, store, trie
from robustok.kernels import comparison as kernels
from robustok.kernels import numbers as streams
from robustok.samplers.strength import measure
from robustok.tokenizer.pre_tokenizer import PreTokenizer

VOCAB = toy([bytes([b]) for b in b"abc d"] + [b"ab", b"bc", b"abc", b" d", b"cab", b" ab", b"cc"])
MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    """The finalizer of SplitMix64."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_streams_are_splitmix64() -> None:
    state = streams.stream(
        np.uint64(3), np.int64(1), np.int64(-5), np.int64(2), np.int64(0)
    )  # fmt: skip
    after = (int(state) + GOLDEN) & MASK
    expected = (mix(after) >> 11) / 2**53
    u, state_after = streams.uniform(np.uint64(state))
    assert (u, int(state_after)) == (expected, after)
    i, state_after = streams.below(np.uint64(state), np.int64(7))
    assert (i, int(state_after)) == (int(expected * 7), after)
    assert int(streams.mix(np.uint64(12345))) == mix(12345)


def test_each_stream_is_its_own() -> None:
    numbers = [
        int(streams.stream(np.uint64(s), np.int64(e), np.int64(k), np.int64(d), np.int64(p)))
        for s in (0, 1) for e in (0, 1) for k in (0, 1, -1) for d in (0, 1) for p in (0, 1)
    ]  # fmt: skip
    assert len(set(numbers)) == len(numbers)
    u = streams.uniforms(np.uint64(1), np.int64(0), np.arange(50), np.int64(4), np.int64(0))
    assert u.shape == (50, 4) and 0 <= u.min() < u.max() < 1
    assert streams.mixed(3, 1) != streams.mixed(3, 2)


def hashed(seed: int, key: bytes) -> int:
    h, factor = seed, (seed * GOLDEN) & MASK | 1
    for byte in key:
        h = ((h ^ byte) * factor) & MASK
    return h ^ (h >> 32)


def test_hashes_follow_the_seed() -> None:
    key = np.frombuffer(b"some bytes", np.uint8)
    for seed in (1, 2**63 + 11):
        assert int(store.hash_key(np.uint64(seed), key, 0, 10)) == hashed(seed, b"some bytes")
    slots = {trie.slot_of(np.int64(i), np.int64(1023)) for i in range(512)}
    assert min(slots) >= 0 and max(slots) < 1024 and len(slots) > 400


def test_a_trie_finds_the_tokens() -> None:
    ids = {VOCAB.tokens[i]: int(i) for i in np.flatnonzero(VOCAB.ordinary)}
    text = np.frombuffer(bytearray(b"abcab dcc xab"), np.uint8)
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            known = trie.find_token(VOCAB.trie, text, start, end)
            assert known == ids.get(text[start:end].tobytes(), -1)
    joined = {a * 256 + b for token in ids for a, b in pairwise(token)}
    assert set(np.flatnonzero(VOCAB.trie.joined).tolist()) == joined
    for a in range(256):
        for b in range(256):
            one = VOCAB.trie.first[a]
            child = trie.child(VOCAB.trie, np.int64(one), b) if one >= 0 else -1
            assert VOCAB.trie.second[a * 256 + b] == child


def test_a_trie_of_long_tokens_fits_its_nodes() -> None:
    vocab = toy([b"a", b"b", *(b"a" * 60 + bytes([98 + i]) for i in range(20))])
    text = np.frombuffer(bytearray(b"a" * 60 + b"d"), np.uint8)
    assert trie.find_token(vocab.trie, text, 0, 61) == 4
    assert (vocab.trie.entries >= 0).sum() == 60 + 20 + 1
    assert len(vocab.trie.entries) == 128


def test_rows_are_surveyed_spelled_split_and_joined() -> None:
    vocab = toy([b"a", b"bc"], special=[b"<s>"])
    values, offsets = np.array([0, 2, 1, 1, 2, 0], np.int32), np.array([0, 4, 4, 6])
    sizes = np.empty(4, np.int64)
    result: Any = batch.survey(values, offsets, vocab.readable, vocab.token_offsets, sizes)
    assert result == (-1, True)
    assert sizes.tolist() == [0, 8, 8, 12]
    bad: Any = batch.survey(
        np.array([0, 3], np.int32), np.array([0, 2]), vocab.readable, vocab.token_offsets,
        np.empty(2, np.int64),
    )  # fmt: skip
    assert bad[0] == 1
    fixed = values == 2
    texts = batch.split_at_fixed(offsets, fixed)
    assert texts.tolist() == [[0, 0, 0, 1], [0, 1, 2, 4], [2, 0, 5, 6]]
    ids, ends = batch.gather(values, texts)
    assert (ids.tolist(), ends.tolist()) == ([0, 1, 1, 0], [0, 1, 3, 4])
    drawn, drawn_offsets = np.array([0, 1, 0], np.int32), np.array([0, 1, 2, 3])
    out, out_offsets = batch.reassemble(values, offsets, fixed, texts, 1, drawn, drawn_offsets)
    assert out.tolist() == [0, 2, 1, 2, 0]
    assert out_offsets.tolist() == [0, 3, 3, 5]
    rows = batch.Batch(ids, ends, np.arange(3), np.zeros(3, np.int64), np.uint64(0),
                       np.int64(0), np.int64(1))  # fmt: skip
    spelled = batch.spelled(rows, vocab.token_bytes, vocab.token_offsets)
    assert spelled.values.tobytes() == b"abcbca"
    assert spelled.offsets.tolist() == [0, 1, 5, 6]


def test_splits_and_distance() -> None:
    paths = lattice.tokenizations(VOCAB, b"abcab d")
    for old in paths[:6]:
        drawn = rt.Ragged.from_rows([list(path) for path in paths])
        result = measure(VOCAB, [list(old)], drawn)
        ends = {e for _, e, _ in lattice.spans(VOCAB, old)}
        assert result.distance.tolist() == [lattice.distance(VOCAB, old, u) for u in paths]
        assert result.splits.tolist() == [
            len({e for _, e, _ in lattice.spans(VOCAB, u)} - ends) for u in paths
        ]
        assert rt.distance(VOCAB, old, paths[0]) == lattice.distance(VOCAB, old, paths[0])
    for row in ([0, 1], [0], [5, 0], [1, 0, 2]):
        with pytest.raises(rt.RobustokError, match="drawn row 1 does not spell"):
            measure(VOCAB, [[0], [1, 2]], [[0], row])


def test_segments_are_decoded_compared_and_repaired() -> None:
    given = np.array([5, 2, 9, 0, 1, 2, 9, 4], np.int32)
    segments = kernels.Segments(given, np.array([0, 3]), np.array([2, 6]))
    text, offsets = np.empty(8, np.uint8), np.empty(3, np.int64)
    kernels.decode(segments, VOCAB.token_bytes, VOCAB.token_offsets, text, offsets)
    assert text.tobytes() == b"abc\0abc\0" and offsets.tolist() == [0, 4, 8]
    canonical = kernels.CanonicalIds(
        np.array([7, 0, 6], np.int32), np.array([0, 1, 3]), np.array([True, False])
    )
    comparison = kernels.Comparison(
        np.ones(8, np.bool_), np.zeros(3, np.bool_), np.zeros(2, np.int64), np.zeros(2, np.int64)
    )
    kernels.compare_segments(segments, canonical, VOCAB.token_offsets, comparison)
    assert comparison.distance.tolist() == [2, 2] and comparison.splits.tolist() == [1, 0]
    assert comparison.matches.tolist() == [False, False, True, True, False, False, True, True]
    assert comparison.canonical_matches.tolist() == [False, True, False]
    repaired = kernels.Repaired(np.empty(6, np.int32), np.empty(6, np.bool_), np.empty(3, np.int64))
    kernels.join(segments, np.array([0, 6, 8]), canonical, comparison.canonical_matches, repaired)
    assert repaired.ids.tolist() == [7, 9, 0, 6, 9, 4]
    assert repaired.offsets.tolist() == [0, 4, 6]


def test_segments_that_end_alike() -> None:
    given = np.array([0, 1, 2], np.int32)
    segments = kernels.Segments(given, np.array([0]), np.array([3]))
    canonical = kernels.CanonicalIds(np.array([2], np.int32), np.array([0, 1]), np.array([False]))
    comparison = kernels.Comparison(
        np.ones(3, np.bool_), np.zeros(1, np.bool_), np.zeros(1, np.int64), np.zeros(1, np.int64)
    )
    kernels.compare_segments(segments, canonical, VOCAB.token_offsets, comparison)
    assert comparison.matches.tolist() == [False, False, True]


def test_pre_tokens_are_the_library_s() -> None:
    text = "it's 12 naïve 日本 👩 x\n\n y".encode() + b"\xff\xe6\x97\xed\xa0\x80\xf4\x90\x80\x80 a"
    edges = np.array([0, 4, len(text) - 5, len(text)])
    whole = np.array([True, False, False])
    tokenizer = PreTokenizer(byte_level(None).data)
    ends = tokenizer.cut(np.frombuffer(bytearray(text), np.uint8), edges, whole)
    expected = tokenizer._by_library(text, edges.tolist(), whole.tolist())
    assert ends.tolist() == expected.tolist()


def test_a_text_that_the_pattern_does_not_cover_is_left_to_the_library() -> None:
    tokenizer = PreTokenizer(byte_level(r"[a-f]+").data)
    ends = tokenizer.cut(np.frombuffer(bytearray(b"abxy"), np.uint8), np.array([0, 4]))
    assert ends.tolist() == tokenizer._by_library(b"abxy", [0, 4], [False]).tolist()
