"""Alignments against a naive search for common boundaries, and values carried across."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.guard.tokenizers_of import LLAMA3, TEXT, byte_level, metaspace

import robustok as rt
from robustok import align
from robustok.guard.rollouts import Alignment, prefix_of


@pytest.fixture(scope="module", params=["byte-level", "metaspace"])
def vocab(request: pytest.FixtureRequest) -> rt.Vocabulary:
    return byte_level(LLAMA3) if request.param == "byte-level" else metaspace(prefix=True)


def byte_blocks(a: list[bytes], b: list[bytes]) -> list[tuple[int, int]]:
    """The ends of the finest common blocks of two lists of tokens, by brute force."""
    ends_a = {sum(map(len, a[: i + 1])): i + 1 for i in range(len(a))}
    ends_b = {sum(map(len, b[: i + 1])): i + 1 for i in range(len(b))}
    return [(ends_a[end], ends_b[end]) for end in sorted(ends_a.keys() & ends_b.keys())]


def ends_of(aligned: Alignment) -> list[tuple[int, int]]:
    return list(zip(aligned.edges_a[1:], aligned.edges_b[1:], strict=True))


@pytest.mark.parametrize("spec", ["stochastok(alpha=0.3)", "uniform", "characters", "canonical"])
def test_blocks_are_the_finest_common_ones(vocab: rt.Vocabulary, spec: str) -> None:
    for number, text in enumerate(TEXT):
        canonical = vocab.encode(text)
        drawn = rt.sampler(spec, vocab).sample(canonical, seed=number)
        aligned = align(vocab, drawn, vocab, canonical)
        expected = byte_blocks(*([vocab.tokens[i] for i in ids] for ids in (drawn, canonical)))
        assert ends_of(aligned) == expected
        same = [
            drawn[a:c].tolist() == canonical[b:d].tolist()
            for (a, b), (c, d) in itertools.pairwise([(0, 0), *expected])
        ]
        assert aligned.same.tolist() == same
        assert (spec == "canonical") == aligned.same.all()
    empty = align(vocab, [], vocab, [])
    assert (len(empty), empty.carry([]).tolist()) == (0, [])


def test_sums_stay_and_masks_cover(vocab: rt.Vocabulary) -> None:
    canonical = vocab.encode(TEXT[0])
    drawn = rt.sampler("uniform", vocab).sample(canonical, seed=3)
    aligned = align(vocab, drawn, vocab, canonical)
    random = np.random.default_rng(0)
    log_probs, mask = -random.random(len(drawn)), random.random(len(drawn)) < 0.5
    carried = aligned.carry(log_probs)
    assert carried.shape == canonical.shape
    assert carried.sum() == pytest.approx(log_probs.sum())
    blocks = np.split(np.arange(len(drawn)), aligned.edges_a[1:-1])
    for how, reduce in (("sum", np.sum), ("mean", np.mean), ("any", np.any), ("all", np.all)):
        values = mask if how in ("any", "all") else log_probs
        expected = [reduce(values[block]) for block in blocks]
        assert aligned.block_values(values, how) == pytest.approx(expected)
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
    (rest,) = vocab.encode_continuations_unchecked([raw + b" rest"])
    sampled = np.concatenate([vocab.encode("the"), rest])
    text = vocab.decode(sampled)
    assert "\ufffd" in text
    adds_space = vocab.decode(vocab.encode("a")) == " a"
    again = vocab.encode(text.removeprefix(" ") if adds_space else text)
    aligned = align(vocab, sampled, vocab, again)
    for (a, b), (c, d) in itertools.pairwise([(0, 0), *ends_of(aligned)]):
        assert a < c and b < d and vocab.decode(sampled[a:c]) == vocab.decode(again[b:d])
    assert len(aligned) > 1
    assert aligned.carry(np.ones(len(sampled))).sum() == len(sampled)


@given(st.text(alphabet="thers ia.é😀\n", max_size=40), st.integers(0, 100))
def test_blocks_of_two_tokenizers_are_the_finest_common_ones(text: str, seed: int) -> None:
    vocab_a, vocab_b = byte_level(LLAMA3), byte_level(None)
    a = rt.sampler("uniform", vocab_a).sample(text, seed=seed)
    b = rt.sampler("stochastok(alpha=0.5)", vocab_b).sample(text, seed=seed)
    aligned = align(vocab_a, a, vocab_b, b)
    expected = byte_blocks([vocab_a.tokens[i] for i in a], [vocab_b.tokens[i] for i in b])
    assert ends_of(aligned) == expected
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
    begun = with_space.encode_continuations_unchecked([text.encode()])[0]
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
    wrong: Any
    for wrong in ({int(end): vocab_b.size}, {int(end): -1}, {vocab_a.size: target[0]}, {"a": 1}):
        with pytest.raises(rt.RobustokError):
            align(vocab_a, a, vocab_b, b, special=wrong)
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


def test_the_first_difference_of_two_steps_is_explained() -> None:
    vocab = byte_level(LLAMA3)

    def ids(*parts: str) -> list[int]:
        return [i for part in parts for i in vocab.encode(part).tolist()]

    assert prefix_of(vocab, ids("the"), ids("the", " rest"))
    assert prefix_of(vocab, [], ids("the"))
    split = prefix_of(vocab, ids("r", "e", "s"), ids("re", "s", " the"))
    assert (split.cause, split.shared) == ("re-encoded", 0)
    assert split.explanation.startswith("ids 0 to 1 'r|e' became 're'")
    merged = prefix_of(vocab, ids("s", " t"), ids("s", " the"))
    assert (merged.cause, merged.shared) == ("merged", 1)
    assert "merged with the text that follows" in merged.explanation
    changed = prefix_of(vocab, ids("the", "x"), ids("the", "y", "z"))
    assert (changed.cause, changed.shared) == ("text-changed", 1)
    broken = [*ids("the"), *vocab.encode(b"\xf0\x9f").tolist()]
    decoded = prefix_of(vocab, broken, ids("the", "\ufffd", " rest"))
    assert (decoded.cause, decoded.shared) == ("not-utf8", 1)
    assert prefix_of(vocab, ids("the", "x"), ids("the")).cause == "shortened"
    assert all("\n" not in c.explanation for c in (split, merged, changed, decoded))
