"""Read tokenizer files and objects into one form: every token as bytes, and an encoder.

Byte-level BPE, SentencePiece-style BPE and Unigram come in through tokenizer.json, a
``tokenizers`` or transformers tokenizer, a tiktoken ``Encoding`` or a SentencePiece model.
What it does not read: WordPiece and WordLevel, whose tokens are not parts of the text's bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from robustok.checks import shown
from robustok.errors import RobustokError
from robustok.runtime.hub import (
    check_hub_name,
    hub_failure,
    is_packaged,
    is_unreachable,
    packaged_folder,
    packaged_hint,
    split_revision,
)
from robustok.tokenizer.data import TokenizerData, library_errors
from robustok.tokenizer.stages import Stages
from robustok.tokenizer.tokenizer_json import check_no_holes, errors_name, from_json

_OBJECT = "the tokenizer object"  # what errors call it


def read_tokenizer(source: Any) -> TokenizerData:
    """Read a path, a hub name or a tokenizer object.

    Raises RobustokError for a missing or broken file and for tokenizers whose tokens are not bytes
    of the text.
    """
    if isinstance(source, (str, Path)):
        return _from_name(str(source))
    source = getattr(source, "wrapped_tokenizer", source)  # of one that draws: the canonical one
    module = type(source).__module__.split(".")[0]
    if module == "tiktoken":
        return _from_tiktoken(source)
    if module == "sentencepiece":
        return _from_processor(source)
    if module == "tokenizers":
        return _from_object(source)
    backend = getattr(source, "backend_tokenizer", None)
    if backend is not None:
        return _from_object(backend)
    raise RobustokError(
        f"cannot read a tokenizer from {type(source).__name__}: pass a path, a hub name, or a "
        "tokenizers, transformers (fast), tiktoken or sentencepiece object"
    )


def _from_object(tokenizer: Any) -> TokenizerData:
    if type(tokenizer.model).__name__ == "BPE":
        with errors_name(_OBJECT):
            check_no_holes(tokenizer.get_vocab(with_added_tokens=False))
    return from_json(tokenizer.to_str(), _OBJECT)


def _from_name(name: str) -> TokenizerData:
    path = Path(name)
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except OSError as e:
        raise RobustokError(f"{shown(name)}: no file, no folder and no hub name ({e})") from e
    if is_folder:
        for file in ("tokenizer.json", "tokenizer.model"):
            if (path / file).is_file():
                return _from_name(str(path / file))
        raise RobustokError(f"{name}: the folder has no tokenizer.json and no tokenizer.model")
    if is_file:
        if path.suffix == ".model":
            return _from_model_file(path)
        try:
            text = path.read_text(encoding="utf8")
        except (OSError, UnicodeDecodeError) as e:
            raise RobustokError(f"{name}: not readable as a tokenizer.json ({e})") from e
        return from_json(text, name)
    if is_packaged(name):
        return _from_name(str(packaged_folder(name)))
    check_hub_name(name, "tokenizer")
    return _from_hub(name)


def _from_hub(name: str) -> TokenizerData:
    """The tokenizer of a hub repository, ``owner/name`` or ``owner/name@revision``."""
    from huggingface_hub import hf_hub_download

    repository, revision = split_revision(name)
    try:
        file = hf_hub_download(
            repository, "tokenizer.json", revision=revision, local_files_only=is_unreachable()
        )
    except Exception as e:  # the hub client raises many kinds, all of them with the same cure
        raise RobustokError(
            f"{name}: no such file or folder, and the hub gave no tokenizer of that name "
            f"({hub_failure(e)[:120]}){packaged_hint(name)}"
        ) from e
    path = Path(file)
    # The hub's cache keeps a file under snapshots/COMMIT/.
    commit = path.parent.name if path.parent.parent.name == "snapshots" else None
    return replace(_from_name(str(path)), revision=commit)


@dataclass(frozen=True)
class TiktokenEncoder:
    """A tiktoken ``Encoding``; its texts are never changed."""

    encoding: Any
    complete: bool  # every byte has a token

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]:
        with library_errors("tiktoken cannot encode this text"):
            if parse_special:
                return self.encoding.encode_batch(list(texts), allowed_special="all", num_threads=1)
            return self.encoding.encode_ordinary_batch(list(texts), num_threads=1)

    def normalize(self, text: str) -> str | None:
        return text if self.complete else None


def _from_tiktoken(encoding: Any) -> TokenizerData:
    ranks: dict[bytes, int] = encoding._mergeable_ranks
    special: dict[str, int] = encoding._special_tokens
    tokens: list[bytes] = [b""] * (max([*ranks.values(), *special.values()]) + 1)
    for text, i in special.items():
        tokens[i] = text.encode()
    for token, i in ranks.items():
        tokens[i] = token
    ordinary = {*ranks.values()} - {*special.values()}
    complete = len({tokens[i] for i in ordinary if len(tokens[i]) == 1}) == 256
    return TokenizerData(
        tokens, array("i", ordinary), frozenset(), TiktokenEncoder(encoding, complete),
        "byte-level BPE", source=encoding, stages=Stages.of_pattern(encoding._pat_str),
    )  # fmt: skip


@dataclass(frozen=True)
class SentencePieceEncoder:
    """A SentencePiece model, with the normalizer that it applies to a text."""

    processor: Any

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]:
        with library_errors("SentencePiece cannot encode this text"):
            return self.processor.encode(list(texts), out_type=int)

    def normalize(self, text: str) -> str | None:
        return None


def _from_model_file(path: Path) -> TokenizerData:
    """The tokenizer of a SentencePiece ``.model`` file."""
    try:
        import sentencepiece
    except ImportError as e:
        raise RobustokError(
            f"{path}: reading a SentencePiece model needs 'pip install sentencepiece', "
            "or pass the tokenizer.json"
        ) from e
    processor = sentencepiece.SentencePieceProcessor()
    with library_errors(
        f"{path}: not a SentencePiece model; for a tiktoken file pass tiktoken's Encoding, "
        "or the tokenizer.json beside it"
    ):
        processor.Load(str(path))
    return _from_processor(processor, str(path))


def _from_processor(processor: Any, name: str = "the SentencePiece model") -> TokenizerData:
    """The tokenizer of a ``SentencePieceProcessor``; ``name`` is what messages call it."""
    with library_errors(f"{name}: a damaged SentencePiece model"):
        return _read(processor)


def _read(processor: Any) -> TokenizerData:
    size = processor.get_piece_size()
    tokens: list[bytes] = [b""] * size
    ordinary, fallback = set(), set()
    for i in range(size):
        spelling = processor.id_to_piece(i)
        if processor.is_control(i) or processor.is_unknown(i):
            tokens[i] = spelling.encode()
            continue
        if processor.is_byte(i):
            tokens[i] = bytes([int(spelling[3:5], 16)])
            fallback.add(i)
        else:
            tokens[i] = spelling.replace("▁", " ").encode()
        ordinary.add(i)
    scores = {i: processor.get_score(i) for i in ordinary}
    return TokenizerData(
        tokens, array("i", ordinary), frozenset(fallback), SentencePieceEncoder(processor),
        f"sentencepiece {_model_kind(processor.serialized_model_proto())}", scores=scores,
        source=processor,
    )  # fmt: skip


def _model_kind(proto: bytes) -> str:
    """Unigram or BPE: ``trainer_spec.model_type`` (fields 2 and 3) of a serialized model."""
    trainer = dict(_proto_fields(proto)).get(2)
    kind = dict(_proto_fields(trainer)).get(3, 1) if isinstance(trainer, bytes) else 1
    return {2: "BPE", 3: "word", 4: "character"}.get(kind, "Unigram")


def _proto_fields(proto: bytes) -> Iterator[tuple[int, Any]]:
    """The number and the value of each field of a protocol buffer, an integer or bytes."""
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
        if tag & 7 == 0:
            yield tag >> 3, varint()
        else:
            size = {1: 8, 5: 4}.get(tag & 7) or varint()
            yield tag >> 3, proto[at : at + size]
            at += size
