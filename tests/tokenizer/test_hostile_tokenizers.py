"""Tokenizers of strangers and of the fuzzer: exact as the library has them, or one line says no."""

import copy
import json
import os
import pickle
import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fuzz import random_tokenizers
from fuzz.hostile_files import KINDS, read, use
from fuzz.made_tokenizers import Made, random_tokenizer
from fuzz.random_tokenizers import Finding, Refused, Subject, Violation, cuts_of, violated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.guard.tokenizers_of import added_token, cut_by
from tests.oracles.lattice import tokenizations
from tests.oracles.vocabulary import ENGLISH
from tests.tokenizer.test_vocabulary import bpe, fallback
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import robustok as rt
from robustok.errors import RobustokError
from robustok.tokenizer.tokenizer_json import from_json
from robustok.tokenizer.vocabulary import MOST_BYTES

SPEC: dict[str, Any] = json.loads(bpe())
METASPACE = {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": True}


def edited(*path: Any, value: Any) -> str:
    """The small tokenizer.json with one value replaced."""
    spec = copy.deepcopy(SPEC)
    part = spec
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return json.dumps(spec)


def dropout(vocab: rt.Vocabulary) -> rt.Sampler:
    return rt.sampler("bpe-dropout(p=0.5)", vocab)


def scored(*vocab: Any, unk_id: int = 0) -> str:
    """A tokenizer.json with a Unigram model of tokens and scores."""
    return edited("model", value={"type": "Unigram", "unk_id": unk_id, "vocab": [*vocab]})


REFUSED = {
    "nested arrays": "[" * 1_000_000,
    "nested objects": '{"model":' * 1_000_000,
    "a list": "[1, 2]",
    "vocabulary is a list": edited("model", "vocab", value=["a"]),
    "id is text": edited("model", "vocab", "a", value="1"),
    "id is negative": edited("model", "vocab", "a", value=-1),
    "id is above 2 ** 64": edited("model", "vocab", "a", value=2**64),
    "id is a fraction": edited("model", "vocab", "a", value=1.5),
    "two tokens with one id": edited("model", "vocab", "abc", value=SPEC["model"]["vocab"]["ab"]),
    "a merge of three": edited("model", "merges", value=[["a", "b", "c"]]),
    "a merge of no token": edited("model", "merges", value=[["a", "QQ"]]),
    "a merge to no token": edited("model", "merges", value=[["a", "c"]]),
    "a merge without a space": edited("model", "merges", value=["ab"]),
    "a lone surrogate": edited("model", "vocab", "\ud800", value=259),
    "a dropout that is not a number": bpe(dropout=float("nan")),
    "a score that is not a number": scored(["a", float("nan")]),
    "a score without end": scored(["a", float("-inf")]),
    "scores that are text": scored(["a", "b"]),
    "no scores": scored(),
    "an unknown token outside": scored(["a", -1.0], unk_id=7),
    "model is null": edited("model", value=None),
    "pre-tokenizer is text": edited("pre_tokenizer", value="ByteLevel"),
    "pre-tokenizer without type": edited("pre_tokenizer", value={}),
    "an added token is a number": edited("added_tokens", value=[5]),
    "an added token without content": edited(
        "added_tokens", value=[added_token(1, "") | {"content": None}]
    ),
    "decoder lacks its pre-tokenizer": edited("pre_tokenizer", value=None),
    "two byte levels": edited(
        "pre_tokenizer", value={"type": "Sequence", "pretokenizers": [SPEC["pre_tokenizer"]] * 2}
    ),
    "a byte-level normalizer": edited("normalizer", value={"type": "ByteLevel"}),
    "a metaspace of its own": edited(
        "pre_tokenizer",
        value={"type": "Sequence", "pretokenizers": [METASPACE, SPEC["pre_tokenizer"]]},
    ),
    "a broken pattern": edited("pre_tokenizer", value=cut_by("(")),
    "not whole": "{",
    "a WordPiece": '{"model": {"type": "WordPiece"}}',
    "a WordLevel": '{"model": {"type": "WordLevel"}}',
    "nothing but a type": '{"model": {"type": "BPE"}}',
    "a suffix of words": bpe(end_of_word_suffix="</w>"),
    "many holes": edited("model", "vocab", "Ġa", value=10**9),
}
MESSAGES = {
    "a list": "no tokenizer: pass a tokenizer.json",
    "not whole": "not a tokenizer.json",
    "two byte levels": "two ByteLevel",
    "a metaspace of its own": "Metaspace with '_'",
    "a WordPiece": "a WordPiece tokenizer is not supported",
    "a WordLevel": "a WordLevel tokenizer is not supported",
    "a suffix of words": "end_of_word_suffix '</w>' is not supported",
    "many holes": "its 259 tokens have ids up to",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_tokenizer_is_one_line(name: str, tmp_path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(REFUSED[name], encoding="utf8")
    with pytest.raises(RobustokError) as e:
        rt.Vocabulary.load(path)
    assert "\n" not in str(e.value)
    assert len(str(e.value)) < 500 + len(str(path))
    assert MESSAGES.get(name, "") in str(e.value)


def without_tokens() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.add_tokens(["a"])
    return tokenizer


def trained_last() -> Tokenizer:
    """Tokens that were added before the model was trained keep their ids, which others have."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.add_tokens(["<img>"])
    tokenizer.train_from_iterator(["ab ab"], trainers.BpeTrainer(show_progress=False))
    return tokenizer


def with_shared_id() -> Any:
    ranks = {"mergeable_ranks": {b"a": 0, b"b": 1}, "special_tokens": {"<s>": 1}}
    return pytest.importorskip("tiktoken").Encoding("made", pat_str=".", **ranks)


def with_long_token(size: int) -> Tokenizer:
    return Tokenizer(models.BPE({"a": 0, "a" * size: 1}, [], ignore_merges=True))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (without_tokens, "its model has no tokens"),
        (trained_last, r"'<img>' has the id 0, and another one once"),
        (with_shared_id, r"special token '<s>' has the id 1 of token b'b'"),
        (lambda: with_long_token(MOST_BYTES + 1), r"a token of 65,535 bytes"),
        (lambda: Tokenizer(models.BPE({"a": 0, "b": 5000}, [])), "too many ids without a token"),
    ],
)
def test_an_object_whose_ids_cannot_be_used_is_refused(make: Callable, message: str) -> None:
    with pytest.raises(RobustokError, match=message):
        rt.Vocabulary.load(make())


def test_a_token_as_long_as_kernels_hold_is_read() -> None:
    vocab = rt.Vocabulary.load(with_long_token(MOST_BYTES))
    assert vocab.encode("a" * MOST_BYTES).tolist() == [1]


@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer", "decoder"])
def test_a_stage_in_python_is_refused(part: str) -> None:
    kinds: Any = {"normalizer": normalizers.Normalizer, "decoder": decoders.Decoder,
                  "pre_tokenizer": pre_tokenizers.PreTokenizer}  # fmt: skip
    tokenizer = Tokenizer.from_str(bpe())
    setattr(tokenizer, part, kinds[part].custom(object()))
    for call in (rt.Vocabulary.load, lambda t: rt.stochastic(t, "uniform", seed=0)):
        with pytest.raises(RobustokError, match=r"cannot save it \(Custom .*\)$"):
            call(tokenizer)


def test_ids_without_a_token_are_in_no_text() -> None:
    """As in the vocabularies of GPT-4 and GPT-4o, whose special tokens stand after holes."""
    spec = copy.deepcopy(SPEC)
    del spec["model"]["vocab"]["Ġa"]
    spec["model"]["merges"] = [pair for pair in spec["model"]["merges"] if pair != ["Ġ", "a"]]
    spec["model"]["vocab"]["<|stop|>"] = 280
    spec["added_tokens"] = [added_token(280, "<|stop|>", special=True)]
    library = Tokenizer.from_str(json.dumps(spec))
    for source in (library, spec):
        text = library.to_str() if source is library else json.dumps(spec)
        vocab = rt.Vocabulary(from_json(text, "holes"))
        assert vocab.size == 281 and not vocab.ordinary[259:].any()
        assert vocab.encode("a abc").tolist() == library.encode("a abc").ids
        assert vocab.encode("<|stop|>", parse_special=True).tolist() == [280]
        again = pickle.loads(pickle.dumps(vocab))
        assert again.encode("a abc").tolist() == vocab.encode("a abc").tolist()
        drawn = rt.Uniform(vocab).sample("a abc", seed=0)
        assert vocab.decode_bytes(drawn) == b"a abc"
        assert rt.Guard(vocab).check(vocab.encode("a abc")).canonical
    assert rt.Guard(vocab).check([270]).findings


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a+)+$", "a" * 40 + "b"),
        ("(?:a+)+$", "a" * 40 + "b"),
        ("(?:(?:a{100}){100}){100}", "aaaa b"),
        ("(" * 900 + "a" + ")" * 900, "aa b"),
        ("a{0,5000}", "aaaa b"),
    ],
)
def test_patterns_that_take_a_matcher_long(pattern: str, text: str) -> None:
    try:
        vocab = rt.Vocabulary(from_json(edited("pre_tokenizer", value=cut_by(pattern)), "hostile"))
    except RobustokError as e:  # the library refuses it
        assert "\n" not in str(e)
        return
    for call in (vocab.encode, lambda text: dropout(vocab).sample(text, seed=0)):
        try:
            ids = call(text)
        except RobustokError as e:  # the library gave up on the pattern
            assert "\n" not in str(e)
        else:
            assert vocab.decode_bytes(ids) == text.encode()


def test_many_added_tokens_that_begin_alike_are_searched_in_linear_time() -> None:
    spec = copy.deepcopy(SPEC)
    spec["added_tokens"] = [added_token(259 + i, "a" * (i + 1) + "!") for i in range(300)]
    vocab = rt.Vocabulary.load(Tokenizer.from_str(json.dumps(spec)))
    text = "a" * 70_000
    assert vocab.decode_bytes(vocab.encode_batch([text])[0]) == text.encode()


def lines_run(call: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """What a call returns, and how many lines of Python it runs, each turn of a loop anew."""
    count, before = 0, sys.gettrace()

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event in ("call", "line")
        return trace

    sys.settrace(trace)
    try:
        returned = call(*arguments)
    finally:
        sys.settrace(before)
    return returned, count


@pytest.mark.parametrize("kind", KINDS)
def test_reading_a_file_and_using_it_takes_work_in_proportion_to_its_size(kind: str) -> None:
    lines = []
    for size in (250, 250, 500, 1000):  # the first imports and compiles
        vocab, loading = lines_run(read, KINDS[kind](size))
        using = lines_run(use, vocab)[1] if vocab is not None else 0
        lines.append((loading, using))
    for first, second, third in zip(*lines[1:], strict=True):
        # Of a linear count the second step is twice the first; of a quadratic one, four times.
        assert third - second <= 2.6 * max(second - first, 200)


class CountedArray(np.ndarray):
    """An array that counts the values of all its slices."""

    sliced = 0

    def __getitem__(self, key: Any) -> Any:
        values = super().__getitem__(key)
        CountedArray.sliced += np.size(values)
        return values


def test_ids_between_special_ones_take_work_in_proportion_to_their_number() -> None:
    spec = copy.deepcopy(SPEC)
    spec["added_tokens"] = [added_token(259, "<|stop|>", special=True)]
    vocab = rt.Vocabulary.load(Tokenizer.from_str(json.dumps(spec)))
    row = [*vocab.encode("ab").tolist(), 259]
    sliced, lines = [], []
    for size in (100, 100, 200, 400):
        ids = np.array(row * size)
        CountedArray.sliced = 0
        assert len([*vocab.canonicalizer.segments(ids.view(CountedArray))]) == 2 * size
        sliced.append(CountedArray.sliced)
        canonical, count = lines_run(vocab.canonicalize, ids)
        assert canonical.tolist() == ids.tolist()
        lines.append(count)
    for counts in (sliced, lines):
        assert counts[3] - counts[2] <= 2.2 * (counts[2] - counts[1])


def test_a_sentencepiece_model_with_flipped_bits_is_one_line(tmp_path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    from io import BytesIO

    model = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["hello world the quick brown fox naïve café"] * 20),
        model_writer=model, vocab_size=40, minloglevel=5, hard_vocab_limit=False,
    )  # fmt: skip
    whole = model.getvalue()
    path = tmp_path / "tokenizer.model"
    refused = 0
    for bit in range(0, 8 * 700, 37):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            rt.Vocabulary.load(path)
        except RobustokError as e:
            refused += 1
            assert "\n" not in str(e)
    assert refused


BASES = [SPEC, json.loads(fallback().to_str())]
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 300), st.just(10**9), st.floats(allow_nan=False),
    st.sampled_from(["", "a", "b", "ab", "▁", "Ġ", "BPE", "Unigram", "Split", "Removed", "Digits",
                     "(a", r"\s+", "<|end|>", "<0x41>", "Metaspace", "ByteLevel", "NFC"]),
    st.just([]), st.just({}), st.just({"type": "NFKC"}), st.just({"type": "Lowercase"}),
    st.just({"type": "Digits", "individual_digits": True}),
    st.just({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}),
)  # fmt: skip


def places(part: Any, path: tuple = ()) -> list[tuple]:
    """The paths of all values of a JSON document, without most of a vocabulary's."""
    items = part.items() if isinstance(part, dict) else enumerate(part)
    paths = []
    for number, (key, value) in enumerate(items):
        if path[-1:] == ("vocab",) and number % 40:
            continue
        paths.append((*path, key))
        if isinstance(value, (dict, list)):
            paths += places(value, (*path, key))
    return paths


@st.composite
def mutated(draw: st.DrawFn) -> str:
    spec = copy.deepcopy(draw(st.sampled_from(BASES)))
    for _ in range(draw(st.integers(1, 2))):
        *path, last = draw(st.sampled_from(places(spec)))
        part = spec
        for key in path:
            part = part[key]
        if draw(st.booleans()) and isinstance(part, dict):
            del part[last]
        else:
            part[last] = copy.deepcopy(draw(VALUES))
    return json.dumps(spec)


TEXTS = ["", "abc ab", " a  b", "12 345", "naïve\ncafé", "a<|end|>b", "<0x41>", "▁a", "Ｚ e\u0301"]


def agrees_with_the_library(text: str, vocab: rt.Vocabulary, library: Tokenizer) -> None:
    try:
        ids = vocab.encode(text)
    except RobustokError as e:
        assert "\n" not in str(e)
        return
    spelled = vocab.decode_bytes(ids)
    if not vocab.data.encoder.hidden:  # type: ignore[attr-defined]
        assert ids.tolist() == library.encode(text, add_special_tokens=False).ids
    assert vocab.canonicalize(ids).tolist() == ids.tolist()
    assert vocab.encode_batch([text, text])[1].tolist() == ids.tolist()
    for sampler in (rt.Uniform(vocab), rt.StochasTok(vocab, alpha=0.5)):
        drawn = sampler.sample(text, seed=1)
        assert vocab.decode_bytes(drawn) == spelled
        assert drawn.tolist() == sampler.sample(ids, seed=1).tolist()


@given(mutated())
@settings(
    max_examples=int(os.environ.get("ROBUSTOK_FUZZ", "150")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_a_changed_file_is_refused_or_read_as_the_library_reads_it(content: str) -> None:
    try:
        vocab = rt.Vocabulary(from_json(content, "changed"))
    except RobustokError as e:
        assert "\n" not in str(e)
        return
    library = Tokenizer.from_str(content)
    library.encode_special_tokens = True
    library.no_truncation()
    library.no_padding()
    if hasattr(library.model, "dropout"):
        library.model.dropout = None
    for text in TEXTS:
        agrees_with_the_library(text, vocab, library)


def some_tokenizers(count: int) -> list[Made]:
    return [random_tokenizer(random.Random(seed)) for seed in range(count)]


@pytest.mark.parametrize("number", range(40))
def test_a_tokenizer_is_exact_or_refused(number: int) -> None:
    counts = random_tokenizers.call(0, number)
    assert counts["texts encoded"] or any(name.startswith("refused") for name in counts)


def test_the_search_over_all_tokens_is_that_of_the_oracle() -> None:
    tokens = {ENGLISH.tokens[i] for i in ENGLISH.ordinary.nonzero()[0]}
    for text in (b"", b"abc", b"ab cab d", b"ccab"):
        paths = tokenizations(ENGLISH, text)
        assert cuts_of(text, tokens) == {tuple(len(ENGLISH.tokens[i]) for i in p) for p in paths}


def test_a_finding_has_a_script_of_its_tokenizer() -> None:
    subject = next(filter(None, map(loaded, some_tokenizers(20))))
    script = Finding(subject, ("abc",), Violation("an example", "this", "that")).script
    names: dict = {}
    exec(script, names)
    assert names["t"].to_str() == subject.library.to_str()
    assert "# robustok 'that'" in script


def test_what_is_no_refusal_is_a_violation() -> None:
    def check(subject: Subject, text: str, counts: Counter[str]) -> None:
        raise ZeroDivisionError(text)

    subject = next(filter(None, map(loaded, some_tokenizers(20))))
    violation = violated(subject, check, ("a",), Counter())
    assert violation is not None
    assert "ZeroDivisionError" in violation.check


def loaded(made: Made) -> Subject | None:
    try:
        return Subject(made)
    except Refused:
        return None
