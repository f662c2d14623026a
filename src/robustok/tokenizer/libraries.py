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
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from robustok.errors import RobustokError
from robustok.tokenizer.data import (
    USED_BYTES,
    Spelling,
    TokenizerData,
    byte_alphabet,
    library_errors,
)
from robustok.tokenizer.stages import Stages, isolating, spelling_bytes
from robustok.tokenizer.tokenizers_api import AddedToken, tokenizer_json

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
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_THREE_DIGITS, _ONE_DIGIT = _DIGITS.format(r"\p{N}{1,3}"), _DIGITS.format(r"\p{N}")
# By pattern: one of gigatoken's, as a tokenizer.json has it, that cuts every text alike.
SAME_CUTS = {pattern: pattern for pattern in (_GPT2, _THREE_DIGITS, _ONE_DIGIT, _CASES, _TEKKEN)}
SAME_CUTS |= {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": _GPT2,
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s": _GPT2,
    _CL100K: _CL100K + "+",  # where two spaces are left, `\s+(?!\S)` has taken the first
}
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
    """The module of an optional library that ``what`` of file ``name`` needs, imported.

    ``packages``: what installs it, if not a package of its name.
    """
    try:
        return import_module(module)
    except Exception as e:  # protobuf raises errors of its own where its release does not fit
        raise RobustokError(
            f"{name}: reading {what} needs 'pip install {packages or module}', or pass the "
            "tokenizer.json"
        ) from e


def _bpe_json(
    ids: dict[str, int],
    size: int,
    merges: Iterable[list[str]],
    settings: dict[str, Any],
    pre_tokenizer: dict | None,
    normalizer: dict | None = None,
) -> str:
    """A tokenizer.json of a BPE; ``settings``: those of its model that are true.

    It may list every two tokens that spell a third: of the cuts of a token in two, each text that
    has one has the one to which the library brings the token itself, which is the state before its
    last merge. So the order of the cuts of one token does not count.
    """
    taken = {*ids.values()}
    # Other names leave no hole in the ids.
    names = {f"\0{i}": i for i in range(size) if i not in taken}
    model = {"type": "BPE", "vocab": ids | names, "merges": [*merges]}
    return tokenizer_json(model | settings, pre_tokenizer, normalizer)


@dataclass(frozen=True)
class TiktokenEncoder:
    """A tiktoken ``Encoding``.

    ``complete``: every byte of UTF-8 has a token, and the pattern is known to cut every text
    without a rest, which tiktoken would leave out.
    """

    encoding: Any
    complete: bool

    @property
    def model_obstacle(self) -> str | None:
        """Why no tokenizer.json is known to give the same ids."""
        if self.encoding._pat_str not in SAME_CUTS:
            return "gigatoken does not know this pattern"
        return None if self.complete else "the vocabulary lacks bytes"

    def model_json(self) -> str:
        """A tokenizer.json with the same ids."""
        ranks: dict[bytes, int] = self.encoding._mergeable_ranks
        letters = {byte: letter for letter, byte in byte_alphabet().items()}
        ids = {
            token.decode("latin1").translate(letters): i
            for token, i in sorted(ranks.items(), key=lambda item: item[1])
        }
        merges = (
            [token[:i], token[i:]]
            for token in ids
            for i in range(1, len(token))
            if token[:i] in ids and token[i:] in ids
        )
        stages = [isolating(SAME_CUTS[self.encoding._pat_str]), spelling_bytes()]
        return _bpe_json(
            ids,
            self.encoding.n_vocab,
            merges,
            {"ignore_merges": True},
            {"type": "Sequence", "pretokenizers": stages},
        )

    def over(self, tokens: list[bytes]) -> TiktokenEncoder:
        """The encoder that cuts like this one and has other tokens, by id."""
        encoding = type(self.encoding)(
            "probe",
            pat_str=self.encoding._pat_str,
            special_tokens={},
            mergeable_ranks={token: i for i, token in enumerate(tokens)},
        )
        return TiktokenEncoder(encoding, True)

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
    has_bytes = {tokens[i][0] for i in ordinary if len(tokens[i]) == 1} >= USED_BYTES
    complete = has_bytes and encoding._pat_str in SAME_CUTS
    return TokenizerData(
        tokens,
        array("i", ordinary),
        frozenset(),
        TiktokenEncoder(encoding, complete),
        "byte-level BPE",
        source=encoding,
        stages=Stages.of_pattern(encoding._pat_str),
    )


def open_ranks(raw: bytes, name: str) -> Any:
    """The tiktoken ``Encoding`` of a published file of ranks, without special tokens.

    Args:
        raw: the file: a token in base64, a space and its rank a line.
        name: what messages call it.

    Raises RobustokError for a file whose pattern is not known, and for a damaged one.
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

    Args:
        text: the file: a pattern, tokens by rank, and special tokens, whose ids come first.
        name: what messages call it.

    Raises RobustokError for a damaged file.
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


SPACES_AS_MARKS = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
_MODEL_TYPES = {"UNIGRAM": "Unigram", "BPE": "BPE", "WORD": "word", "CHAR": "character"}
MOST_SPACES = 256  # in a row, in a text of which the ids are known without SentencePiece


@dataclass(frozen=True)
class SentencePieceEncoder:
    """A SentencePiece model, with the normalizer that it applies to a text.

    ``kind``: of the model, as BPE. ``accepts_all``: all that the normalizer writes are spaces, and
    every byte has a token. ``user_defined``: the ids of symbols that stand in a text wherever it
    has them. ``unused``: pieces of one character that SentencePiece cuts again. ``ids``: those of
    the pieces of text and of the byte fallback. ``scores``: those of the pieces of text.
    """

    processor: Any
    spelling: Spelling
    kind: str
    accepts_all: bool
    user_defined: dict[str, int]
    unused: frozenset[str]
    ids: dict[str, int]
    scores: dict[str, float]

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]:
        with library_errors("SentencePiece cannot encode this text"):
            return self.processor.encode(list(texts), out_type=int)

    def normalize(self, text: str) -> str | None:
        if not self.accepts_all or any(character in text for character in self.unused):
            return None
        if text and self.spelling.prefix:
            text = " " + text
        return text.replace("▁", " ")

    @property
    def model_obstacle(self) -> str | None:
        """Why no tokenizer.json is known to give the same ids."""
        if self.kind != "BPE":
            return f"gigatoken does not know sentencepiece {self.kind}"
        return None if self.accepts_all else "gigatoken does not know this normalizer"

    def model_json(self) -> str:
        """A tokenizer.json with the same ids for a normalized text without user-defined symbols.

        Raises RobustokError where the order of merges is not known: SentencePiece takes the first
        in the text of those with one score.
        """
        merges = _merges_by_score(self.scores)
        if not {*"".join(self.scores)} <= self.scores.keys():
            raise RobustokError("the vocabulary lacks characters of its tokens")
        size = self.processor.get_piece_size()
        return _bpe_json(self.ids, size, merges, {"byte_fallback": True}, None, SPACES_AS_MARKS)


def _merges_by_score(scores: dict[str, float]) -> list[list[str]]:
    """The merges of a SentencePiece BPE, in order; ``scores``: those of its pieces.

    Raises RobustokError where the order is not known.
    """
    merges = sorted(
        (
            [piece[:i], piece[i:]]
            for piece in scores
            for i in range(1, len(piece))
            if {piece[:i], piece[i:]} <= scores.keys()
        ),
        key=lambda pair: (-scores[pair[0] + pair[1]], -len(pair[0])),
    )
    merged = {a + b: scores[a + b] for a, b in merges}
    # Runs of spaces often share the lowest score: the first run of a text grows, then the next.
    lowest = min(merged.values(), default=0.0)
    shared = {p for p, score in merged.items() if score == lowest and not p.strip("▁")}
    others = [score for piece, score in merged.items() if piece not in shared]
    if (
        len({*others}) < len(others)
        or lowest in others
        or any({a, b} & shared and a + b not in shared for a, b in merges)
    ):
        raise RobustokError("tokens of the model have the same score")
    return merges


def open_sentencepiece(raw: bytes, name: str) -> Any:
    """The ``SentencePieceProcessor`` of a model file; ``name`` is what messages call it."""
    sentencepiece = library("sentencepiece", name, "a SentencePiece model")
    processor = sentencepiece.SentencePieceProcessor()
    with library_errors(f"{name}: not a SentencePiece model"):
        processor.LoadFromSerializedProto(raw)
    return processor


def from_processor(processor: Any, name: str = "the SentencePiece model") -> TokenizerData:
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
    spelling = _spelling(trainer, normalizer, processor.unk_id() if len(fallback) < 256 else None)
    spaces = {i for i in ordinary if tokens[i] == b" "}
    has_space = not spaces <= fallback
    if not has_space:  # the encoder writes a space as the bytes of "▁", never as its own
        spelling = spelling._replace(placed=spelling.placed | spaces)
        ordinary -= spaces
    # No table of characters, no spaces removed, each space written as "▁", maybe one before a text.
    plain = all(
        (
            not normalizer.precompiled_charsmap,
            not normalizer.remove_extra_whitespaces,
            normalizer.escape_whitespaces,
            not spelling.suffix,
            has_space,
            len(fallback) == 256,
            kind != "word",  # which spells new words by bytes
            all(len(piece) == 1 for piece in unused),
        )
    )
    scores = {text: proto.pieces[i].score for text, i in normal.items()}
    encoder = SentencePieceEncoder(
        processor, spelling, kind, plain, defined, frozenset(unused), normal | in_bytes, scores
    )
    return TokenizerData(
        tokens,
        array("i", ordinary),
        frozenset(fallback),
        encoder,
        f"sentencepiece {kind}",
        read_scores=_read_scores,
        source=processor,
        added={i: AddedToken(tokens[i].decode()) for i in defined.values()},
        spelling=spelling,
    )


def _read_scores(data: TokenizerData) -> dict[int, float]:
    return {i: data.source.get_score(i) for i in data.ordinary}


def _spelling(trainer: Any, normalizer: Any, unknown: int | None) -> Spelling:
    """What a model writes around a text."""
    space = b" " if normalizer.add_dummy_prefix else b""
    at_end = trainer.treat_whitespace_as_suffix
    return Spelling(
        placed=frozenset() if unknown is None else frozenset({unknown}),
        unknown=unknown,
        prefix=b"" if at_end else space,
        suffix=space if at_end else b"",
        marked=True,
        # Where spaces are removed, the decoder leaves out a "▁" of each of the first tokens.
        lossy=(b"  ",) if normalizer.remove_extra_whitespaces else (),
    )
