"""Tokens that stand where the tokenizer puts them: twins, added and unknown ones, marks, bytes."""

from __future__ import annotations

import io
from typing import Any

import pytest
from tests.guard.tokenizers_of import METASPACE_DECODER, needs_normalized_contents
from tests.guard.tokenizers_of import metaspace_tokenizer as llama
from tests.oracles.sentencepiece import trained
from tests.tokenizer.small_tokenizers import (
    BYTE_LEVEL,
    BYTES,
    FALLBACK,
    LOWER,
    PREPEND,
    SPACED,
    SPACES,
    add,
    bpe,
    gpt2,
    has_gigatoken,
    t5,
    unigram,
)
from tests.tokenizer.test_canonical import checked

import robustok as rt
from robustok.errors import RobustokError
from robustok.tokenizer.data import USED_BYTES, byte_alphabet
from robustok.tokenizer.gigatoken import Strings


@pytest.mark.parametrize("content", ["▁", "▁a"])
@pytest.mark.parametrize("normalized", [False, True])
def test_bpe_dropout_is_refused_where_merges_need_an_added_token(
    content: str, normalized: bool
) -> None:
    tokenizer = bpe("a b ▁ ▁a ▁ab", "▁ a", "▁a b", norm=PREPEND)
    add(tokenizer, content, normalized=normalized)
    vocab = rt.Vocabulary.load(tokenizer)
    with pytest.raises(RobustokError, match=f"merges of the model need its token '▁*{content}'"):
        rt.BpeDropout(vocab, p=0.5)


@needs_normalized_contents
def test_an_added_token_that_is_a_word_stays_and_others_are_not_drawn_as_it() -> None:
    tokenizer = llama(prefix=True)
    tokenizer.add_tokens(["rest"])  # normalized: it is matched and decoded as "▁rest"
    vocab = checked(tokenizer, "the rest", "the rests")
    (i,) = vocab.data.plain_added
    assert vocab.tokens[i] == b" rest" and not vocab.ordinary[i] and vocab.readable[i]
    assert i in rt.Uniform(vocab).sample("the rest", seed=0)


def test_of_twins_the_one_that_the_model_can_see_is_in_the_vocabulary() -> None:
    names = [*BYTES, "a", " a", "▁", "▁a"]
    tokenizer = bpe(names, "▁ a", settings=FALLBACK, norm=SPACES, decoder=METASPACE_DECODER)
    vocab = checked(tokenizer, " a", "a a")
    assert vocab.ordinary[256:].tolist() == [True, False, True, True]
    draw = rt.BpeDropout(vocab, p=0.4)
    assert all(257 not in draw.sample(" a", seed=seed) for seed in range(9))


def test_the_twin_that_the_tokenizer_takes_is_in_the_vocabulary() -> None:
    names = [*sorted(byte_alphabet()), "ĠĠ", "  "]
    tokenizer = bpe(names, "Ġ Ġ", pre=BYTE_LEVEL, decoder=BYTE_LEVEL)
    add(tokenizer, "  ", normalized=True)
    vocab = checked(tokenizer, "  ", "a  b", "   a")
    assert vocab.ordinary[[256, 257]].tolist() == [False, True]
    assert {len(rt.StochasTok(vocab, alpha=1).sample("  ", seed=s)) for s in range(9)} == {2}


def test_a_batch_with_unknown_characters_is_drawn_as_each_text_alone() -> None:
    vocab = rt.Vocabulary.load(t5())
    uniform, texts = rt.Uniform(vocab), ["ab ab", "a🧿b", "", "b a", "🧿"]
    rows = uniform.sample_batch(texts, seed=1, draws=3, keys=[5, 4, 3, 2, 1])
    alone = [
        row.tolist()
        for key, text in zip([5, 4, 3, 2, 1], texts, strict=True)
        for row in uniform.sample_batch([text], seed=1, draws=3, keys=[key])
    ]
    assert [row.tolist() for row in rows] == alone


def test_white_space_as_suffix() -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on a mat and the dog ran to the cat"] * 20),
        model_writer=model, vocab_size=40, treat_whitespace_as_suffix=True, minloglevel=5,
        hard_vocab_limit=False, normalization_rule_name="identity",
    )  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    vocab = rt.Vocabulary.load(processor)
    for text in ("the cat", "a", "the  dog z"):
        ids = vocab.encode(text)
        assert ids.tolist() == processor.encode(text) == vocab.canonicalize(ids).tolist()
        assert rt.Guard(vocab).admit(ids).tolist() == ids.tolist()
        assert rt.Canonical(vocab).log_prob(ids) == 0.0


@pytest.mark.parametrize(
    ("options", "texts", "refused"),
    [
        ({"model_type": "word", "add_dummy_prefix": False}, ["ab  c", " a"], []),
        ({"model_type": "word"}, ["canal cab", "zz"], []),  # no token is a space alone
        ({"vocab_size": 300, "user_defined_symbols": ["▁▁"]}, ["a b", "a▁▁b"], ["▁a", "▁▁▁a"]),
    ],
)
def test_sentencepiece_models_whose_spaces_are_bytes_or_left_out(
    options: dict[str, Any], texts: list[str], refused: list[str]
) -> None:
    """The decoder leaves out the first "▁" of a text, or where spaces are removed, several."""
    settings = {"byte_fallback": True, "vocab_size": 400, "normalization_rule_name": "identity",
                "remove_extra_whitespaces": True}  # fmt: skip
    if not options.get("add_dummy_prefix", True):
        settings["remove_extra_whitespaces"] = False
    processor = trained(**settings | options)
    vocab = rt.Vocabulary.load(processor)
    for text in texts:
        ids = vocab.encode(text)
        assert ids.tolist() == processor.encode(text)
        assert rt.Guard(vocab).admit(ids).tolist() == ids.tolist()
        for spec in ("characters", "uniform", "stochastok(alpha=1)"):
            for seed in range(4):
                row = rt.sampler(spec, vocab).sample(ids, seed=seed)
                assert row.tolist() == rt.sampler(spec, vocab).sample(text, seed=seed).tolist()
                assert processor.decode(row.tolist()) == processor.decode(ids.tolist())
    for text in refused:
        with pytest.raises(RobustokError, match="cannot be tokenized exactly"):
            vocab.encode(text)


@pytest.mark.parametrize("name", ["Ġab", "©Ã"])
def test_a_placed_token_that_the_model_reads_without_its_name(name: str) -> None:
    """Draws from a text leave it in its place, as those from the ids."""
    names, merges = [*byte_alphabet(), "Ġa", "Ġab", "©Ã"], ("Ġ a", "Ġa b", "© Ã")
    tokenizer = add(bpe(names, *merges, pre=SPACED, decoder=BYTE_LEVEL), name)
    vocab = checked(tokenizer, "b ab", "éé ab")
    uniform, text = rt.Uniform(vocab), "b ab éé"
    ids = vocab.encode(text)
    assert vocab.is_placed[ids].any()
    for seed in range(8):
        drawn = uniform.sample(ids, seed=seed)
        assert drawn.tolist() == uniform.sample(text, seed=seed).tolist()


@pytest.mark.parametrize("prefix", [True, False])
def test_bytes_that_are_no_text_have_canonical_ids(prefix: bool) -> None:
    """A "▁" behind such a byte is a space, as in a text."""
    vocab = rt.Vocabulary.load(llama(prefix=prefix))
    for raw in (b"a\x80b \xff", b"\xe6\x97 a", b"\xff", b"\x80 a" + "▁▁b".encode()):
        ids = vocab.encode(raw)
        spelled = vocab.decode_bytes(ids).removeprefix(b" " if raw[:1] == b"a" else b"")
        assert spelled == raw.replace("▁".encode(), b" ")
        assert rt.Guard(vocab).admit(ids).tolist() == ids.tolist()
        assert vocab.encode_batch([raw, "a"])[0].tolist() == ids.tolist()


def test_continuations_are_normalized_as_texts_are() -> None:
    tokens, merges = [*"▁abAB0\n", "▁a", "▁ab", "bb"], ("▁ a", "▁a b", "b b")
    tokenizer = bpe(tokens, *merges, norm=[LOWER, PREPEND, SPACES], decoder=METASPACE_DECODER)
    vocab = rt.Vocabulary.load(tokenizer)
    rows = vocab.encode_continuations([" AB", "Bb", "▁ab", " ab", "bb"])
    texts = [[vocab.tokens[i].decode() for i in row] for row in rows]
    assert texts == [[" ab"], ["bb"], [" ab"], [" ab"], ["bb"]]
    assert tokenizer.encode("0 AB").ids[2:] == rows[0].tolist()


@pytest.mark.parametrize("left_out", [frozenset(range(256)) - USED_BYTES, frozenset([0xFF])])
def test_bytes_that_utf8_never_uses_need_no_token(left_out: frozenset[int]) -> None:
    letters = [c for c, byte in byte_alphabet().items() if byte not in left_out]
    names = [*letters, "ab", "‼"]
    tokenizer = bpe(names, "a b", pre=BYTE_LEVEL, decoder=BYTE_LEVEL)
    read = checked(tokenizer, "ab é 日 \U0010ffff \x00", "ab‼")
    assert has_gigatoken(read)
    assert not read.ordinary[names.index("‼")]  # outside the alphabet, where no text gives it
    assert read.tokens[names.index("‼")] == "‼".encode()


def test_many_added_tokens_are_searched_by_one_expression() -> None:
    contents = [f"<|{i / 50:.2f}|>" for i in range(1501)]
    search = Strings(contents)
    assert search.split("a<|29.98|>") == ["a", "<|29.98|>", ""]
    assert search.split("<|30.02|> 0.00|> <|") == ["<|30.02|> 0.00|> <|"]
    tokenizer = add(gpt2(), *contents)
    assert has_gigatoken(checked(tokenizer, "ab <|0.00|> b", "<|30.00|>"))


def test_scores_that_leave_no_precision_are_refused_and_small_ones_do_not_underflow() -> None:
    def of(score: float) -> rt.Sampler:
        scores = [("<unk>", 0.0), ("a", score), ("b", -2.0), ("ab", -3.0)]
        return rt.sampler("unigram", rt.Vocabulary.load(unigram(scores)))

    assert of(-2000.0).log_prob([1, 2]) == pytest.approx(-1999.0)
    with pytest.raises(RobustokError, match=r"the token 'a' has a score of -1e\+300"):
        of(-1e300).sample("ab", seed=0)
