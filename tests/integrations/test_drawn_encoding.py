"""Drawn encodings: every attribute and method is that of `tokenizers.Encoding`."""

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from tests.integrations.conftest import TEXTS
from tests.integrations.test_stochastic import byte_level, metaspace, result_of, texts
from tests.oracles.data import data_path
from tokenizers import AddedToken, Tokenizer, processors

import robustok as rt
from robustok.errors import RobustokError


def processed(tokenizer: Tokenizer, processor: Any) -> Tokenizer:
    tokenizer.post_processor = processor
    return tokenizer


def ends() -> tuple[tuple[str, int], tuple[str, int]]:
    tokenizer = byte_level()
    begin, end = ((name, tokenizer.token_to_id(name) or 0) for name in ("<s>", "</s>"))
    return begin, end


def bert() -> Tokenizer:
    return processed(byte_level(), processors.BertProcessing(*ends()))


def roberta(**options: bool) -> Tokenizer:
    return processed(byte_level(), processors.RobertaProcessing(*ends(), **options))


def shared_type() -> Tokenizer:
    """Both sequences of a pair have type 0, windows keep theirs."""
    tokenizer = metaspace()
    begin = tokenizer.token_to_id("<s>")
    template = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", begin)])
    return processed(tokenizer, template)


TOKENIZERS = {
    "byte-level": byte_level(),
    "untrimmed": byte_level(trim_offsets=False),
    "prefix": byte_level(prefix=True),
    "no processor": processed(byte_level(), None),
    "bert": bert(),
    "roberta": roberta(),
    "roberta, prefix": roberta(add_prefix_space=False),
    "metaspace": metaspace(),
    "shared type": shared_type(),
}
truncations = st.none() | st.fixed_dictionaries({
    "max_length": st.integers(0, 12),
    "stride": st.integers(0, 2),
    "strategy": st.sampled_from(["longest_first", "only_first", "only_second"]),
    "direction": st.sampled_from(["left", "right"]),
})  # fmt: skip
paddings = st.none() | st.fixed_dictionaries({
    "length": st.sampled_from([None, 8]),
    "pad_to_multiple_of": st.sampled_from([None, 4]),
    "direction": st.sampled_from(["left", "right"]),
    "pad_id": st.just(3),
    "pad_type_id": st.just(2),
    "pad_token": st.just("<pad>"),
})  # fmt: skip


def everything(encoding: Any) -> dict[str, Any]:
    """All attributes, the answers about all places, and the same of all windows."""
    names = (
        "ids", "type_ids", "tokens", "word_ids", "offsets", "special_tokens_mask",
        "attention_mask", "sequence_ids", "n_sequences",
    )  # fmt: skip
    known = {name: getattr(encoding, name) for name in names}
    for method in ("token_to_sequence", "token_to_chars", "token_to_word"):
        known[method] = [getattr(encoding, method)(i) for i in range(len(encoding) + 2)]
    for method in ("char_to_token", "char_to_word", "word_to_tokens", "word_to_chars"):
        known[method] = [getattr(encoding, method)(i, j) for i in range(20) for j in (0, 1)]
    known["overflowing"] = [everything(one) for one in encoding.overflowing]
    return known | {"size": len(encoding), "repr": repr(encoding)}


def outcome(call: Any) -> Any:
    """The encodings of a call, or the text of its error."""
    result = result_of(call)
    return result if isinstance(result, str) else [everything(one) for one in result]


@settings(max_examples=40)
@given(st.data(), st.sampled_from(sorted(TOKENIZERS)))
def test_canonical_encodings_are_those_of_the_library(data, name):
    plain = Tokenizer.from_str(TOKENIZERS[name].to_str())
    truncation, padding = data.draw(truncations), data.draw(paddings)
    if truncation:
        try:
            plain.enable_truncation(**truncation)
        except ValueError:  # fewer tokens than special tokens and stride
            reject()
    if padding:
        plain.enable_padding(**padding)
    same = rt.stochastic(plain, "canonical", seed=0)
    if data.draw(st.booleans()):  # the fast encoder, whose texts the library encodes later
        same.draws.vocab.gigatoken.load()
    pairs = st.tuples(texts, texts)
    batch = data.draw(st.lists(data.draw(st.sampled_from([texts, pairs])), min_size=1, max_size=3))
    adds = data.draw(st.booleans())
    expected = outcome(lambda: plain.encode_batch(batch, add_special_tokens=adds))
    assert outcome(lambda: same.encode_batch(batch, add_special_tokens=adds)) == expected
    one = batch[0] if isinstance(batch[0], tuple) else (batch[0],)
    expected = outcome(lambda: [plain.encode(*one, add_special_tokens=adds)])
    assert outcome(lambda: [same.encode(*one, add_special_tokens=adds)]) == expected


@pytest.mark.parametrize("text", ["  [x]", " [x]", "   [x] ", "a  [x]", "  ", " "])
@pytest.mark.parametrize("name", ["byte-level", "untrimmed", "prefix"])
def test_several_spaces_at_the_start_are_no_prefix(name: str, text: str) -> None:
    plain = TOKENIZERS[name]
    same = rt.stochastic(plain, "canonical", seed=0)
    assert everything(same.encode(text)) == everything(plain.encode(text))


@settings(max_examples=25)
@given(st.data(), st.sampled_from(sorted(TOKENIZERS)))
def test_changes_are_those_of_the_library(data, name):
    plain = TOKENIZERS[name]
    same = rt.stochastic(plain, "canonical", seed=0)
    for text in data.draw(st.lists(texts, min_size=1, max_size=3)):
        theirs, ours = plain.encode(text), same.encode(text)
        for method in data.draw(st.lists(st.sampled_from(["truncate", "pad"]), max_size=3)):
            size, direction = (
                data.draw(st.integers(0, 9)),
                data.draw(st.sampled_from(["left", "right"])),
            )
            for one in (theirs, ours):
                if method == "truncate":
                    one.truncate(size, stride=min(1, max(size - 1, 0)), direction=direction)
                else:
                    one.pad(size, direction=direction, pad_id=1)
        assert everything(ours) == everything(theirs)


@pytest.mark.parametrize("name", ["gpt2", "llama3", "llama2", "qwen3", "internlm2"])
def test_real_tokenizers(name):
    plain = Tokenizer.from_file(str(data_path("tokenizers", name, "tokenizer.json")))
    same = rt.stochastic(plain, "canonical", seed=0)
    batch = [*TEXTS, "", " é\u0301 😀\n\n", "\u3000x"]
    for _ in range(2):
        for given_ in (batch, list(zip(batch, batch[::-1], strict=True))):
            theirs, ours = plain.encode_batch(given_), same.encode_batch(given_)
            for a, b in zip(theirs, ours, strict=True):
                assert everything(b) == everything(a)
        same.draws.vocab.gigatoken.load()


def test_copies_and_pickles_are_equal_and_hold_no_tokenizer():
    drawing = rt.stochastic(byte_level(), "uniform", seed=0)
    drawing.draws.vocab.gigatoken.load()
    drawing.enable_truncation(9, stride=2)
    encoding = drawing.encode_batch(TEXTS)[3]
    for twin in (
        copy.copy(encoding),
        copy.deepcopy(encoding),
        pickle.loads(pickle.dumps(encoding)),
    ):
        assert everything(twin) == everything(encoding)
    assert len(pickle.dumps(encoding)) < 20_000


def test_lists_of_a_tokenizer_that_has_changed_are_refused():
    plain = byte_level()
    drawing = rt.stochastic(plain, "uniform", seed=0)
    drawing.draws.vocab.gigatoken.load()
    encoding = drawing.encode("the on and")
    assert encoding.ids
    plain.model.dropout = 1.0  # of the shared model
    with pytest.raises(RobustokError, match="has changed since"):
        _ = encoding.tokens


def test_a_special_token_in_a_normalized_text_is_seen_with_the_fast_encoder():
    plain = byte_level()
    plain.add_special_tokens([AddedToken("[N]", normalized=True)])
    drawing = rt.stochastic(plain, "canonical", seed=0)
    drawing.draws.vocab.gigatoken.load()
    for text in ("the [N] on", "<s>the", "the[x]", "the [x]on"):
        assert drawing.encode(text).ids == plain.encode(text).ids
        drawing.encode_special_tokens = True
        assert drawing.encode(text).ids == plain.encode(text).ids
        drawing.encode_special_tokens = False
