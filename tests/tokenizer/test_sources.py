"""Files are recognized by their content; folders are read as transformers reads them."""

import base64
import hashlib
import importlib.util
import json
import logging
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.guard.tokenizers_of import added_token, metaspace_tokenizer
from tests.oracles.sentencepiece import trained
from tests.tokenizer.test_vocabulary import bpe, unigram
from tokenizers import Tokenizer

import robustok as rt
from robustok.models import load_tokenizer, save_tokenizer
from robustok.tokenizer import libraries, sources

O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
AutoTokenizer = pytest.importorskip("transformers").AutoTokenizer
TEXTS = ("hello world", " a  <img> abc<img>\n", "ab c<|end|>ab", "x <tool>  y!", "naïve ▁ 根")
IMAGE = {"content": "<img>", "lstrip": False, "normalized": False, "rstrip": False,
         "single_word": False, "special": False}  # fmt: skip
PADDING = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None,
           "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}  # fmt: skip


KINDS = {
    "byte-level": bpe,
    "llama": lambda: metaspace_tokenizer(prefix=True).to_str(),
    "unigram": lambda: unigram().to_str(),
}
PLAIN = {"tokenizer_class": "PreTrainedTokenizerFast"}

CONFIGS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a class": {"tokenizer_config.json": PLAIN},
    "an added token": {"tokenizer_config.json": PLAIN | {"added_tokens_decoder": {"1000": IMAGE}}},
    "a map of special tokens": {
        "special_tokens_map.json": {"additional_special_tokens": ["<img>"], "eos_token": "<tool>"}
    },
    "the class of GPT-2": {
        "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}
    },
    "the class of Llama": {"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer"}},
    "a prefix space": {"tokenizer_config.json": PLAIN | {"add_prefix_space": True}},
}


def folder_of(folder: Path, tokenizer: str, files: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf8")
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf8")
    return folder


def outcome(call: Callable[[], Any]) -> Any:
    """The result, or None where it raises."""
    try:
        return call()
    except Exception:
        return None


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_is_read_as_transformers_reads_it(kind, config, tmp_path) -> None:
    folder = folder_of(tmp_path / "model", KINDS[kind](), CONFIGS[config])
    library = outcome(lambda: AutoTokenizer.from_pretrained(folder))
    if library is None:
        with pytest.raises(rt.RobustokError, match="transformers cannot read its tokenizer"):
            rt.Vocabulary.load(folder)
        return
    assert rt.Vocabulary.load(folder).size == len(library.backend_tokenizer.get_vocab())
    assert load_tokenizer(folder).get_vocab() == library.get_vocab()
    ours = sources.open_tokenizer(folder).library()
    for text in TEXTS:
        right = library(text, add_special_tokens=False)["input_ids"]
        assert ours.encode(text, add_special_tokens=False).ids == right
    for i, token in library.backend_tokenizer.get_added_tokens_decoder().items():
        assert repr(ours.get_added_tokens_decoder()[i]) == repr(token)


def random_files(chosen: random.Random, spec: dict[str, Any]) -> dict[str, Any]:
    """Companions with random tokens; the tokenizer of ``spec`` gets one, and padding, too."""

    def flags() -> dict[str, bool]:
        names = ("lstrip", "rstrip", "single_word", "normalized", "special")
        return {name: chosen.random() < 0.3 for name in names}

    def token() -> str:
        return chosen.choice(("<img>", "<|end|>", "a", "ab", "<s>", "<tool>", " x", "<unk>"))

    def role() -> Any:
        full = flags() | {"content": token(), "__type": "AddedToken"}
        return chosen.choice((token(), token(), full, None))

    if spec["added_tokens"]:
        size = max(len(spec["model"]["vocab"]), spec["added_tokens"][-1]["id"] + 1)
        spec["added_tokens"].append(added_token(size, "<tool>", **flags()))
    if chosen.random() < 0.2:
        spec["padding"] = PADDING | {"pad_token": token()}
    config: dict[str, Any] = {"tokenizer_class": chosen.choice(sources._PLAIN_CLASSES)}
    if chosen.random() < 0.6:
        places = chosen.sample((0, 1, 2, 257, 259, 300, 301), chosen.randrange(4))
        config["added_tokens_decoder"] = {str(i): {"content": token(), **flags()} for i in places}
    for key in ("bos_token", "eos_token", "pad_token", "unk_token", "image_token"):
        if chosen.random() < 0.2:
            config[key] = role()
    if chosen.random() < 0.3:
        config["extra_special_tokens"] = chosen.choice(([token(), token()], {"x_token": token()}))
    files = {"tokenizer_config.json": config}
    if chosen.random() < 0.2:
        files["special_tokens_map.json"] = {"eos_token": {"content": token(), **flags()}}
    if chosen.random() < 0.2:
        files["added_tokens.json"] = {token(): chosen.choice((0, 259, 300))}
    return files


def test_random_tokens_are_added_as_transformers_adds_them(tmp_path, monkeypatch) -> None:
    asked = []
    original = sources.auto_tokenizer
    monkeypatch.setattr(
        sources, "auto_tokenizer", lambda name: asked.append(name) or original(name)
    )
    chosen = random.Random(7)
    for number in range(80):
        spec = json.loads(chosen.choice([*KINDS.values()])())
        files = random_files(chosen, spec)
        folder = folder_of(tmp_path / str(number), json.dumps(spec), files)
        library = outcome(lambda folder=folder: AutoTokenizer.from_pretrained(folder))
        ours = outcome(lambda folder=folder: sources.open_tokenizer(folder).library())
        assert (library is None) == (ours is None), files
        if library is not None:
            right = library.backend_tokenizer.get_added_tokens_decoder()
            added = ours.get_added_tokens_decoder()
            assert {i: repr(t) for i, t in added.items()} == {i: repr(t) for i, t in right.items()}
            assert ours.get_vocab() == library.get_vocab(), files
    assert 10 < len(asked) < 70  # both ways were tried


@pytest.mark.parametrize("kind", sources._PLAIN_TYPES)
def test_transformers_uses_the_plain_class_for_these_models(kind, tmp_path) -> None:
    files = {"tokenizer_config.json": PLAIN, "config.json": {"model_type": kind}}
    folder = folder_of(tmp_path, bpe(), files)
    assert type(AutoTokenizer.from_pretrained(folder)).__name__ == "TokenizersBackend"


def test_without_transformers_one_line_says_what_is_ignored(tmp_path, monkeypatch, caplog) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        sources, "find_spec", lambda name: None if name == "transformers" else real(name)
    )
    config = CONFIGS["the class of GPT-2"]
    folder = folder_of(tmp_path, bpe(), config)
    with caplog.at_level(logging.WARNING):
        vocab = rt.Vocabulary.load(folder)
    (record,) = caplog.records
    assert "only tokenizer.json is read" in record.getMessage()
    assert "the class GPT2Tokenizer" in record.getMessage()
    assert vocab.encode("ab").tolist() == Tokenizer.from_str(bpe()).encode("ab").ids
    (folder / "tokenizer.json").unlink()
    with pytest.raises(rt.RobustokError, match="needs transformers: pip install"):
        rt.Vocabulary.load(folder)


def test_a_folder_with_merges_is_read_by_transformers(tmp_path) -> None:
    spec = json.loads(bpe())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(spec["vocab"]))
    (tmp_path / "merges.txt").write_text("\n".join(" ".join(pair) for pair in spec["merges"]))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    right = AutoTokenizer.from_pretrained(tmp_path)("ab abc")["input_ids"]
    assert rt.Vocabulary.load(tmp_path).encode("ab abc").tolist() == right


def test_a_hub_repository_is_read_with_its_other_files_and_its_commit(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("transformers.utils.hub.is_offline_mode", lambda: True)
    root, fingerprints = tmp_path / "models--someone--small", {}
    (root / "refs").mkdir(parents=True)
    spec = json.loads(bpe())
    spec["added_tokens"].append(IMAGE | {"id": 300})
    for ref, commit, content in (("main", "a" * 40, bpe()), ("v2", "b" * 40, json.dumps(spec))):
        folder = folder_of(root / "snapshots" / commit, content, CONFIGS["a class"])
        (root / "refs" / ref).write_text(commit)
        vocab = rt.Vocabulary.load(f"someone/small@{ref}")
        assert vocab.data.revision == commit
        assert vocab.fingerprint == rt.Vocabulary.load(folder).fingerprint
        fingerprints[ref] = vocab.fingerprint
    assert b"<img>" in vocab.tokens
    main = rt.Vocabulary.load("someone/small")
    assert main.data.revision == "a" * 40
    assert main.fingerprint == fingerprints["main"] != fingerprints["v2"]
    with pytest.raises(rt.RobustokError, match="someone/small@v3: no such file"):
        rt.Vocabulary.load("someone/small@v3")


def test_a_saved_tokenizer_is_read_as_the_file_it_comes_from(tmp_path) -> None:
    """A file alone says nothing about its class; the new folder's config.json would decide."""
    folder_of(tmp_path / "source", bpe(), {})
    folder_of(tmp_path / "gpt2", "{}", {"config.json": {"model_type": "gpt2"}})
    save_tokenizer(tmp_path / "source" / "tokenizer.json", tmp_path / "gpt2")
    vocab = rt.Vocabulary.load(tmp_path / "source" / "tokenizer.json")
    assert rt.Vocabulary.load(tmp_path / "gpt2").fingerprint == vocab.fingerprint
    text = "ab abc"
    assert load_tokenizer(tmp_path / "gpt2")(text)["input_ids"] == vocab.encode(text).tolist()


def test_control_pieces_in_a_text_are_parsed_where_it_is_asked() -> None:
    processor = trained(vocab_size=60)
    vocab = rt.Vocabulary.load(processor)
    ab, end = processor.encode("ab"), processor.eos_id()
    ids = vocab.encode("</s>ab</s>ab", parse_special=True)
    assert ids.tolist() == [end, *ab, end, *ab]
    assert vocab.encode("ab</s>").tolist() == processor.encode("ab</s>")


def test_a_saved_sentencepiece_model_is_read_alike_or_not_at_all(tmp_path, caplog) -> None:
    """transformers leaves out the space before a text where no file names a class."""
    (tmp_path / "tokenizer.model").write_bytes(trained(vocab_size=60).serialized_model_proto())
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    with caplog.at_level(logging.WARNING, "robustok"):
        save_tokenizer(tmp_path / "tokenizer.model", folder)
    vocab = rt.Vocabulary.load(tmp_path / "tokenizer.model")
    if (folder / "tokenizer.model").exists():
        saved = rt.Vocabulary.load(folder)
        assert saved.encode("a banana").tolist() == vocab.encode("a banana").tolist()
    else:
        assert "has no tokenizer, since transformers would read" in caplog.text
        with pytest.raises(rt.RobustokError, match="transformers cannot read its tokenizer"):
            rt.Vocabulary.load(folder)


@pytest.mark.parametrize(
    "name", ["tokenizer.model", "source.spm", "tokenizer.model.v3", "spiece.model", "x.model.v7m1"]
)
def test_sentencepiece_files_may_have_any_name(name, tmp_path) -> None:
    raw = trained(vocab_size=60).serialized_model_proto()
    (tmp_path / name).write_bytes(raw)
    vocab = rt.Vocabulary.load(tmp_path / name)
    assert vocab.data.family == "sentencepiece Unigram"
    assert rt.Vocabulary.load(tmp_path).fingerprint == vocab.fingerprint


@pytest.mark.parametrize(
    "settings",
    [
        {"add_bos": True, "add_eos": True},
        {"reverse": True},
        {"enable_sampling": True, "nbest_size": -1, "alpha": 0.1},
    ],
)
def test_settings_of_a_sentencepiece_object_change_no_ids(settings) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    plain = trained(vocab_size=60)
    raw = plain.serialized_model_proto()
    source = sentencepiece.SentencePieceProcessor(model_proto=raw, **settings)
    vocab, texts = rt.Vocabulary.load(source), ["ab abc", "hello there"]
    assert [row.tolist() for row in vocab.encode_batch(texts)] == plain.encode(texts)
    assert rt.Guard(vocab).check(vocab.encode("ab abc")).canonical


def test_a_folder_with_several_tokenizers_is_refused(tmp_path) -> None:
    raw = trained(vocab_size=60).serialized_model_proto()
    for name in ("a.model", "b.model"):
        (tmp_path / name).write_bytes(raw)
    with pytest.raises(rt.RobustokError, match=r"pass the path of one .*\(a.model, b.model\)"):
        rt.Vocabulary.load(tmp_path)


def ranks(*merged: bytes) -> bytes:
    tokens = [*(bytes([b]) for b in range(256)), *merged]
    return b"\n".join(b"%s %d" % (base64.b64encode(t), i) for i, t in enumerate(tokens))


def test_a_file_of_ranks_needs_its_pattern(tmp_path, monkeypatch) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    raw = ranks(b"ab", b"abc")
    path = tmp_path / "some.tiktoken"
    path.write_bytes(raw)
    with pytest.raises(rt.RobustokError, match=r"lacks the pattern .* pass tiktoken.Encoding"):
        rt.Vocabulary.load(path)
    monkeypatch.setattr(libraries, "PATTERNS", {hashlib.sha256(raw).hexdigest()[:16]: r"\S+|\s+"})
    table = {bytes([b]): b for b in range(256)} | {b"ab": 256, b"abc": 257}
    same = tiktoken.Encoding("x", pat_str=r"\S+|\s+", mergeable_ranks=table, special_tokens={})
    for source in (path, tmp_path):
        vocab = rt.Vocabulary.load(source)
        assert vocab.encode("abc ab").tolist() == same.encode("abc ab") == [257, 32, 256]


ORIGINALS = {  # as tiktoken 0.14 writes them, with possessive quantifiers
    "306cd27f03c1a714":
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    "446a9538cb6c348e": O200K,
}  # fmt: skip


@pytest.mark.parametrize("digest", ORIGINALS)
def test_known_patterns_cut_as_those_of_tiktoken(digest) -> None:
    regex = pytest.importorskip("regex")
    parts = ("a", "B", "é", "12345", " ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "'", "!", "/",
             "根", "ǅ", "ʰ", "\u0301", "½", "\u3000", "\u2028", "😀")  # fmt: skip
    chosen = random.Random(0)
    for _ in range(2000):
        text = "".join(chosen.choices(parts, k=chosen.randrange(1, 14)))
        pattern = libraries.PATTERNS[digest]
        assert regex.findall(pattern, text) == regex.findall(ORIGINALS[digest], text)


def test_tekken_json_is_read_with_its_pattern_and_special_tokens(tmp_path) -> None:
    pytest.importorskip("tiktoken")
    tokens = [*(bytes([b]) for b in range(256)), b"ab", b"abc", b"never"]
    content = {
        "config": {"pattern": r"\S+|\s+", "num_vocab_tokens": 259, "default_vocab_size": 262,
                   "default_num_special_tokens": 4, "version": "v3"},
        "vocab": [
            {"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": None}
            for i, t in enumerate(tokens)
        ],
        "special_tokens": [{"rank": 1, "token_str": "<s>", "is_control": True}],
    }  # fmt: skip
    (tmp_path / "tekken.json").write_text(json.dumps(content))
    for source in (tmp_path, tmp_path / "tekken.json"):
        vocab = rt.Vocabulary.load(source)
        assert vocab.size == 262  # those above default_vocab_size are left out
        assert vocab.encode("abc ab").tolist() == [261, 36, 260]
        assert vocab.special == {0, 1, 2, 3} and vocab.tokens[1] == b"<s>"
        assert vocab.encode("<s>a", parse_special=True).tolist() == [1, 101]
        assert 1 not in vocab.encode("<s>a")
    content["vocab"][3]["token_bytes"] = "Q"
    (tmp_path / "tekken.json").write_text(json.dumps(content))
    with pytest.raises(rt.RobustokError, match=r"a damaged tekken\.json"):
        rt.Vocabulary.load(tmp_path)


ACCIDENTS = {
    b"version https://git-lfs.github.com/spec/v1\noid sha256:0": "pointer of Git LFS",
    b'{"model_type": "llama", "architectures": []}': "not a tokenizer.json (KeyError: 'model')",
    b"": "no tokenizer: pass a tokenizer.json",
    b"\x80\x04\x95": "no tokenizer: pass a tokenizer.json",
    b"\nhello": "not a SentencePiece model",
}


@pytest.mark.parametrize("content", ACCIDENTS)
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model"])
def test_what_is_no_tokenizer_is_named(content, name, tmp_path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(rt.RobustokError) as error:
        rt.Vocabulary.load(path)
    assert ACCIDENTS[content] in str(error.value)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config.json": {"model_type": "llama"}}, "transformers cannot read its tokenizer"),
        ({"tokenizer_config.json": {"tokenizer_class": "ByT5Tokenizer"}}, "as a ByT5Tokenizer"),
        (
            {"tokenizer_config.json": {"auto_map": {"AutoTokenizer": ["x.X", None]}},
             "tokenizer.json": json.loads(bpe())},
            "to read a file alone, such as tokenizer.json, pass its path",
        ),
        (
            {"tokenizer_config.json": PLAIN | {"added_tokens_decoder": {"x": 3}},
             "tokenizer.json": json.loads(bpe())},
            "the files beside tokenizer.json are malformed",
        ),
        (
            {"tokenizer_config.json": "version https://git-lfs.github.com/spec/v1",
             "tokenizer.json": json.loads(bpe())},
            "pointer of Git LFS",
        ),
    ],
)  # fmt: skip
def test_a_folder_that_transformers_cannot_read_is_one_line(files, message, tmp_path) -> None:
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name).write_text(text)
    with pytest.raises(rt.RobustokError) as error:
        rt.Vocabulary.load(tmp_path)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_unigram_file_need_not_say_its_type(tmp_path) -> None:
    spec = json.loads(unigram().to_str())
    del spec["model"]["type"]
    text = json.dumps(spec)
    (tmp_path / "tokenizer.json").write_text(text)
    vocab = rt.Vocabulary.load(tmp_path)
    assert vocab.encode("ab a").tolist() == Tokenizer.from_str(text).encode("ab a").ids
    assert vocab.data.family == "sentencepiece Unigram" and vocab.data.scores


def test_the_tokenizer_of_the_package_is_small_and_takes_any_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path(str(rt.__file__)).parent / "tokenizer/demo.json"
    vocab = rt.Vocabulary.load("demo")
    assert file.stat().st_size < 100_000 and vocab.size == 4000
    assert [vocab.tokens[i] for i in vocab.encode("hello world")] == [b"hello", b" world"]
    assert vocab.decode_bytes(vocab.encode(bytes(range(256)))) == bytes(range(256))
    assert load_tokenizer("demo")("hello")["input_ids"] == vocab.encode("hello").tolist()
    assert load_tokenizer("demo").eos_token == "<|endoftext|>"
    save_tokenizer("demo", tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == file.read_bytes()
    external_model = pytest.importorskip("robustok.study.inputs").external_model
    cell = external_model("demo")
    assert cell.hub_names == () and cell.identity != external_model("smollm2-135m").identity
    (tmp_path / "demo").write_text(bpe(), encoding="utf-8")  # a file comes first
    assert rt.Vocabulary.load("demo").size < 300


def test_a_sentencepiece_model_without_protobuf_is_refused_in_one_line(monkeypatch) -> None:
    processor = trained(vocab_size=60)
    assert rt.Vocabulary.load(processor).encode("a").size
    monkeypatch.setitem(sys.modules, "sentencepiece.sentencepiece_model_pb2", None)
    with pytest.raises(rt.RobustokError, match="pip install -U sentencepiece protobuf'") as error:
        rt.Vocabulary.load(processor)
    assert "\n" not in str(error.value)
