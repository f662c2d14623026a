"""Read a tokenizer.json, the format of the ``tokenizers`` library, as plain data.

Byte-level BPE, SentencePiece-style BPE and Unigram. What it does not read: WordPiece and WordLevel,
whose tokens are not parts of the text's bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from robustok.errors import RobustokError
from robustok.tokenizer.data import IdSet, TokenizerData, byte_alphabet, library_errors
from robustok.tokenizer.encoder import make_encoder
from robustok.tokenizer.stages import Stages

_BYTE_NAMES = frozenset(f"<0x{b:02X}>" for b in range(256))  # as the library writes them


def from_json(text: str, name: str) -> TokenizerData:
    """The tokenizer of a tokenizer.json; ``name`` is what messages call it.

    Raises RobustokError where the file is malformed, the library refuses it, or its ids cannot be
    read as bytes of the text.
    """
    with _malformed(name):
        spec = json.loads(text)
        kind = _check_kind(spec["model"], name)
        merges = _take_merges(spec["model"])
    with library_errors(f"{name}: the tokenizers library refuses it"):
        tokenizer = Tokenizer.from_str(text)
    with _malformed(name):
        return _read(tokenizer, spec, merges, kind, name)


@contextmanager
def _malformed(name: str) -> Iterator[None]:
    """Report what reading a file of other types than expected raises."""
    try:
        yield
    except RobustokError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as e:
        reason = " ".join(str(e).split())[:200]
        raise RobustokError(f"{name}: not a tokenizer.json ({type(e).__name__}: {reason})") from e


def _check_kind(model: dict, name: str) -> str:
    kind = model.get("type") or ("BPE" if "merges" in model else "unknown")
    if kind not in ("BPE", "Unigram"):
        raise RobustokError(
            f"{name}: a {kind} tokenizer is not supported, its tokens are not bytes of the text "
            "(supported: BPE and Unigram)"
        )
    for affix in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(affix):
            raise RobustokError(f"{name}: BPE with {affix} {model[affix]!r} is not supported")
    return kind


def _read(tokenizer: Any, spec: dict, merges: np.ndarray, kind: str, name: str) -> TokenizerData:
    model = spec["model"]
    stages = Stages.of_tokenizer(tokenizer, name)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if kind == "BPE" and model.get("dropout"):
        tokenizer.model.dropout = None
    vocab = _vocab_of(model, kind, name)
    added = _added_tokens(tokenizer, vocab, stages, name)
    tokens, ordinary, fallback = _token_bytes(vocab, added, stages, model, name)
    complete = _has_every_byte(tokens, ordinary, fallback, stages)
    if kind == "BPE" and not complete and model.get("unk_token") is None:
        # The library leaves out what it has no token for; where the name is not in the vocabulary
        # it raises instead.
        tokenizer.model.unk_token = "<unk>" * (1 + max(map(len, vocab), default=0))
    encoder = make_encoder(tokenizer, model, merges, ordinary, stages, complete)
    pairs = scores = None
    if kind == "BPE":
        known = np.zeros(len(tokens), np.bool_)
        known[list(ordinary)] = known[list(fallback)] = True
        pairs = merges[known[merges].all(axis=1), :2].astype(np.int32)
    else:
        scores = {i: float(spelling[1]) for i, spelling in enumerate(model["vocab"])}
    family = "byte-level" if stages.byte_level else "sentencepiece"
    return TokenizerData(
        tokens, IdSet(ordinary), fallback, encoder, f"{family} {kind}", pairs,
        bool(model.get("ignore_merges")), scores, tokenizer, stages=stages, added=added,
    )  # fmt: skip


def _take_merges(model: dict) -> np.ndarray:
    """Remove the merges, which are most of a large file's objects, and return their ids.

    int64 [merges, 3]: both tokens and their result, -1 for one that is not in the vocabulary, which
    the library refuses.
    """
    merges, vocab = model.get("merges"), model.get("vocab")
    if not merges or not isinstance(vocab, dict):
        return np.empty((0, 3), np.int64)
    model["merges"] = ()

    def ids() -> Iterator[int]:
        for merge in merges:
            first, second = merge.split(" ") if isinstance(merge, str) else merge
            yield vocab.get(first, -1)
            yield vocab.get(second, -1)
            yield vocab.get(first + second, -1)

    return np.fromiter(ids(), np.int64, 3 * len(merges)).reshape(-1, 3)


def _vocab_of(model: dict, kind: str, name: str) -> dict[str, int]:
    if kind == "Unigram":
        return {spelling[0]: i for i, spelling in enumerate(model["vocab"])}
    if not isinstance(model.get("vocab"), dict) or "merges" not in model:
        raise RobustokError(f"{name}: the BPE model has no vocabulary or no merges")
    vocab: dict[str, int] = model["vocab"]
    largest = max(vocab.values(), default=-1)
    if len(set(vocab.values())) < len(vocab):
        spellings: dict[int, str] = {}
        for spelling, i in vocab.items():
            if spellings.setdefault(i, spelling) != spelling:
                raise RobustokError(
                    f"{name}: tokens {spellings[i]!r} and {spelling!r} have the same id {i}"
                )
    if largest >= len(vocab):  # saved or pickled, such a tokenizer loses tokens
        raise RobustokError(
            f"{name}: its {len(vocab)} tokens have ids up to {largest}: the tokenizers library "
            "needs ids without holes"
        )
    return vocab


def _added_tokens(
    tokenizer: Any, vocab: dict[str, int], stages: Stages, name: str
) -> dict[int, Any]:
    """The added tokens by id, as the library numbers them, which may not be as the file does."""
    added: dict[int, Any] = tokenizer.get_added_tokens_decoder()
    taken = {i: spelling for spelling, i in vocab.items()}
    alphabet = byte_alphabet()
    for i, token in added.items():
        content = token.content
        if taken.get(i, content) != content:
            raise RobustokError(
                f"{name}: added token {content!r} gets the id {i} of token {taken[i]!r}"
            )
        if i in taken and stages.byte_level and all(c in alphabet for c in content):
            spelled = bytes(alphabet[c] for c in content)
            if not token.special and spelled != content.encode():
                raise RobustokError(
                    f"{name}: added token {content!r} (id {i}) is also the bytes {spelled!r}"
                )
    return added


def _token_bytes(
    vocab: dict[str, int],
    added: dict[int, Any],
    stages: Stages,
    model: dict,
    name: str,
) -> tuple[list[bytes], frozenset[int], frozenset[int]]:
    """The bytes of every id, the ordinary ids, and of these the byte-fallback ones."""
    size = max([*vocab.values(), *added], default=-1) + 1
    tokens: list[bytes] = [b""] * size
    unknown = model.get("unk_token")
    unknown_id = vocab.get(unknown) if isinstance(unknown, str) else model.get("unk_id")
    ordinary, fallback = set(), set()
    alphabet = byte_alphabet()
    byte_level, metaspace = stages.byte_level, stages.metaspace
    for spelling, i in vocab.items():
        if i == unknown_id or (i in added and added[i].special):
            tokens[i] = spelling.encode()
            continue
        is_symbol = i in added  # a user-defined symbol of the model itself: plain text
        if byte_level and not is_symbol:
            try:
                tokens[i] = bytes(map(alphabet.__getitem__, spelling))
            except KeyError as e:
                raise RobustokError(
                    f"{name}: token {spelling!r} (id {i}) is not in the byte-level alphabet"
                ) from e
        elif not is_symbol and model.get("byte_fallback") and spelling in _BYTE_NAMES:
            tokens[i] = bytes([int(spelling[3:5], 16)])
            fallback.add(i)
        else:
            tokens[i] = (spelling.replace("▁", " ") if metaspace else spelling).encode()
        if tokens[i]:
            ordinary.add(i)
    for i, token in added.items():  # control tokens keep their text, so that decoding shows them
        if i not in ordinary:
            tokens[i] = token.content.encode()
    return tokens, frozenset(ordinary), frozenset(fallback)


def _has_every_byte(
    tokens: Sequence[bytes], ordinary: frozenset[int], fallback: frozenset[int], stages: Stages
) -> bool:
    """Whether every byte has a token that the model falls back to, so that any text is encoded."""
    ids = ordinary if stages.byte_level else fallback
    return len({tokens[i] for i in ids if len(tokens[i]) == 1}) == 256
