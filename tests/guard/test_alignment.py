"""Alignments against a naive search for common boundaries, and values carried across."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.guard.tokenizers_of import LLAMA3, TEXT, byte_level, metaspace

import robustok as rt
from robustok import align
from robustok.guard.rollouts import Alignment


@pytest.fixture(scope="module", params=["byte-level", "metaspace"])
def vocab(request: pytest.FixtureRequest) -> rt.Vocabulary:
    return byte_level(LLAMA3) if request.param == "byte-level" else metaspace(prefix=True)


Blocks = list[tuple[list[int], list[int]]]


def blocks_of(aligned: Alignment) -> Blocks:
    a, b = (
        [part.tolist() for part in np.split(ids, edges[1:-1])]
        for ids, edges in ((aligned.ids_a, aligned.edges_a), (aligned.ids_b, aligned.edges_b))
    )
    return list(zip(a, b, strict=True))


def naive_blocks(vocab: rt.Vocabulary, a: np.ndarray, b: np.ndarray) -> Blocks:
    """Blocks by growing both sides until they spell the same, byte for byte."""
    blocks, i, j = [], 0, 0
    while i < len(a):
        left, right = [int(a[i])], [int(b[j])]
        i, j = i + 1, j + 1
        while True:
            text_left, text_right = vocab.decode_bytes(left), vocab.decode_bytes(right)
            if text_left == text_right:
                break
            if len(text_left) < len(text_right):
                left.append(int(a[i]))
                i += 1
            else:
                right.append(int(b[j]))
                j += 1
        blocks.append((left, right))
    assert j == len(b)
    return blocks


@pytest.mark.parametrize("spec", ["stochastok(alpha=0.3)", "uniform", "characters", "canonical"])
def test_blocks_are_the_finest_common_ones(vocab: rt.Vocabulary, spec: str) -> None:
    for number, text in enumerate(TEXT):
        canonical = vocab.encode(text)
        drawn = rt.sampler(spec, vocab).sample(canonical, seed=number)
        aligned = align(vocab, drawn, vocab, canonical)
        got = blocks_of(aligned)
        assert got == naive_blocks(vocab, drawn, canonical)
        assert aligned.same.tolist() == [left == right for left, right in got]
        assert (spec == "canonical") == aligned.same.all()


def test_sums_stay_and_masks_cover(vocab: rt.Vocabulary) -> None:
    canonical = vocab.encode(TEXT[0])
    drawn = rt.sampler("uniform", vocab).sample(canonical, seed=3)
    aligned = align(vocab, drawn, vocab, canonical)
    random = np.random.default_rng(0)
    log_probs, mask = -random.random(len(drawn)), random.random(len(drawn)) < 0.5
    carried = aligned.carry(log_probs)
    assert carried.shape == canonical.shape
    assert carried.sum() == pytest.approx(log_probs.sum())
    blocks = list(zip(aligned.edges_a, aligned.edges_a[1:], strict=False))
    assert aligned.block_values(log_probs) == pytest.approx(
        [log_probs[a:b].sum() for a, b in blocks]
    )
    assert aligned.block_values(log_probs, "mean") == pytest.approx(
        [log_probs[a:b].mean() for a, b in blocks]
    )
    assert aligned.block_values(mask, "any").tolist() == [mask[a:b].any() for a, b in blocks]
    assert aligned.block_values(mask, "all").tolist() == [mask[a:b].all() for a, b in blocks]
    sizes = np.diff(aligned.edges_b)
    for how in ("mean", "any", "all"):
        values = mask if how != "mean" else log_probs
        expected = np.repeat(aligned.block_values(values, how), sizes)
        assert aligned.carry(values, how) == pytest.approx(expected)
    back = aligned.reversed().reversed()
    assert back.carry(log_probs) == pytest.approx(carried)


@pytest.mark.parametrize("raw", [
    b"a\xf0\x9f\x98 b", b"\xff\xfe the \xc3", b"\xe2\x82\xe2\x82\xac", b"\xf0\x9f",
    b"x\x80y\xed\xa0",
])  # fmt: skip
def test_broken_utf8_aligns_with_what_a_decoder_writes(vocab: rt.Vocabulary, raw: bytes) -> None:
    sampled = np.concatenate([vocab.encode("the"), vocab.encode_continuation(raw + b" rest")])
    text = vocab.decode(sampled)
    assert "\ufffd" in text
    adds_space = vocab.decode(vocab.encode("a")) == " a"
    again = vocab.encode(text.removeprefix(" ") if adds_space else text)
    aligned = align(vocab, sampled, vocab, again)
    for left, right in blocks_of(aligned):
        assert left and right
        assert vocab.decode(left) == vocab.decode(right)
    assert len(aligned) > 1
    assert aligned.carry(np.ones(len(sampled))).sum() == len(sampled)


def test_special_ids_align_with_their_spelled_names() -> None:
    vocab = byte_level(LLAMA3)
    sampled = vocab.encode("the <|end|> rest", parse_special=True)
    spelled = vocab.encode("the <|end|> rest")
    aligned = align(vocab, sampled, vocab, spelled)
    assert len(sampled) < len(spelled)
    assert vocab.decode(sampled) == vocab.decode(spelled)
    assert not aligned.same.all()


def test_nothing_aligns_with_nothing(vocab: rt.Vocabulary) -> None:
    aligned = align(vocab, [], vocab, [])
    assert len(aligned) == 0
    assert aligned.carry([]).tolist() == []


# --- two tokenizers -----------------------------------------------------------------------------


def byte_blocks(a: list[bytes], b: list[bytes]) -> list[tuple[int, int]]:
    """The ends of the finest common blocks of two lists of tokens, by brute force."""
    ends_a = {sum(map(len, a[: i + 1])): i + 1 for i in range(len(a))}
    ends_b = {sum(map(len, b[: i + 1])): i + 1 for i in range(len(b))}
    return [(ends_a[end], ends_b[end]) for end in sorted(ends_a.keys() & ends_b.keys())]


@given(st.text(alphabet="thers ia.é😀\n", max_size=40), st.integers(0, 100))
def test_blocks_of_two_tokenizers_are_the_finest_common_ones(text: str, seed: int) -> None:
    vocab_a, vocab_b = byte_level(LLAMA3), byte_level(None)
    a = rt.sampler("uniform", vocab_a).sample(text, seed=seed)
    b = rt.sampler("stochastok(alpha=0.5)", vocab_b).sample(text, seed=seed)
    aligned = align(vocab_a, a, vocab_b, b)
    expected = byte_blocks([vocab_a.tokens[i] for i in a], [vocab_b.tokens[i] for i in b])
    assert list(zip(aligned.edges_a[1:], aligned.edges_b[1:], strict=True)) == expected
    values = np.random.default_rng(seed).random(len(a))
    assert aligned.carry(values).sum() == pytest.approx(values.sum())
    assert aligned.reversed().reversed().carry(values).tolist() == aligned.carry(values).tolist()


@pytest.mark.parametrize("text", ["the rest", " the", "  the", "", "t", "the é 😀", "   "])
def test_a_space_that_one_tokenizer_adds_is_left_out(text: str) -> None:
    with_space, without = metaspace(prefix=True), byte_level(None)
    a, b = with_space.encode(text), without.encode(text)
    for aligned in (align(with_space, a, without, b), align(without, b, with_space, a).reversed()):
        assert (aligned.edges_a[-1], aligned.edges_b[-1]) == (len(a), len(b))
        assert (np.diff(aligned.edges_a) > 0).all() and (np.diff(aligned.edges_b) > 0).all()
        assert aligned.carry(np.ones(len(a))).sum() == (len(a) if len(b) else 0)
    # A completion has no such space.
    begun = with_space.encode_continuation(text.encode())
    assert len(align(with_space, begun, without, b)) == len(align(without, b, with_space, begun))


def test_special_ids_that_mean_the_same() -> None:
    vocab_a, vocab_b = byte_level(LLAMA3), byte_level(None)
    end, other = (vocab_a.encode(n, parse_special=True)[0] for n in ("<|end|>", "<|im_start|>"))
    the, rest = vocab_a.encode("the").tolist(), vocab_a.encode("rest").tolist()
    target = vocab_b.encode("<|im_start|>", parse_special=True).tolist()
    a = [*the, end, *rest]
    b = [*vocab_b.encode("the").tolist(), *target, *vocab_b.encode("rest").tolist()]
    with pytest.raises(rt.RobustokError, match="spell different texts"):
        align(vocab_a, a, vocab_b, b)
    aligned = align(vocab_a, a, vocab_b, b, special={int(end): target[0]})
    assert len(aligned) >= 3
    assert len(align(vocab_a, [*the, other], vocab_b, [*vocab_b.encode("the").tolist(), *target]))


def test_mistakes_are_one_line(vocab: rt.Vocabulary) -> None:
    a = vocab.encode("the rest")
    with pytest.raises(rt.RobustokError, match=r"spell different texts from byte \d+ on"):
        align(vocab, a, vocab, vocab.encode("the nest"))
    with pytest.raises(rt.RobustokError, match="not in the vocabulary"):
        align(vocab, [10**6], vocab, a)
    aligned = align(vocab, a, vocab, a)
    with pytest.raises(rt.RobustokError, match=f"one number for each of the {len(a)} ids"):
        aligned.carry([1.0])
    for value in (np.nan, np.inf, -np.inf):
        for how in ("sum", "mean", "any", "all"):
            with pytest.raises(rt.RobustokError, match=r"number 1 is .*, not finite"):
                aligned.block_values([1.0, value, *range(len(a) - 2)], how)
    with pytest.raises(rt.RobustokError, match="unknown reduction 'summ': did you mean 'sum'"):
        aligned.carry(np.ones(len(a)), "summ")
    for how in (["sum"], {}, None):
        with pytest.raises(rt.RobustokError, match="unknown reduction"):
            aligned.carry(np.ones(len(a)), how)  # type: ignore[arg-type]
