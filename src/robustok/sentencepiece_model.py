"""Read a SentencePiece model as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robustok.errors import RobustokError
from robustok.tokenizer_data import IdSet, TokenizerData, library_errors


@dataclass(frozen=True)
class SentencePieceEncoder:
    """A SentencePiece model, with the normalizer that it applies to a text."""

    processor: Any

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]:
        with library_errors("SentencePiece cannot encode this text"):
            return self.processor.encode(list(texts), out_type=int)

    def normalize(self, text: str) -> str | None:
        return None


def from_model_file(path: Path) -> TokenizerData:
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
    return from_processor(processor, str(path))


def from_processor(processor: Any, name: str = "the SentencePiece model") -> TokenizerData:
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
        tokens, IdSet(ordinary), frozenset(fallback), SentencePieceEncoder(processor),
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
    last: bytes | int | None = None
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
            last = value
    return last
