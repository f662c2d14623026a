"""Tokenizers of the ``tokenizers`` library: a tokenizer.json as plain data, and its encoder.

Byte-level BPE, SentencePiece-style BPE and Unigram. What it does not read: WordPiece and WordLevel,
whose tokens are not parts of the text's bytes.

An encoder has two tokenizers that share one model: ``encode_special_tokens`` is a setting of the
whole object, and changing it while another thread encodes would turn that thread's text into
special tokens.
"""

from __future__ import annotations

import itertools
import json
import re
import secrets
from array import array
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from robustok.errors import RobustokError
from robustok.tokenizer.data import (
    TokenizerData,
    byte_alphabet,
    library_error,
    library_errors,
)
from robustok.tokenizer.stages import Stages

_BYTE_NAME = re.compile(r"<0x[0-9A-F]{2}>")  # as the library writes it


def from_json(text: str, name: str) -> TokenizerData:
    """The tokenizer of a tokenizer.json; ``name`` is what messages call it.

    Raises RobustokError where the file is malformed, the library refuses it, or its ids cannot be
    read as bytes of the text.
    """
    with errors_name(name):
        model = json.loads(text)["model"]
        model["type"] = kind = _check_kind(model)
        merges = _take_merges(model)
        with library_errors("the tokenizers library refuses it"):
            tokenizer = Tokenizer.from_str(text)
        return _read(tokenizer, model, merges, kind)


@contextmanager
def errors_name(name: str) -> Iterator[None]:
    """Name the tokenizer in errors, also in those of values that have other types than expected."""
    try:
        yield
    except RobustokError as e:
        raise RobustokError(f"{name}: {e}") from e
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as e:
        reason = " ".join(str(e).split())[:200]
        raise RobustokError(f"{name}: not a tokenizer.json ({type(e).__name__}: {reason})") from e


def _check_kind(model: dict) -> str:
    kind = model.get("type")
    if kind is None:  # older files do not say it; the library goes by the fields, too
        lists = isinstance(model.get("vocab"), list)
        kind = "BPE" if "merges" in model else "Unigram" if lists else "unknown"
    if kind not in ("BPE", "Unigram"):
        raise RobustokError(
            f"a {kind} tokenizer is not supported, its tokens are not bytes of the text "
            "(supported: BPE and Unigram)"
        )
    for affix in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(affix):
            raise RobustokError(f"BPE with {affix} {model[affix]!r} is not supported")
    return kind


def _read(tokenizer: Any, model: dict, merges: np.ndarray, kind: str) -> TokenizerData:
    stages = Stages.of_tokenizer(tokenizer)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if kind == "BPE" and model.get("dropout"):
        tokenizer.model.dropout = None
    vocab = _vocab_of(model, kind)
    added = _added_tokens(tokenizer, vocab, stages)
    tokens, ordinary, fallback = _token_bytes(vocab, added, stages, model)
    # Whether every byte has a token that the model falls back to, so that any text is encoded.
    bytes_of = ordinary if stages.byte_level else fallback
    complete = len({tokens[i] for i in bytes_of if len(tokens[i]) == 1}) == 256
    if kind == "BPE" and not complete and model.get("unk_token") is None:
        # The library leaves out what it has no token for; where the name is not in the vocabulary
        # it raises instead.
        tokenizer.model.unk_token = "<unk>" * (1 + max(map(len, vocab), default=0))
    encoder = TokenizersEncoder(tokenizer, model, merges, ordinary, stages, complete)
    pairs = scores = None
    if kind == "BPE":
        known = np.zeros(len(tokens), np.bool_)
        known[list(ordinary)] = True
        pairs = merges[known[merges].all(axis=1), :2].astype(np.int32)
    else:
        scores = {i: float(spelling[1]) for i, spelling in enumerate(model["vocab"])}
    family = "byte-level" if stages.byte_level else "sentencepiece"
    return TokenizerData(
        tokens, array("i", sorted(ordinary)), fallback, encoder, f"{family} {kind}", pairs,
        scores, tokenizer, stages=stages, added=added,
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


def _vocab_of(model: dict, kind: str) -> dict[str, int]:
    if kind == "Unigram":
        return {spelling[0]: i for i, spelling in enumerate(model["vocab"])}
    if not isinstance(model.get("vocab"), dict) or "merges" not in model:
        raise RobustokError("the BPE model has no vocabulary or no merges")
    vocab: dict[str, int] = model["vocab"]
    if len(set(vocab.values())) < len(vocab):
        spellings: dict[int, str] = {}
        for spelling, i in vocab.items():
            if spellings.setdefault(i, spelling) != spelling:
                raise RobustokError(
                    f"tokens {spellings[i]!r} and {spelling!r} have the same id {i}"
                )
    check_no_holes(vocab)
    return vocab


def check_no_holes(vocab: dict[str, int]) -> None:
    """Raise RobustokError for ids with holes: saved or pickled, such a tokenizer loses tokens."""
    largest = max(vocab.values(), default=-1)
    if largest >= len(vocab):
        raise RobustokError(
            f"its {len(vocab)} tokens have ids up to {largest}: the tokenizers library "
            "needs ids without holes"
        )


def _added_tokens(tokenizer: Any, vocab: dict[str, int], stages: Stages) -> dict[int, Any]:
    """The added tokens by id, as the library numbers them, which may not be as the file does."""
    added: dict[int, Any] = tokenizer.get_added_tokens_decoder()
    taken = {i: spelling for spelling, i in vocab.items()}
    alphabet = byte_alphabet()
    for i, token in added.items():
        content = token.content
        if taken.get(i, content) != content:
            raise RobustokError(f"added token {content!r} gets the id {i} of token {taken[i]!r}")
        if i in taken and stages.byte_level and all(c in alphabet for c in content):
            spelled = bytes(alphabet[c] for c in content)
            if not token.special and spelled != content.encode():
                raise RobustokError(
                    f"added token {content!r} (id {i}) is also the bytes {spelled!r}"
                )
    return added


def _token_bytes(
    vocab: dict[str, int], added: dict[int, Any], stages: Stages, model: dict
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
                    f"token {spelling!r} (id {i}) is not in the byte-level alphabet"
                ) from e
        elif not is_symbol and model.get("byte_fallback") and _BYTE_NAME.fullmatch(spelling):
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


class TokenizersEncoder:
    """A Rust tokenizer for plain text and its twin that parses special tokens.

    ``complete``: every byte has a token. ``reachable``: special tokens that the model itself would
    read in a text. ``names_bytes``: the model would read "<0x41>" in a text as the byte.

    ``merges``: int64 [merges, 3], the ids of two tokens and of their result.
    """

    def __init__(
        self, tokenizer: Any, model: dict, merges: np.ndarray, ordinary: Set[int], stages: Stages,
        complete: bool,
    ) -> None:  # fmt: skip
        added = tokenizer.get_added_tokens_decoder()
        special = [t.content for t in added.values() if t.special and t.content]
        self.parsing, self.complete = tokenizer, complete
        self.reachable = _reachable(model, merges, special)
        self.names_bytes = bool(model.get("byte_fallback")) and (
            model.get("type") == "Unigram" or bool(model.get("ignore_merges"))
        )
        self._adds_space, self._metaspace = stages.adds_space, stages.metaspace
        # Before a text, where all that normalization does is to write this space, as SentencePiece
        # does, and "▁" for every space; else None.
        first = {("inside",): "", ("before", "inside"): " "}.get(stages.space_rules or ())
        self.first_space = first if stages.metaspace else None
        # The ids decode to what `normalize` returns, except where the text contains a mark.
        self._exact = complete and stages.keeps_text
        unknown = model.get("unk_token")
        if model["vocab"] and isinstance(model.get("unk_id"), int):
            unknown = model["vocab"][model["unk_id"]][0]
        plain = {i: token for i, token in added.items() if not token.special}
        marks = {
            token.content for i, token in plain.items()
            if i not in ordinary or token.lstrip or token.rstrip or stages.adds_space
            or not stages.is_local
        }  # fmt: skip
        marks |= {*self.reachable} | ({unknown} if isinstance(unknown, str) else set())
        if tokenizer.normalizer is not None:
            marks |= {tokenizer.normalizer.normalize_str(token.content) for token in plain.values()
                      if token.normalized and token.content in marks}  # fmt: skip
        if stages.metaspace:
            marks |= {mark.replace("▁", " ") for mark in marks}
        self._marks = sorted(marks - {""})
        self._make_plain()

    def _make_plain(self) -> None:
        self.tokenizer = (
            _without(self.parsing, self.reachable) if self.reachable else plain_twin(self.parsing)
        )

    def __getstate__(self) -> dict[str, Any]:
        """One of the two tokenizers; the library does not pickle ``encode_special_tokens``."""
        return {name: value for name, value in vars(self).items() if name != "tokenizer"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._make_plain()

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]:
        tokenizer = self.parsing if parse_special else self.tokenizer
        if self.names_bytes:
            for text in texts:
                self._refuse_names(text)
        try:
            encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        except BaseException as error:  # a panic of a Rust library is no Exception
            refusal = library_error("the tokenizers library cannot encode this text", error)
            for text in texts:
                self._refuse_missing(text)
            raise refusal from error
        return [one.ids for one in encoded]

    def normalize(self, text: str) -> str | None:
        if not self._exact or self._has_mark(text):
            return None
        if self.first_space is None:
            text = self._normalized(text)
        elif text:  # without the library, which takes 40 ns a byte
            text = self.first_space + text
        if self._metaspace:
            text = text.replace("▁", " ")
        if self._adds_space and text and text[0] != " ":
            text = " " + text
        return None if self._has_mark(text) else text

    def _has_mark(self, text: str) -> bool:
        return any(mark in text for mark in self._marks)

    def _normalized(self, text: str) -> str:
        if self.tokenizer.normalizer is None:
            return text
        with library_errors("the tokenizers library cannot normalize this text"):
            return self.tokenizer.normalizer.normalize_str(text)

    def _refuse_names(self, text: str) -> None:
        name = _BYTE_NAME.search(self._normalized(text))
        if name is not None:
            raise RobustokError(
                f"this tokenizer takes the text {name.group()!r} for a byte: the text cannot be "
                "tokenized exactly"
            )

    def _refuse_missing(self, text: str) -> None:
        """Raise RobustokError for the first character of ``text`` without a token, if any."""
        for character in dict.fromkeys(text):
            try:
                self.tokenizer.encode(character, add_special_tokens=False)
            except Exception:
                raise RobustokError(
                    f"the vocabulary has no token for {character!r}: this text cannot be tokenized"
                ) from None


def _reachable(model: dict, merges: np.ndarray, special: list[str]) -> tuple[str, ...]:
    """The special tokens that the model itself would find in a text, where none are parsed."""
    if model.get("type") == "Unigram":
        spellings = {spelling[0] for spelling in model["vocab"]}
        return tuple(content for content in special if content in spellings)
    inside = {content for content in special if content in model["vocab"]}
    if not model.get("ignore_merges") and inside:
        results = set(merges[:, 2].tolist())
        inside = {c for c in inside if len(c) == 1 or model["vocab"][c] in results}
    return tuple(sorted(inside))


def plain_twin(tokenizer: Any) -> Any:
    """A tokenizer of the same model, which takes 150 MB for Llama 3, to which special is text.

    It neither truncates nor pads, and adds no special tokens.
    """
    twin = Tokenizer(tokenizer.model)
    twin.normalizer, twin.pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
    added = tokenizer.get_added_tokens_decoder()
    ordered = [added[i] for i in sorted(added)]
    for special, tokens in itertools.groupby(ordered, lambda token: token.special):
        (twin.add_special_tokens if special else twin.add_tokens)(list(tokens))
    if {i: repr(t) for i, t in twin.get_added_tokens_decoder().items()} != {
        i: repr(t) for i, t in added.items()
    }:
        twin = Tokenizer.from_str(tokenizer.to_str())
        twin.no_truncation()
        twin.no_padding()
        twin.post_processor = None
    twin.encode_special_tokens = True
    return twin


def _without(tokenizer: Any, reachable: Sequence[str]) -> Any:
    """A tokenizer without special tokens, whose model cannot find ``reachable`` in a text."""
    spec = json.loads(tokenizer.to_str())
    model = spec["model"]
    # Nobody can write a name that is chosen at random in this process.
    names = {content: f"{secrets.token_hex(16)}" for content in reachable}
    if model["type"] == "Unigram":
        model["vocab"] = [
            [names.get(spelling, spelling), score] for spelling, score in model["vocab"]
        ]
    else:
        model["vocab"] = {
            names.get(spelling, spelling): i for spelling, i in model["vocab"].items()
        }
        model["unk_token"] = names.get(model["unk_token"], model["unk_token"])
        model["merges"] = [m for m in model["merges"] if not {*m, "".join(m)} & {*names}]
    spec["added_tokens"] = [t for t in spec["added_tokens"] if not t["special"]]
    twin = Tokenizer.from_str(json.dumps(spec))
    added = tokenizer.get_added_tokens_decoder()
    if twin.get_added_tokens_decoder().keys() != {i for i, t in added.items() if not t.special}:
        raise RobustokError(
            f"the model reads the special token {reachable[0]!r} in plain text, and added tokens "
            "follow it: give added tokens ids of the model's vocabulary"
        )
    return twin
