"""The core on every supported release of `tokenizers`, 1.0 included: from JSON, by `encode` alone.

`make next` runs this file where only the release candidate of 1.0 is installed.
"""

import json
import os
import pickle
import tempfile
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import robustok as rt
from robustok.tokenizer.data import byte_alphabet
from robustok.tokenizer.tokenizers_api import HAS_PARTS, open_json, require_parts, tokenizer_json

REAL = Path(os.environ.get("ROBUSTOK_DATA", "../shared/data")) / "tokenizers"
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
MARKS = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
TO_SPACES = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
FALLBACK = {"type": "Sequence", "decoders": [TO_SPACES, {"type": "ByteFallback"}, {"type": "Fuse"}]}
WORDS = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
SPECIAL = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
           "special": True}  # fmt: skip


def byte_level(normalizer: dict | None = None, **settings: Any) -> dict:
    ids = {letter: i for i, letter in enumerate(byte_alphabet())}
    merges = [["h", "e"], ["l", "l"], ["he", "ll"], ["Ġ", "a"], ["c", "a"]]
    ids |= {a + b: 256 + i for i, (a, b) in enumerate(merges)}
    model = {"type": "BPE", "vocab": ids, "merges": merges} | settings
    spec = json.loads(tokenizer_json(model, BYTES, normalizer))
    end = {"id": len(ids), "content": "<end>"} | SPECIAL
    return spec | {"decoder": BYTES, "added_tokens": [end]}


def sentencepiece() -> dict:
    names = ["<unk>", *(f"<0x{b:02X}>" for b in range(256)), *"▁helowrd", "▁h", "ll", "el"]
    model = {"type": "BPE", "vocab": {name: i for i, name in enumerate(names)},
             "merges": [["▁", "h"], ["l", "l"], ["e", "l"]], "byte_fallback": True,
             "unk_token": "<unk>", "fuse_unk": True}  # fmt: skip
    normalizers = [{"type": "Prepend", "prepend": "▁"}, MARKS]
    spec = json.loads(tokenizer_json(model, None, {"type": "Sequence", "normalizers": normalizers}))
    return spec | {"decoder": FALLBACK}


def unigram() -> dict:
    vocab = [
        ["<unk>", 0.0],
        ["▁", -2.0],
        *([c, -3.0] for c in "helowrd"),
        ["▁he", -2.5],
        ["ll", -2],
    ]
    model = {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": False}
    spec = json.loads(tokenizer_json(model, WORDS))
    return spec | {"decoder": WORDS, "added_tokens": [{"id": 0, "content": "<unk>"} | SPECIAL]}


KINDS: dict[str, tuple[Callable[[], dict], Callable[[str], str]]] = {
    "byte-level": (byte_level, str),
    "NFC": (lambda: byte_level({"type": "NFC"}), lambda text: unicodedata.normalize("NFC", text)),
    "lower case": (lambda: byte_level({"type": "Lowercase"}), str.lower),
    "ignore merges": (lambda: byte_level(ignore_merges=True), str),
    "dropout in the file": (lambda: byte_level(dropout=0.5), str),
    "sentencepiece": (sentencepiece, lambda text: (" " + text if text else "").replace("▁", " ")),
    "unigram": (unigram, lambda text: text if text[:1] in ("", " ") else " " + text),
}
TEXTS = ["hello world", "", " hello  hello", "helloworld hello he", "<end>llo"]
MORE = ["naïve e\u0301 ☃ \U0001f9ff", "Hello <end> a", "\n\tcall ▁a"]


@pytest.fixture(scope="module", params=KINDS)
def kind(request) -> Any:
    make, spelled = KINDS[request.param]
    is_file = "file" in request.param  # the library refuses a dropout
    return request.param, load_file(make()) if is_file else load(make()), spelled


def load(spec: dict) -> rt.Vocabulary:
    return rt.Vocabulary.load(open_json(json.dumps(spec)))


def load_file(spec: dict) -> rt.Vocabulary:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer.json").write_text(json.dumps(spec), encoding="utf8")
        return rt.Vocabulary.load(folder)


def texts_of(name: str) -> list[str]:
    return [t for t in TEXTS if "<end>" not in t] if name == "unigram" else TEXTS + MORE


def test_texts_have_canonical_ids_that_spell_them(kind: Any) -> None:
    name, vocab, spelled = kind
    rows = vocab.encode_batch(texts_of(name))
    for text, row in zip(texts_of(name), rows, strict=True):
        assert vocab.encode(text).tolist() == row.tolist()
        assert vocab.decode(row) == spelled(text)
        assert vocab.canonicalize(row).tolist() == row.tolist()


@pytest.mark.parametrize("spec", ["uniform", "stochastok(alpha=1)", "uniform-k(alpha=1)"])
def test_draws_spell_their_text_and_the_guard_repairs_them(kind: Any, spec: str) -> None:
    name, vocab, _ = kind
    guard, sampler = rt.Guard(vocab, allow_special=True), rt.sampler(spec, vocab)
    for text in texts_of(name):
        ids = vocab.encode(text)
        drawn = sampler.sample(text, seed=3)
        assert vocab.decode_bytes(drawn) == vocab.decode_bytes(ids)
        assert guard.check(drawn).repaired.tolist() == ids.tolist()
        assert vocab.lattice(text).count() >= 1


def test_special_tokens_are_parsed_where_it_is_asked(kind: Any) -> None:
    name, vocab, _ = kind
    if name in ("sentencepiece", "unigram"):
        pytest.skip("it has no special token")
    (end,) = vocab.special
    assert end in vocab.encode("a<end>", parse_special=True)
    assert end not in vocab.encode("a<end>")


def test_a_pickled_vocabulary_has_the_same_ids(kind: Any) -> None:
    name, vocab, _ = kind
    again = pickle.loads(pickle.dumps(vocab))
    assert again.fingerprint == vocab.fingerprint
    for text in texts_of(name):
        assert again.encode(text).tolist() == vocab.encode(text).tolist()


@given(st.lists(st.text("helo wrd<n>é\u0301▁", max_size=12), max_size=3))
@settings(max_examples=40)
def test_random_texts(texts: list[str]) -> None:
    for vocab, spelled in ((BYTE_LEVEL, str), (COMPOSED, KINDS["NFC"][1])):
        for text, row in zip(texts, vocab.encode_batch(texts), strict=True):
            assert vocab.decode(row) == spelled(text)


BYTE_LEVEL, COMPOSED = (load_file(KINDS[name][0]()) for name in ("byte-level", "NFC"))


def test_the_demo_tokenizer() -> None:
    vocab = rt.Vocabulary.load("demo")
    ids = vocab.encode("The demo tokenizer.")
    assert vocab.decode(ids) == "The demo tokenizer."
    drawn = rt.sampler("bpe-dropout(p=0.3)", vocab).sample_batch([ids.tolist()], seed=0, draws=20)
    assert {vocab.decode(row) for row in drawn} == {"The demo tokenizer."}


@pytest.mark.parametrize("name", ["gpt2", "llama3", "qwen3", "llama2", "internlm2"])
def test_ids_of_real_tokenizers(name: str) -> None:
    if not REAL.is_dir():
        pytest.skip("the shared data is not there")
    vocab = rt.Vocabulary.load(REAL / name)
    lines = (REAL / "reference_encodings.jsonl").read_text(encoding="utf8").splitlines()
    rows = [*map(json.loads, lines)]
    encoded = vocab.encode_batch([row["text"] for row in rows])
    pairs = zip(rows, encoded, strict=True)
    different = [row["n"] for row, ids in pairs if ids.tolist() != row["ids"][name]]
    # U+0000: the reference is SentencePiece's, which gives its byte piece.
    assert different == ([41] if name == "internlm2" else [])
    for row, ids in zip(rows, encoded, strict=True):
        assert vocab.decode(ids) == spelled_by(name, row["text"])
    assert np.array_equal(vocab.encode_batch([rows[0]["text"]]).values, encoded[0])


def spelled_by(name: str, text: str) -> str:
    """What the ids of a text decode to under a real tokenizer."""
    if name == "qwen3":
        return unicodedata.normalize("NFC", text)
    if name == "llama2" and text:
        text = f" {text}"
    return text.replace("▁", " ") if name in ("llama2", "internlm2") else text


def test_what_needs_the_parts_of_a_tokenizer_says_so() -> None:
    if HAS_PARTS:
        require_parts("training")
        return
    tokenizer = open_json(json.dumps(byte_level()))
    for call in (
        lambda: require_parts("training"),
        lambda: rt.stochastic(tokenizer, "uniform", seed=0),
    ):
        with pytest.raises(rt.RobustokError, match=r"needs the parts of a tokenizer.*tokenizers<1"):
            call()
