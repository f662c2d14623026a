"""Read any tokenizer we understand into one plain form: every token as bytes, and an encoder.

Byte-level BPE, SentencePiece-style BPE and Unigram come in through tokenizer.json, a
``tokenizers`` or transformers tokenizer, a tiktoken ``Encoding`` or a SentencePiece model.
What it does not read: WordPiece and WordLevel, whose tokens are not pieces of the text's bytes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from robustok.errors import RobustokError


class Encoder(Protocol):
    """Texts in, canonical ids out: no special tokens added, none parsed from the text."""

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]: ...

    def normalize(self, text: str) -> str | None:
        """The text whose UTF-8 the ids decode to, or None where only encoding can tell."""
        ...


@dataclass(frozen=True)
class TokenizerData:
    """A tokenizer as plain data.

    ``tokens[i]`` is the bytes of id i (empty where there is no such id), ``ordinary`` the ids a
    text may be cut into, ``bytes_fallback`` the ids that spell one raw byte beside the ordinary
    vocabulary, ``merges`` the BPE merge list as int32 pairs of ids, ``scores`` the Unigram scores.
    """

    tokens: list[bytes]
    ordinary: frozenset[int]
    byte_fallback: frozenset[int]
    encoder: Encoder
    family: str
    merges: np.ndarray | None = None
    ignore_merges: bool = False
    scores: dict[int, float] | None = None
    source: Any = field(default=None, repr=False)


def read_tokenizer(source: Any) -> TokenizerData:
    """Read a path, a hub name or a tokenizer object.

    Raises RobustokError for a missing or broken file and for tokenizers whose tokens are not bytes
    of the text.
    """
    data = _read(source)
    give_back_memory()
    return data


def give_back_memory() -> None:
    """Return to the system what reading a large tokenizer took for a moment, where libc can.

    For Llama 3's it is 150 MB, which glibc otherwise holds on to in every process.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _read(source: Any) -> TokenizerData:
    if isinstance(source, (str, Path)):
        return _from_name(str(source))
    module = type(source).__module__.split(".")[0]
    if module == "tiktoken":
        return _from_tiktoken(source)
    if module == "sentencepiece":
        return _from_sentencepiece(source)
    if module == "tokenizers":
        return _from_json(source.to_str(), "the tokenizer object")
    backend = getattr(source, "backend_tokenizer", None)
    if backend is not None:
        return _from_json(backend.to_str(), "the tokenizer object")
    raise RobustokError(
        f"cannot read a tokenizer from {type(source).__name__}: pass a path, a hub name, or a "
        "tokenizers, transformers (fast), tiktoken or sentencepiece object"
    )


def _from_name(name: str) -> TokenizerData:
    path = Path(name)
    if path.is_dir():
        for file in ("tokenizer.json", "tokenizer.model"):
            if (path / file).is_file():
                return _from_name(str(path / file))
        raise RobustokError(f"{name}: the folder has no tokenizer.json and no tokenizer.model")
    if path.is_file():
        if path.suffix == ".model":
            return _from_model_file(path)
        try:
            text = path.read_text(encoding="utf8")
        except (OSError, UnicodeDecodeError) as e:
            raise RobustokError(f"{name}: not readable as a tokenizer.json ({e})") from e
        return _from_json(text, name)
    looks_like_path = name.endswith((".json", ".model")) or name.count("/") > 1 or name[:1] in "./~"
    if looks_like_path:
        raise RobustokError(f"{name}: no such tokenizer file or folder")
    from tokenizers import Tokenizer

    try:
        return _from_json(Tokenizer.from_pretrained(name).to_str(), name)
    except RobustokError:
        raise
    except Exception as e:  # the hub client raises many kinds, all of them with the same cure
        raise RobustokError(
            f"{name}: no such file or folder, and the hub gave no tokenizer of that name "
            f"({str(e).splitlines()[0][:120]})"
        ) from e


# --- tokenizer.json -------------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenizersEncoder:
    """The Rust tokenizer, stripped of truncation, padding and dropout."""

    tokenizer: Any
    prefix: str
    metaspace: bool
    exact: bool
    added: tuple[str, ...]

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]:
        tokenizer = self.tokenizer
        if tokenizer.encode_special_tokens == parse_special:
            tokenizer.encode_special_tokens = not parse_special
        return [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def normalize(self, text: str) -> str | None:
        if not self.exact or any(a in text for a in self.added):
            return None
        if self.tokenizer.normalizer is not None:
            text = self.tokenizer.normalizer.normalize_str(text)
        if self.metaspace:
            text = text.replace("▁", " ")
        return self.prefix + text if self.prefix and text and text[0] != self.prefix else text


def byte_alphabet() -> dict[str, int]:
    """GPT-2's printable character of each byte, as character → byte.

    >>> byte_alphabet()["Ġ"]
    32
    """
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(hidden)}


def steps(part: dict | None, key: str) -> list[dict]:
    """A pipeline stage as a flat list: a Sequence is opened, None is empty."""
    if part is None:
        return []
    return [s for p in part[key] for s in steps(p, key)] if part["type"] == "Sequence" else [part]


def _from_json(text: str, name: str) -> TokenizerData:
    from tokenizers import Tokenizer

    try:
        spec = json.loads(text)
        model, added = spec["model"], spec.get("added_tokens") or []
        kind = model.get("type") or ("BPE" if "merges" in model else "unknown")
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise RobustokError(f"{name}: not a tokenizer.json ({type(e).__name__}: {e})") from e
    if kind not in ("BPE", "Unigram"):
        raise RobustokError(
            f"{name}: a {kind} tokenizer is not supported, its tokens are not bytes of the text "
            "(supported: BPE and Unigram)"
        )
    for affix in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(affix):
            raise RobustokError(f"{name}: BPE with {affix} {model[affix]!r} is not supported")
    decoders = [s["type"] for s in steps(spec.get("decoder"), "decoders")]
    pre = steps(spec.get("pre_tokenizer"), "pretokenizers")
    byte_level = "ByteLevel" in decoders or any(s["type"] == "ByteLevel" for s in pre)
    metaspace = not byte_level and (
        "▁" in json.dumps(spec.get("decoder"), ensure_ascii=False)
        or any(s["type"] == "Metaspace" for s in pre)
        or "Metaspace" in decoders
    )
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as e:  # the Rust side raises a bare Exception
        raise RobustokError(f"{name}: the tokenizers library refuses it ({e})") from e
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if kind == "BPE" and model.get("dropout"):
        tokenizer.model.dropout = None
    vocab = _vocab_of(model, kind, name)
    tokens, ordinary, fallback = _token_bytes(vocab, added, byte_level, metaspace, model, name)
    encoder = TokenizersEncoder(
        tokenizer,
        prefix=" "
        if any(s["type"] == "ByteLevel" and s.get("add_prefix_space") for s in pre)
        else "",
        metaspace=metaspace,
        exact=(byte_level or bool(model.get("byte_fallback")))
        and not any(s["type"] == "Metaspace" for s in pre),
        added=tuple(a["content"] for a in added if not a["special"] and a["id"] not in ordinary),
    )
    merges = scores = None
    if kind == "BPE":
        pairs = (m.split(" ") if isinstance(m, str) else m for m in model["merges"])
        merges = np.array([(vocab[a], vocab[b]) for a, b in pairs], np.int32).reshape(-1, 2)
    else:
        scores = {i: float(piece[1]) for i, piece in enumerate(model["vocab"])}
    family = "byte-level" if byte_level else "sentencepiece"
    return TokenizerData(
        tokens, ordinary, fallback, encoder, f"{family} {kind}", merges,
        bool(model.get("ignore_merges")), scores, tokenizer,
    )  # fmt: skip


def _vocab_of(model: dict, kind: str, name: str) -> dict[str, int]:
    if kind == "Unigram":
        return {piece[0]: i for i, piece in enumerate(model["vocab"])}
    if not isinstance(model.get("vocab"), dict) or "merges" not in model:
        raise RobustokError(f"{name}: the BPE model has no vocabulary or no merges")
    return model["vocab"]


def _token_bytes(
    vocab: dict[str, int],
    added: list[dict],
    byte_level: bool,
    metaspace: bool,
    model: dict,
    name: str,
) -> tuple[list[bytes], frozenset[int], frozenset[int]]:
    size = max([*vocab.values(), *(a["id"] for a in added)], default=-1) + 1
    tokens: list[bytes] = [b""] * size
    added_ids = {a["id"]: a for a in added}
    unknown = model.get("unk_token")
    unknown_id = vocab.get(unknown) if isinstance(unknown, str) else model.get("unk_id")
    ordinary, fallback = set(), set()
    alphabet = byte_alphabet()
    for piece, i in vocab.items():
        entry = added_ids.get(i)
        if i == unknown_id or (entry is not None and entry["special"]):
            tokens[i] = piece.encode()
            continue
        if entry is not None:  # a user-defined symbol of the model itself: plain text
            tokens[i] = piece.encode().replace("▁".encode(), b" ") if metaspace else piece.encode()
        elif byte_level:
            try:
                tokens[i] = bytes([alphabet[c] for c in piece])
            except KeyError as e:
                raise RobustokError(
                    f"{name}: token {piece!r} (id {i}) is not in the byte-level alphabet"
                ) from e
        elif model.get("byte_fallback") and len(piece) == 6 and piece.startswith("<0x"):
            tokens[i] = bytes([int(piece[3:5], 16)])
            fallback.add(i)
        else:
            tokens[i] = (piece.replace("▁", " ") if metaspace else piece).encode()
        if tokens[i]:
            ordinary.add(i)
    for entry in added:  # control tokens keep their text, so that decoding shows them
        if entry["id"] not in ordinary:
            tokens[entry["id"]] = entry["content"].encode()
    return tokens, frozenset(ordinary), frozenset(fallback)


# --- tiktoken -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TiktokenEncoder:
    """A tiktoken ``Encoding``; its texts are never changed."""

    encoding: Any

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]:
        if parse_special:
            return self.encoding.encode_batch(list(texts), allowed_special="all", num_threads=1)
        return self.encoding.encode_ordinary_batch(list(texts), num_threads=1)

    def normalize(self, text: str) -> str | None:
        return text


def _from_tiktoken(encoding: Any) -> TokenizerData:
    ranks: dict[bytes, int] = encoding._mergeable_ranks
    special: dict[str, int] = encoding._special_tokens
    tokens: list[bytes] = [b""] * (max([*ranks.values(), *special.values()]) + 1)
    for text, i in special.items():
        tokens[i] = text.encode()
    for token, i in ranks.items():
        tokens[i] = token
    ordinary = frozenset(ranks.values()) - frozenset(special.values())
    return TokenizerData(
        tokens, ordinary, frozenset(), TiktokenEncoder(encoding), "byte-level BPE", source=encoding
    )


# --- SentencePiece --------------------------------------------------------------------------------


@dataclass(frozen=True)
class SentencePieceEncoder:
    """A SentencePiece model; its normalizer decides what the text becomes."""

    processor: Any

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]:
        return self.processor.encode(list(texts), out_type=int)

    def normalize(self, text: str) -> str | None:
        return None


def _from_sentencepiece(processor: Any) -> TokenizerData:
    size = processor.get_piece_size()
    tokens: list[bytes] = [b""] * size
    ordinary, fallback = set(), set()
    for i in range(size):
        piece = processor.id_to_piece(i)
        if processor.is_control(i) or processor.is_unknown(i):
            tokens[i] = piece.encode()
            continue
        if processor.is_byte(i):
            tokens[i] = bytes([int(piece[3:5], 16)])
            fallback.add(i)
        else:
            tokens[i] = piece.replace("▁", " ").encode()
        ordinary.add(i)
    scores = {i: processor.get_score(i) for i in ordinary}
    return TokenizerData(
        tokens, frozenset(ordinary), frozenset(fallback), SentencePieceEncoder(processor),
        f"sentencepiece {_model_kind(processor.serialized_model_proto())}", scores=scores,
        source=processor,
    )  # fmt: skip


def _model_kind(proto: bytes) -> str:
    """Unigram or BPE: ``trainer_spec.model_type`` (fields 2 and 3) of a serialized model."""
    trainer = _proto_field(proto, 2)
    kind = _proto_field(trainer, 3) if isinstance(trainer, bytes) else None
    kinds = {2: "BPE", 3: "word", 4: "character"}
    return kinds.get(kind, "Unigram") if isinstance(kind, int) else "Unigram"


def _proto_field(proto: bytes, number: int) -> bytes | int | None:
    """The last value of one field of a protocol buffer, or None."""
    found: bytes | int | None = None
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            value |= (proto[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if proto[at - 1] < 128:
                return value

    while at < len(proto):
        tag = varint()
        value: bytes | int
        if tag & 7 == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(tag & 7) or varint()
            value = proto[at : at + size]
            at += size
        if tag >> 3 == number:
            found = value
    return found


def _from_model_file(path: Path) -> TokenizerData:
    try:
        import sentencepiece
    except ImportError as e:
        raise RobustokError(
            f"{path}: reading a SentencePiece model needs 'pip install sentencepiece', "
            "or pass the tokenizer.json"
        ) from e
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.Load(str(path))
    except (RuntimeError, OSError) as e:
        raise RobustokError(
            f"{path}: not a SentencePiece model; for a tiktoken file pass tiktoken's Encoding, "
            "or the tokenizer.json beside it"
        ) from e
    return _from_sentencepiece(processor)
