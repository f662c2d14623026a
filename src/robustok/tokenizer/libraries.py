"""Tokenizers of tiktoken and SentencePiece: objects and files to bytes, scores and an encoder.

A file of ranks (``.tiktoken``, and the ``tokenizer.model`` of Llama 3) lacks the pattern that cuts
texts; :data:`PATTERNS` has those of published files, by their SHA-256. tekken.json of Mistral has
its pattern. What it does not read: tokenizers of the ``tokenizers`` library
(:mod:`robustok.tokenizer.tokenizer_json`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from robustok.errors import RobustokError
from robustok.tokenizer.data import Spelling, TokenizerData, library_errors
from robustok.tokenizer.stages import Stages
from robustok.tokenizer.tokenizers_api import AddedToken

_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# Unlike that of Llama 3, it takes all whitespace at the end of a text as one.
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
_DIGITS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CASES = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_THREE_DIGITS, _ONE_DIGIT = _DIGITS.format(r"\p{N}{1,3}"), _DIGITS.format(r"\p{N}")
# The pattern of a published file of ranks, by the start of the file's SHA-256.
PATTERNS = {
    "306cd27f03c1a714": _GPT2,  # r50k_base of OpenAI, gpt2 of Whisper
    "b34b360dbb493e78": _GPT2,  # multilingual of Whisper
    "94b5ca7dff4d0076": _GPT2,  # p50k_base
    "223921b76ee99bde": _CL100K,  # cl100k_base
    "82e9d31979e92ab9": _THREE_DIGITS,  # Llama 3
    "b2b1b8dfb5cc5f02": _ONE_DIGIT,  # Qwen
    "446a9538cb6c348e": _CASES,  # o200k_base
}


def library(module: str, name: str, what: str, packages: str = "") -> Any:
    """The module of an optional library, which ``packages`` install, that ``what`` needs."""
    try:
        return import_module(module)
    except Exception as e:  # protobuf raises errors of its own where its release does not fit
        raise RobustokError(
            f"{name}: reading {what} needs 'pip install {packages or module}', or pass the "
            "tokenizer.json"
        ) from e


@dataclass(frozen=True)
class TiktokenEncoder:
    """A tiktoken ``Encoding``."""

    encoding: Any

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]:
        with library_errors("tiktoken cannot encode this text"):
            if parse_special:
                return self.encoding.encode_batch(list(texts), allowed_special="all", num_threads=1)
            return self.encoding.encode_ordinary_batch(list(texts), num_threads=1)


def from_tiktoken(encoding: Any) -> TokenizerData:
    """The tokenizer of a tiktoken ``Encoding``."""
    ranks: dict[bytes, int] = encoding._mergeable_ranks
    special: dict[str, int] = encoding._special_tokens
    tokens: list[bytes] = [b""] * (max([*ranks.values(), *special.values()]) + 1)
    for text, i in special.items():
        tokens[i] = text.encode()
    for token, i in ranks.items():
        if tokens[i] not in (b"", token):
            raise RobustokError(
                f"the special token {tokens[i].decode()!r} has the id {i} of token {token!r}"
            )
        tokens[i] = token
    ordinary = {*ranks.values()} - {*special.values()}
    return TokenizerData(
        tokens,
        array("i", ordinary),
        frozenset(),
        TiktokenEncoder(encoding),
        "byte-level BPE",
        library=encoding,
        stages=Stages.of_pattern(encoding._pat_str),
    )


def open_ranks(raw: bytes, name: str) -> Any:
    """The tiktoken ``Encoding`` of a published file of ranks, without special tokens.

    ``raw``: the file, which has a token in base64, a space and its rank a line.
    """
    pattern = PATTERNS.get(hashlib.sha256(raw).hexdigest()[:16])
    if pattern is None:
        raise RobustokError(
            f"{name}: a tiktoken file of ranks, which lacks the pattern that cuts texts: pass"
            " tiktoken.Encoding(name, pat_str=PATTERN, mergeable_ranks=tiktoken.load"
            ".load_tiktoken_bpe(FILE), special_tokens={}), or the model's tokenizer.json"
        )
    tiktoken = library("tiktoken", name, "a file of ranks")
    ranks = {}
    for line in raw.splitlines():
        token, _, rank = line.partition(b" ")
        ranks[base64.b64decode(token)] = int(rank)
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def open_tekken(text: str, name: str) -> Any:
    """The tiktoken ``Encoding`` of a tekken.json.

    ``text``: the file, which has a pattern, tokens by rank, and special tokens with the first ids.
    """
    tiktoken = library("tiktoken", name, "a tekken.json")
    try:
        data = json.loads(text)
        config = data["config"]
        reserved, size = config["default_num_special_tokens"], config["default_vocab_size"]
        special = {f"<SPECIAL_{i}>": i for i in range(reserved)}
        for token in data.get("special_tokens") or ():
            special.pop(f"<SPECIAL_{token['rank']}>", None)
            special[token["token_str"]] = token["rank"]
        ranks = {
            base64.b64decode(token["token_bytes"]): token["rank"] + reserved
            for token in data["vocab"][: size - reserved]
        }
        return tiktoken.Encoding(
            name, pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens=special
        )
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as e:
        raise RobustokError(f"{name}: a damaged tekken.json ({type(e).__name__}: {e})") from e


_MODEL_TYPES = {"UNIGRAM": "Unigram", "BPE": "BPE", "WORD": "word", "CHAR": "character"}


@dataclass(frozen=True)
class SentencePieceEncoder:
    """A SentencePiece model, with the normalizer that it applies to a text.

    The library finds no control pieces, such as `</s>`, in a text. Their ids are set here, and the
    texts between them are encoded each by itself.
    """

    processor: Any
    control: Mapping[str, int]

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]:
        with library_errors("SentencePiece cannot encode this text"):
            if not (parse_special and self.control):
                return self.processor.encode(list(texts), out_type=int)
            longest_first = sorted(self.control, key=len, reverse=True)
            pattern = re.compile(f"({'|'.join(map(re.escape, longest_first))})")
            return [
                [i for part in pattern.split(text) for i in self._encode_part(part)]
                for text in texts
            ]

    def _encode_part(self, part: str) -> list[int]:
        if part in self.control:
            return [self.control[part]]
        return self.processor.encode(part, out_type=int)


def open_sentencepiece(raw: bytes, name: str) -> Any:
    """The ``SentencePieceProcessor`` of a model file; ``name`` is what messages call it."""
    sentencepiece = library("sentencepiece", name, "a SentencePiece model")
    processor = sentencepiece.SentencePieceProcessor()
    with library_errors(f"{name}: not a SentencePiece model"):
        processor.LoadFromSerializedProto(raw)
    return processor


def from_processor(processor: Any, name: str) -> TokenizerData:
    """The tokenizer of a ``SentencePieceProcessor``; ``name`` is what messages call it."""
    with library_errors(f"{name}: a damaged SentencePiece model"):
        return _read(processor, _proto_of(processor, name))


def _proto_of(processor: Any, name: str) -> Any:
    """The ``ModelProto`` of a model: its pieces, and the settings of its trainer and normalizer."""
    what, packages = "a SentencePiece model", "-U sentencepiece protobuf"
    module = library("sentencepiece.sentencepiece_model_pb2", name, what, packages)
    return module.ModelProto.FromString(processor.serialized_model_proto())


def _read(processor: Any, proto: Any) -> TokenizerData:
    trainer, normalizer, kinds = proto.trainer_spec, proto.normalizer_spec, proto.SentencePiece
    of_kind: dict[int, dict[str, int]] = {kind: {} for kind in kinds.Type.values()}
    for i, piece in enumerate(proto.pieces):
        of_kind[piece.type][piece.piece] = i
    normal, in_bytes = of_kind[kinds.NORMAL], of_kind[kinds.BYTE]
    defined, unused = of_kind[kinds.USER_DEFINED], of_kind[kinds.UNUSED]
    texts = normal | defined | unused
    tokens = [piece.piece.encode() for piece in proto.pieces]
    for text, i in texts.items():
        tokens[i] = text.replace("▁", " ").encode()
    for name, i in in_bytes.items():
        tokens[i] = bytes([int(name[3:5], 16)])
    fallback = {*in_bytes.values()}
    ordinary = {*texts.values()} | fallback
    kind = _MODEL_TYPES[trainer.ModelType.Name(trainer.model_type)]
    unknown = processor.unk_id() if len(fallback) < 256 else None
    spaces = {i for i in ordinary if tokens[i] == b" "}
    spaces = spaces if spaces <= fallback else set()
    space = b" " * normalizer.add_dummy_prefix
    at_end = trainer.treat_whitespace_as_suffix
    spelling = Spelling(
        # The encoder writes a space as the bytes of "▁", never as its own byte.
        placed=frozenset(spaces if unknown is None else spaces | {unknown}),
        unknown=unknown,
        prefix=b"" if at_end else space,
        suffix=space if at_end else b"",
        marked=True,
        # Where spaces are removed, the decoder leaves out a "▁" of each of the first tokens.
        lossy=(b"  ",) * normalizer.remove_extra_whitespaces,
    )
    ordinary -= spaces
    return TokenizerData(
        tokens,
        array("i", ordinary),
        frozenset(fallback),
        SentencePieceEncoder(processor, of_kind[kinds.CONTROL]),
        f"sentencepiece {kind}",
        scores={i: processor.get_score(i) for i in ordinary},
        library=processor,
        added={i: AddedToken(tokens[i].decode()) for i in defined.values()},
        spelling=spelling,
    )
