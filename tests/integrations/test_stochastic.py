"""Stochastic tokenizers: every field of the wrapped one, and draws that depend on the text."""

import copy
import itertools
import multiprocessing
import pickle
from typing import Any

import numpy as np
import pytest
import sentencepiece
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.guard.tokenizers_of import metaspace_tokenizer
from tests.integrations.conftest import CHATML, TEXTS
from tokenizers import (
    AddedToken,
    ByteLevelBPETokenizer,
    Tokenizer,
    models,
    pre_tokenizers,
    processors,
)
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import robustok as rt
from robustok.errors import RobustokError
from robustok.integrations.stochastic.switch import Switch, row_key
from robustok.models import train_tokenizer

CHAT = [
    {"role": "system", "content": f"{TEXTS[0]}"},
    {"role": "user", "content": f" {TEXTS[1]}\n"},
    {"role": "assistant", "content": TEXTS[2]},
    {"role": "user", "content": TEXTS[3]},
]


def byte_level(trim_offsets: bool = True, prefix: bool = False) -> Tokenizer:
    tokenizer = train_tokenizer([*TEXTS, "system user assistant\n\n"] * 2, 400)
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>", "<s>", "</s>"])
    tokenizer.add_tokens([AddedToken("[x]", lstrip=True)])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    begin, end = tokenizer.token_to_id("<s>"), tokenizer.token_to_id("</s>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=trim_offsets),
        processors.TemplateProcessing(
            "<s> $A </s>", "<s> $A </s> $B:1 </s>:1", [("<s>", begin), ("</s>", end)]
        ),
    ])  # fmt: skip
    return tokenizer


def metaspace() -> Tokenizer:
    """A SentencePiece-style BPE as that of Llama 2, whose pairs have two types."""
    tokenizer = metaspace_tokenizer(prefix=True)
    tokenizer.post_processor = processors.TemplateProcessing(
        "<s> $A", "<s> $A <s>:1 $B:1", [("<s>", tokenizer.token_to_id("<s>"))]
    )
    return tokenizer


TOKENIZERS = {
    "byte-level": byte_level(),
    "untrimmed": byte_level(trim_offsets=False),
    "prefix": byte_level(prefix=True),
    "metaspace": metaspace(),
}


def at_dropout_1(tokenizer: Tokenizer) -> Tokenizer:
    finest = Tokenizer.from_str(tokenizer.to_str())
    finest.model.dropout = 1.0
    return finest


FINEST = {name: at_dropout_1(tokenizer) for name, tokenizer in TOKENIZERS.items()}


def pretrained(tokenizer: Tokenizer, **options: Any) -> Any:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<s>", chat_template=CHATML, **options
    )


PRETRAINED = {name: pretrained(tokenizer) for name, tokenizer in TOKENIZERS.items()}
SAME = {name: rt.stochastic(t, "canonical", seed=0) for name, t in PRETRAINED.items()}

letters = st.sampled_from(
    [*"the and on", "é", "e\u0301", "😀", "\n", "<s>", "[x]", "▁", "ｘ", "\t"]
)
texts = st.lists(letters, max_size=30).map("".join)
calls = st.fixed_dictionaries({
    "padding": st.sampled_from([False, True, "longest", "max_length"]),
    "truncation": st.sampled_from([False, True, "longest_first", "only_first"]),
    "max_length": st.integers(6, 40),
    "add_special_tokens": st.booleans(),
    "return_tensors": st.sampled_from([None, None, "np", "pt"]),
    "pad_to_multiple_of": st.sampled_from([None, 8]),
    "padding_side": st.sampled_from([None, "left", "right"]),
    "return_overflowing_tokens": st.booleans(),
    "stride": st.sampled_from([0, 2]),
    "return_length": st.booleans(),
    "split_special_tokens": st.sampled_from([None, True, False]),
})  # fmt: skip
every_field = {
    "return_offsets_mapping": True,
    "return_special_tokens_mask": True,
    "return_token_type_ids": True,
    "return_attention_mask": True,
}


def result_of(call: Any) -> Any:
    """What a call gives, or the text of its error, which is a RobustokError here."""
    try:
        return call()
    except BaseException as error:
        # Rust panics of `tokenizers` are no Exception: "only_first" that leaves less than a stride.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            return str(error)
        raise


def outcome(call: Any) -> Any:
    """The fields of a call, or the text of its error."""
    result = result_of(call)
    if isinstance(result, str):
        return result
    fields = {name: _plain(value) for name, value in result.items()}
    words = [result.word_ids(i) for i in range(len(result.encodings))]
    return fields, words, [encoding.tokens for encoding in result.encodings]


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return _plain(value.tolist()) if hasattr(value, "tolist") else value


@settings(max_examples=60)
@given(st.data(), st.sampled_from(sorted(PRETRAINED)))
def test_without_changes_every_field_is_the_wrapped_tokenizers(data, name):
    plain, same = PRETRAINED[name], SAME[name]
    options = data.draw(calls)
    kind = data.draw(st.sampled_from(["one", "pair", "batch", "pairs", "words", "batch of words"]))
    some = st.lists(texts, min_size=1, max_size=3)
    one = data.draw({"one": texts, "pair": texts, "words": some}.get(kind, some))
    given_: list[Any] = [one]
    if kind == "pair":
        given_.append(data.draw(texts))
    if kind == "pairs":
        given_.append(data.draw(st.lists(texts, min_size=len(one), max_size=len(one))))
    if kind == "batch of words":
        given_ = [[text.split(" ") for text in one]]
    if "words" in kind:
        options["is_split_into_words"] = True
    if options["padding"]:
        options["max_length"] = options["max_length"] // 8 * 8 or 8
    expected = outcome(lambda: plain(*given_, **options, **every_field))
    assert outcome(lambda: same(*given_, **options, **every_field)) == expected


@settings(max_examples=60)
@given(texts, st.sampled_from(sorted(TOKENIZERS)), st.integers(0, 5))
def test_draws_spell_the_text(text, name, epoch):
    plain = TOKENIZERS[name]
    drawing = rt.stochastic(plain, "uniform", seed=0)
    drawing.set_epoch(epoch)
    vocab = drawing.draws.vocab
    old, new = plain.encode(text), drawing.encode(text)
    assert vocab.decode_bytes(new.ids) == vocab.decode_bytes(old.ids)
    assert "".join(new.tokens) == "".join(old.tokens)


@settings(max_examples=60)
@given(texts, st.sampled_from(sorted(TOKENIZERS)))
def test_offsets_and_words_are_those_of_the_tokenizers_library(text, name):
    """With dropout 1, the library itself encodes to characters."""
    finest = FINEST[name].encode(text)
    drawing = rt.stochastic(TOKENIZERS[name], "characters", seed=0).encode(text)
    if drawing.tokens == finest.tokens:  # no token of several bytes for a character
        assert drawing.offsets == finest.offsets
        assert drawing.word_ids == finest.word_ids
        assert drawing.special_tokens_mask == finest.special_tokens_mask


def test_a_draw_depends_on_seed_epoch_and_text_only():
    drawing = rt.stochastic(PRETRAINED["byte-level"], "uniform", seed=3)
    alone = [drawing(text)["input_ids"] for text in TEXTS]
    assert drawing(TEXTS)["input_ids"] == alone
    assert drawing(TEXTS[::-1])["input_ids"] == alone[::-1]
    assert [drawing.encode(text) for text in TEXTS] == alone
    drawing.set_epoch(1)
    later = drawing(TEXTS)["input_ids"]
    assert sum(a != b for a, b in zip(alone, later, strict=True)) > 20
    drawing.set_epoch(0)
    assert drawing(TEXTS)["input_ids"] == alone
    other = rt.stochastic(PRETRAINED["byte-level"], "uniform", seed=4)(TEXTS)["input_ids"]
    assert sum(a != b for a, b in zip(alone, other, strict=True)) > 20


def test_eval_is_canonical_and_the_wrapped_tokenizer_is_unchanged():
    plain = PRETRAINED["byte-level"]
    before = plain(TEXTS)["input_ids"]
    drawing = rt.stochastic(plain, "uniform", seed=0)
    assert drawing.training and drawing(TEXTS)["input_ids"] != before
    assert drawing.eval() is drawing and drawing(TEXTS)["input_ids"] == before
    assert drawing.train()(TEXTS)["input_ids"] != before
    assert plain(TEXTS)["input_ids"] == before == drawing.wrapped_tokenizer(TEXTS)["input_ids"]
    assert type(drawing.wrapped_tokenizer) is type(plain)
    assert isinstance(drawing, type(plain)) and len(drawing) == len(plain)
    assert drawing.decode(drawing.encode(TEXTS[0]), skip_special_tokens=True) == TEXTS[0]
    vocab = rt.Vocabulary.load(drawing)  # is canonical
    assert vocab.encode(TEXTS[0]).tolist() == plain.encode(TEXTS[0], add_special_tokens=False)


def test_only_the_chosen_roles_of_a_chat_are_drawn():
    plain = PRETRAINED["byte-level"]
    drawing = rt.stochastic(plain, "characters", seed=0)
    old = plain.apply_chat_template(CHAT)["input_ids"]
    new = drawing.apply_chat_template(CHAT)["input_ids"]
    assert drawing.decode(new) == plain.decode(old)
    kept = set(plain.tokenize(TEXTS[2])) - set(plain.tokenize(TEXTS[1] + TEXTS[3]))
    assert kept <= set(drawing.convert_ids_to_tokens(new))
    assert len(new) - len(old) > len(TEXTS[1]) / 2
    both = rt.stochastic(plain, "characters", seed=0, roles=["user", "assistant"])
    assert len(both.apply_chat_template(CHAT)["input_ids"]) > len(new)
    nobody = rt.stochastic(plain, "characters", seed=0, roles=[])
    assert nobody.apply_chat_template(CHAT)["input_ids"] == old
    assert drawing.apply_chat_template(CHAT, tokenize=False) == plain.apply_chat_template(
        CHAT, tokenize=False
    )
    assert drawing.eval().apply_chat_template(CHAT)["input_ids"] == old


def test_a_growing_chat_keeps_the_draws_of_its_earlier_turns():
    drawing = rt.stochastic(PRETRAINED["byte-level"], "uniform", seed=0)
    shorter = drawing.apply_chat_template(CHAT[:2], add_generation_prompt=True)["input_ids"]
    longer = drawing.apply_chat_template(CHAT)["input_ids"]
    assert longer[: len(shorter)] == shorter


def test_batches_and_masks_of_chats():
    drawing = rt.stochastic(PRETRAINED["byte-level"], "uniform", seed=0)
    options = {"return_assistant_tokens_mask": True, "return_dict": True}
    batch = drawing.apply_chat_template([CHAT, CHAT[1:]], padding=True, **options)
    one = drawing.apply_chat_template(CHAT, **options)
    size = len(one["input_ids"])
    row = batch["input_ids"][0]
    assert row[:size] == one["input_ids"]
    marked = [i for i, m in zip(one["input_ids"], one["assistant_masks"], strict=True) if m]
    assert drawing.decode(marked) == "".join(m["content"].strip() for m in CHAT)


def test_a_template_that_changes_contents_is_refused():
    plain = pretrained(byte_level())
    plain.chat_template = "{% for m in messages %}<s>{{ m['content'] | upper }}{% endfor %}"
    drawing = rt.stochastic(plain, "uniform", seed=0)
    with pytest.raises(RobustokError, match="changes the contents"):
        drawing.apply_chat_template(CHAT)
    plain.chat_template = "{% for m in messages %}<s>{{ m['content'] }}{% endfor %}"
    drawing = rt.stochastic(plain, "uniform", seed=0, roles=["user"])
    looks_like_a_placeholder = [{"role": "assistant", "content": "\ue0005\ue000"}]
    with pytest.raises(RobustokError, match="changes the contents"):
        drawing.apply_chat_template(looks_like_a_placeholder)
    long = "\ue000" + "1" * 5000 + "\ue000"  # of no message
    assert drawing.apply_chat_template([{"role": "assistant", "content": long}])


def test_copies_and_pickles_keep_draws_epoch_and_mode():
    drawing = rt.stochastic(PRETRAINED["byte-level"], "uniform", seed=0)
    drawing.set_epoch(5)
    expected = drawing(TEXTS)["input_ids"]
    for twin in (pickle.loads(pickle.dumps(drawing)), copy.deepcopy(drawing)):
        assert twin(TEXTS)["input_ids"] == expected
        twin.set_epoch(6)
        assert drawing.epoch == 5
    bare = pickle.loads(pickle.dumps(rt.stochastic(TOKENIZERS["metaspace"], "uniform", seed=1)))
    again = rt.stochastic(TOKENIZERS["metaspace"], "uniform", seed=1)
    assert bare.encode(TEXTS[0]).ids == again.encode(TEXTS[0]).ids


def test_what_the_class_makes_is_canonical(tmp_path):
    """As transformers' own tests call it: through the instance, and through its class."""
    plain = PRETRAINED["byte-level"]
    drawing = rt.stochastic(plain, "uniform", seed=0)
    drawing.save_pretrained(tmp_path)
    backend = plain.backend_tokenizer
    for new in (
        AutoTokenizer.from_pretrained(tmp_path),
        drawing.from_pretrained(tmp_path),
        type(drawing).from_pretrained(tmp_path),
        drawing.__class__(tokenizer_object=backend, chat_template=CHATML),
        drawing.train_new_from_iterator(TEXTS, 300),
    ):
        assert type(new) is type(plain) and not hasattr(new, "draws")
        assert new.apply_chat_template(CHAT, tokenize=False) == plain.apply_chat_template(
            CHAT, tokenize=False
        )
    loaded = drawing.from_pretrained(tmp_path)
    assert loaded(TEXTS)["input_ids"] == plain(TEXTS)["input_ids"]
    assert loaded.apply_chat_template(CHAT) == plain.apply_chat_template(CHAT)
    twin = copy.copy(drawing)
    assert type(twin) is type(drawing) and twin(TEXTS)["input_ids"] == drawing(TEXTS)["input_ids"]
    assert type(drawing.backend_tokenizer.from_str(backend.to_str())) is Tokenizer


def test_a_strength_without_effect_is_said(caplog):
    ends = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    ends.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    drawing = rt.stochastic(ends, "uniform-k(k=1)", seed=0)
    text = "ab" * 10  # has no tokenization at distance 1
    assert drawing.encode(text).ids == [2] * 10
    assert drawing.encode(text).ids == [2] * 10
    (record,) = caplog.records
    assert "uniform-k(k=1) left the first text as it is" in record.getMessage()
    with pytest.raises(RobustokError, match="changed none of the first 10020 tokens"):
        drawing.encode_batch([text] * 1000)
    caplog.clear()
    for spec in ("canonical", "stochastok(alpha=0)"):  # what was asked for
        assert len(rt.stochastic(ends, spec, seed=0).encode_batch([text] * 1001)) == 1001
    drawing = rt.stochastic(ends, "uniform", seed=0)
    assert drawing.encode(text).ids != [2] * 10
    assert not caplog.records


def test_added_tokens_are_never_cut():
    drawing = rt.stochastic(pretrained(byte_level()), "characters", seed=0)
    drawing.add_special_tokens({"additional_special_tokens": ["<call>"]})
    drawing.add_tokens(["the on"])
    tokens = drawing.tokenize("the and<call>the")
    assert tokens == [*"the", "Ġ", *"and", "<call>", *"the"]
    assert "the on" in drawing.tokenize("the on")


def _encoded_in_child(tokenizer: Any, epochs: Any, results: Any) -> None:
    while (epoch := epochs.get()) is not None:
        results.put((epoch, tokenizer.epoch, tokenizer(TEXTS[:4])["input_ids"]))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_running_worker_follows_the_epoch(method):
    context = multiprocessing.get_context(method)
    drawing = rt.stochastic(PRETRAINED["byte-level"], "uniform", seed=0)
    epochs, results = context.Queue(), context.Queue()
    worker = context.Process(target=_encoded_in_child, args=(drawing, epochs, results))
    worker.start()
    try:
        for epoch in (0, 1):
            drawing.set_epoch(epoch)
            epochs.put(epoch)
            assert results.get(timeout=60) == (epoch, epoch, drawing(TEXTS[:4])["input_ids"])
    finally:
        epochs.put(None)
        worker.join(60)
        if worker.is_alive():
            worker.terminate()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_datasets_map_is_repeatable_and_its_cache_knows_the_epoch():
    datasets = pytest.importorskip("datasets")
    from datasets.fingerprint import Hasher

    drawing = rt.stochastic(PRETRAINED["byte-level"], "uniform", seed=0)
    rows = datasets.Dataset.from_dict({"text": TEXTS})

    def encode(batch: Any) -> Any:
        return drawing(batch["text"])

    expected = [drawing(text)["input_ids"] for text in TEXTS]
    for processes in (2, None):
        first = rows.map(encode, batched=True, num_proc=processes)["input_ids"]
        assert list(first) == expected
    names = {Hasher.hash(drawing), Hasher.hash(pickle.loads(pickle.dumps(drawing)))}
    drawing.set_epoch(1)
    assert Hasher.hash(drawing) not in names
    assert list(rows.map(encode, batched=True)["input_ids"]) != list(first)


def test_tiktoken_encodings_draw_and_keep_special_tokens():
    ranks = {bytes([i]): i for i in range(256)} | {b"th": 256, b"the": 257, b" on": 258}
    encoding = tiktoken.Encoding(
        "toy", pat_str=r" ?\w+|\s+|[^\w\s]+", mergeable_ranks=ranks, special_tokens={"<s>": 259}
    )
    drawing = rt.stochastic(encoding, "characters", seed=0)
    assert drawing.encode("the<s>the", allowed_special="all") == [*b"the", 259, *b"the"]
    assert drawing.encode_ordinary("the") == [*b"the"]
    assert drawing.encode_batch(["the", " on"]) == [[*b"the"], [*b" on"]]
    assert drawing.encode_ordinary_batch(["the"]) == [[*b"the"]]
    assert drawing.encode_to_numpy("the").tolist() == [*b"the"]
    assert drawing.decode(drawing.encode("the on")) == "the on" and drawing.n_vocab == 260
    with pytest.raises(ValueError, match="disallowed special"):
        drawing.encode("<s>")
    with pytest.raises(RobustokError, match="encode_with_unstable cannot draw"):
        drawing.encode_with_unstable("the")
    assert pickle.loads(pickle.dumps(drawing)).encode("the") == [*b"the"]


@pytest.fixture(scope="module")
def processor(tmp_path_factory) -> Any:
    folder = tmp_path_factory.mktemp("sp")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 4), model_prefix=str(folder / "m"), vocab_size=120,
        model_type="unigram", hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "m.model"))


@pytest.mark.parametrize("options", [{}, {"emit_unk_piece": True}])
def test_unknown_pieces_are_written_as_in_the_text(processor, options):
    texts = ["the ☃ and 🧿the", "☃", "the"]
    canonical = rt.stochastic(processor, "canonical", seed=0)
    expected = processor.encode(texts, out_type=str, **options)
    assert canonical.encode(texts, out_type=str, **options) == expected
    drawing = rt.stochastic(processor, "characters", seed=0)
    pieces = drawing.encode(texts[0], out_type=str, **options)
    assert {"☃", "🧿"} <= {*pieces} or "emit_unk_piece" in options


def test_sentencepiece_processors_draw(processor):
    drawing = rt.stochastic(processor, "unigram(temperature=5)", seed=0)
    text = TEXTS[0]
    ids = drawing.encode(text)
    assert ids != processor.encode(text) and processor.decode(ids) == text
    assert drawing.encode(text, out_type=str) == [processor.id_to_piece(i) for i in ids]
    assert drawing.encode_as_ids(text) == ids == drawing.EncodeAsIds(text)
    assert drawing.encode([text, text]) == [ids, ids]
    marked = drawing.encode(text, add_bos=True, add_eos=True)
    assert marked == [processor.bos_id(), *ids, processor.eos_id()]
    assert drawing.encode(text, True, True) == marked  # add_bos, add_eos
    assert drawing.vocab_size() == processor.vocab_size()
    with pytest.raises(RobustokError, match="enable_sampling"):
        drawing.encode(text, enable_sampling=True)
    with pytest.raises(RobustokError, match="cannot draw"):
        drawing.sample_encode_as_ids(text, -1, 0.1)
    for other in ({"out_type": "serialized_proto"}, {"out_type": "numpy"}, {"reverse": True}):
        with pytest.raises(RobustokError, match="encodes to ids or strings"):
            drawing.encode(text, **other)


@pytest.mark.parametrize(
    "made", [{"out_type": str}, {"add_eos": True},
             {"enable_sampling": True, "nbest_size": -1, "alpha": 0.1}],
)  # fmt: skip
def test_what_a_sentencepiece_processor_was_made_to_return(processor, made):
    """Canonical draws are what the library returns, but for its sampling."""
    own = sentencepiece.SentencePieceProcessor(
        model_proto=processor.serialized_model_proto(), **made
    )
    drawing = rt.stochastic(own, "canonical", seed=0)
    expected = own.encode(TEXTS, enable_sampling=False)
    assert drawing.encode(TEXTS) == expected
    assert [drawing.eval().encode(TEXTS) for _ in range(4)] == [expected] * 4


@pytest.mark.parametrize("library", ["tokenizers", "transformers", "tiktoken", "sentencepiece"])
def test_in_evaluation_mode_every_call_is_that_of_the_wrapped_tokenizer(library, request):
    plain: Any = {
        "tokenizers": lambda: TOKENIZERS["byte-level"],
        "transformers": lambda: PRETRAINED["byte-level"],
        "tiktoken": lambda: tiktoken.Encoding(
            "x", pat_str="[a-z]+|.", mergeable_ranks={bytes([i]): i for i in range(256)},
            special_tokens={"<|endoftext|>": 256},
        ),
        "sentencepiece": lambda: request.getfixturevalue("processor"),
    }[library]()  # fmt: skip
    drawing: Any = rt.stochastic(plain, "uniform", seed=0).eval()
    text, ids, chat = TEXTS[0], [5, 6, 7], CHAT[1:2]
    arguments = [(), (text,), ([text],), (ids,), ([ids],), (text, 3), (chat,), (5,)]
    own = {*dir(Switch), "backend_tokenizer"}
    # Those that draw by themselves, or change the tokenizer.
    names = "sample add set train load save push update enable no_ override register"
    changes = tuple(names.split())
    called = 0
    for name in dir(plain):
        if name.startswith(("_", *changes)) or name.lower().startswith(changes) or name in own:
            continue
        wrapped, value = getattr(plain, name), getattr(drawing, name)
        if not callable(wrapped):
            assert str(value) == str(wrapped) or value == wrapped, name
            continue
        for given_arguments in arguments:
            try:
                expected = wrapped(*given_arguments)
            except Exception:
                continue
            result = value(*given_arguments)
            # Some results have no equality, others are sets of names in any order.
            assert str(result) == str(expected) or result == expected, (name, given_arguments)
            called += 1
    assert called > 10


def test_samples_are_those_of_the_current_epoch(processor):
    drawing = rt.stochastic(processor, "unigram(temperature=5)", seed=0)
    samples = drawing.sample_encode(TEXTS[0], 4)
    assert samples[0] == drawing.encode(TEXTS[0])
    assert len({tuple(ids) for ids in samples}) > 1
    assert {processor.decode(ids) for ids in samples} == {TEXTS[0]}
    drawing.set_epoch(1)
    assert drawing.sample_encode(TEXTS[0], 4) != samples


def test_slow_tokenizers_and_other_objects_are_refused():
    class Slow:
        is_fast = False

    with pytest.raises(RobustokError, match=r"cannot make a Slow stochastic.*is_fast"):
        rt.stochastic(Slow(), "uniform", seed=0)
    drawing = rt.stochastic(TOKENIZERS["byte-level"], "uniform", seed=0)
    with pytest.raises(RobustokError, match="stochastic already"):
        rt.stochastic(drawing, "uniform", seed=0)
    with pytest.raises(RobustokError, match="did you mean 'uniform'"):
        rt.stochastic(TOKENIZERS["byte-level"], "unifrom", seed=0)
    with pytest.raises(RobustokError, match="list of names"):
        rt.stochastic(PRETRAINED["byte-level"], "uniform", seed=0, roles="user")
    with pytest.raises(RobustokError, match="epoch"):
        drawing.set_epoch("1")
    drawing.eval()
    for mode in (["a.txt"], None, 1, "yes"):
        with pytest.raises(RobustokError, match="train takes True or False"):
            drawing.train(mode)
    assert not drawing.training


def test_one_text_and_a_batch_have_equal_encodings():
    """One text is drawn without the batch; runs between special tokens are one call for all."""
    drawing = rt.stochastic(TOKENIZERS["untrimmed"], "uniform", seed=0)
    for text in (TEXTS[0], "", "<s>", "the<s>on [x] é😀"):
        alone, batched = drawing.encode(text), drawing.encode_batch([text, TEXTS[1]])[0]
        for name in ("ids", "tokens", "word_ids", "offsets", "sequence_ids"):
            assert getattr(alone, name) == getattr(batched, name)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("library", ["tokenizers", "transformers"])
def test_a_tokenizer_with_draws_of_its_own_is_refused(library, when, training):
    """Its canonical ids would be another random tokenization at each call."""
    backend = byte_level()
    plain: Any = backend if library == "tokenizers" else PreTrainedTokenizerFast(
        tokenizer_object=backend
    )  # fmt: skip
    model = backend.model if library == "tokenizers" else plain.backend_tokenizer.model
    if when == "before":
        model.dropout = 0.3
        with pytest.raises(RobustokError, match=r"draws by itself \(dropout=0.3\)"):
            rt.stochastic(plain, "canonical", seed=0)
        return
    drawing = rt.stochastic(plain, "uniform", seed=0).train(training)
    assert drawing.encode(TEXTS[0])
    model.dropout = 0.3  # of the shared model
    batch = drawing if library == "transformers" else drawing.encode_batch
    for encode, text in ((drawing.encode, TEXTS[0]), (batch, TEXTS[:2])):
        with pytest.raises(RobustokError, match="draws by itself"):
            encode(text)


def test_a_ready_made_tokenizer_of_tokenizers_draws():
    ready_made = ByteLevelBPETokenizer()
    ready_made.train_from_iterator(TEXTS, vocab_size=300)
    drawing = rt.stochastic(ready_made, "uniform", seed=0)
    ids = drawing.encode(TEXTS[0]).ids
    assert ids != ready_made.encode(TEXTS[0]).ids == drawing.eval().encode(TEXTS[0]).ids
    assert ready_made.decode(ids) == TEXTS[0]


def test_a_run_between_special_tokens_is_drawn_by_its_number():
    """Equal texts of one sequence have draws of their own, which stay when the sequence grows."""
    drawing = rt.stochastic(byte_level(), "uniform", seed=0)
    text = TEXTS[0] * 2
    mark = drawing.token_to_id("<|im_start|>")

    def runs(n: int) -> list[list[int]]:
        ids = drawing.encode("<|im_start|>".join([text] * n), add_special_tokens=False).ids
        marks = [-1, *(i for i, one in enumerate(ids) if one == mark), len(ids)]
        return [ids[a + 1 : b] for a, b in itertools.pairwise(marks)]

    first, second, third = runs(3)
    assert first != second != third != first
    assert runs(2) == [first, second]
    assert row_key(np.array(first)) != row_key(np.array(first), 1) != row_key(np.array(first), 0, 1)
