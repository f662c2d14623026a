"""BPE-dropout by blocks, and from strings without ids, has the draws of one queue of merges."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.oracles import dropout
from tests.oracles.chi_square import assert_distribution
from tests.oracles.data import real
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

import robustok as rt
from robustok.kernels.trie import find_token
from robustok.samplers import bpe_dropout

LETTERS = "ab é世😀"
ONE_QUEUE = 1 << 60


def sentencepiece_like(merges: list[tuple[str, str]], prefix: bool = True) -> rt.Vocabulary:
    """A BPE of characters with byte fallback and no pre-tokens, as that of Llama 2."""
    names = ["<unk>", *(f"<0x{b:02X}>" for b in range(256)), *"ab▁é世"]
    names += dict.fromkeys(left + right for left, right in merges)
    ids = {name: i for i, name in enumerate(dict.fromkeys(names))}
    built = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", byte_fallback=True))
    spaces = [normalizers.Replace(" ", "▁")]
    built.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), *spaces] if prefix else spaces
    )
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    built.decoder = decoders.Sequence(parts)
    return rt.Vocabulary.load(built)


@st.composite
def merge_lists(draw: st.DrawFn) -> list[tuple[str, str]]:
    """Merges of tokens that exist, in any order: a part may come after what it is part of."""
    tokens = list("ab▁é世")
    merges: list[tuple[str, str]] = []
    for _ in range(draw(st.integers(1, 12))):
        left, right = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if (left, right) not in merges and len(left + right) <= 6:
            merges.append((left, right))
            tokens.append(left + right)
    return draw(st.permutations(merges))


def drawn(vocab: rt.Vocabulary, texts: object, p: float, by_blocks: int) -> rt.Ragged:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bpe_dropout, "_BY_BLOCKS", by_blocks)
        return rt.BpeDropout(vocab, p=p).sample_batch(texts, seed=5, draws=8)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(
    merge_lists(), st.lists(st.text(LETTERS, max_size=40), max_size=3), st.floats(0.01, 1),
    st.booleans(),
)  # fmt: skip
@example([("a", "a"), ("aa", "aa"), ("aa", "a")], ["a" * 60 + " " + "aa b" * 9], 0.3, True)
@example([("a", "b")], ["", "a", "ab"], 0.5, False)
def test_blocks_have_the_draws_of_one_queue(
    merges: list[tuple[str, str]], texts: list[str], p: float, prefix: bool
) -> None:
    vocab = sentencepiece_like(merges, prefix)
    ids = vocab.encode_batch(texts)
    expected = drawn(vocab, ids, p, ONE_QUEUE)
    assert drawn(vocab, ids, p, 1) == expected
    assert drawn(vocab, texts, p, 1) == expected
    assert drawn(vocab, texts, p, ONE_QUEUE) == expected


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("text", ["abab", "aab ba"])
def test_blocks_follow_the_distribution(text: str, p: float, monkeypatch) -> None:
    monkeypatch.setattr(bpe_dropout, "_BY_BLOCKS", 1)
    pairs = [("a", "b"), ("b", "a"), ("a", "a"), ("ab", "a"), ("b", "ab"), ("ab", "ab")]
    vocab = sentencepiece_like(pairs, prefix=False)
    ids = {vocab.decode([i]): i for i in range(1, vocab.size) if vocab.tokens[i]}
    merges = {
        (ids[left], ids[right]): (rank, ids[left + right])
        for rank, (left, right) in enumerate(pairs)
    }
    symbols = tuple(ids[letter] for letter in text)
    distribution = dropout.provilkov(merges, symbols, p)
    rows = rt.BpeDropout(vocab, p=p).sample_batch([text], seed=2, draws=5000)
    assert_distribution(rows, {path: q for path, q in distribution.items() if q > 1e-12})


def test_a_text_with_an_added_token_is_drawn_from_its_ids() -> None:
    source = sentencepiece_like([("a", "b")], prefix=False).data.source
    source.add_tokens([AddedToken("bé", normalized=False)])
    vocab = rt.Vocabulary.load(source)
    texts = ["ab abéab", "ab", "bé", "b é", ""]
    scheme = rt.BpeDropout(vocab, p=0.5)
    rows = scheme.sample_batch(texts, seed=1, draws=50)
    assert rows == scheme.sample_batch(vocab.encode_batch(texts), seed=1, draws=50)
    added = vocab.tokens.index("bé".encode())
    assert all((np.array(row) == added).sum() == 1 for row in list(rows)[:50])


def test_characters_have_the_ids_of_the_trie() -> None:
    vocab = sentencepiece_like([("a", "b"), ("é", "世")])
    character = rt.BpeDropout(vocab, p=0.5)._merges().character
    for code, known in enumerate(character.tolist()):
        if known >= 0 or code in (0x41, 0x7F, 0x80, 0x4E16):
            spelled = np.frombuffer(bytearray(chr(code).encode("utf8", "surrogatepass")), np.uint8)
            assert find_token(vocab.trie, spelled, 0, len(spelled)) == known


@pytest.mark.parametrize("prefix", [True, False])
def test_normalization_without_the_library_is_that_of_the_library(prefix: bool) -> None:
    encoder = sentencepiece_like([("a", "b")], prefix).data.encoder
    assert encoder.first_space == (" " if prefix else "")  # type: ignore[attr-defined]
    for parts in product(["", "a", " ", "▁", "  ", "\n", "世"], repeat=3):
        text = "".join(parts)
        assert encoder.normalize(text) == encoder._normalized(text).replace("▁", " ")  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["llama2", "internlm2"])
def test_real_tokenizers_without_pre_tokens(name: str) -> None:
    vocab = real(name)
    texts = ["def f(x):\n    return x  # 世界\n" * 30, "the cat sat on the mat. " * 40, "x" * 900,
             "日本語 и русский — ——Ｅ " * 20, " " * 700, "the", ""]  # fmt: skip
    ids = vocab.encode_batch(texts)
    for p in (0.1, 0.5):
        expected = drawn(vocab, ids, p, ONE_QUEUE)
        assert drawn(vocab, ids, p, 512) == expected
        assert drawn(vocab, texts, p, 512) == expected
