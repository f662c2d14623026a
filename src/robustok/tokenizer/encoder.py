"""Canonical ids by the ``tokenizers`` library, with and without special tokens in the text.

Two tokenizers share one model: ``encode_special_tokens`` is a setting of the whole object, and
changing it while another thread encodes would turn that thread's text into special tokens.
"""

from __future__ import annotations

import itertools
import json
import re
import secrets
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from robustok.errors import RobustokError
from robustok.tokenizer.data import library_errors
from robustok.tokenizer.stages import Stages

_BYTE_NAME = re.compile(r"<0x[0-9A-F]{2}>")


@dataclass(frozen=True)
class TokenizersEncoder:
    """A Rust tokenizer for plain text and its twin that parses special tokens.

    ``stages`` are those before the model. ``exact``: the ids decode to what :meth:`normalize`
    returns, except where the text contains one of ``marks``. ``complete``: every byte has a token.
    ``added``: the added tokens that are always parsed. ``reachable``: special tokens that the model
    itself would read in a text. ``names_bytes``: the model would read "<0x41>" in a text as the
    byte.
    """

    parsing: Any
    stages: Stages
    exact: bool
    complete: bool
    added: tuple[str, ...]
    marks: tuple[str, ...]
    reachable: tuple[str, ...]
    names_bytes: bool
    tokenizer: Any = field(init=False)
    prefix: str = field(init=False)  # what the pre-tokenizer puts before a text
    metaspace: bool = field(init=False)  # whether "▁" becomes a space
    first_space: str | None = field(init=False)  # before a text, where all that normalization does
    # is to write this space and "▁" for every space; else None

    def __post_init__(self) -> None:
        make = (
            _without(self.parsing, self.reachable) if self.reachable else plain_twin(self.parsing)
        )
        object.__setattr__(self, "tokenizer", make)
        object.__setattr__(self, "prefix", " " if self.stages.adds_space else "")
        object.__setattr__(self, "metaspace", self.stages.metaspace)
        # What SentencePiece's normalizer writes before a text.
        first = {("inside",): "", ("before", "inside"): " "}.get(self.stages.space_rules or ())
        spaces = self.metaspace and not self.prefix
        object.__setattr__(self, "first_space", first if spaces else None)

    def __reduce__(self) -> Any:
        """Pickled once, not twice; the library does not pickle ``encode_special_tokens``."""
        return type(self), tuple(getattr(self, f.name) for f in fields(self) if f.init)

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]:
        tokenizer = self.parsing if parse_special else self.tokenizer
        if self.names_bytes:
            for text in texts:
                self._refuse_names(text)
        try:
            encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        except BaseException as error:  # a panic of a Rust library is no Exception
            raise self._refusal(error, texts) from error
        return [one.ids for one in encoded]

    def normalize(self, text: str) -> str | None:
        if not self.exact or any(mark in text for mark in self.marks):
            return None
        if self.first_space is not None:  # without the library, which takes 40 ns a byte
            text = self.first_space + text.replace("▁", " ") if text else text
            return None if any(mark in text for mark in self.marks) else text
        if self.tokenizer.normalizer is not None:
            text = self._normalized(text)
            if any(mark in text for mark in self.marks):
                return None
        if self.metaspace:
            text = text.replace("▁", " ")
        return self.prefix + text if self.prefix and text and text[0] != self.prefix else text

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

    def _refusal(self, error: BaseException, texts: Sequence[str]) -> RobustokError:
        """An error of the library as one that names what is wrong; others are raised."""
        try:
            with library_errors("the tokenizers library cannot encode this text"):
                raise error
        except RobustokError as refusal:
            for text in texts:
                self._refuse_missing(text)
            return refusal

    def _refuse_missing(self, text: str) -> None:
        """Raise RobustokError for the first character of ``text`` without a token, if any."""
        for character in dict.fromkeys(text):
            try:
                self.tokenizer.encode(character, add_special_tokens=False)
            except Exception:
                raise RobustokError(
                    f"the vocabulary has no token for {character!r}: this text cannot be tokenized"
                ) from None


def make_encoder(
    tokenizer: Any,
    model: dict,
    merges: np.ndarray,
    ordinary: Set[int],
    stages: Stages,
    complete: bool,
) -> TokenizersEncoder:
    """The encoder of a tokenizer whose tokenizer.json has ``model``.

    ``merges``: int64 [merges, 3], the ids of two tokens and of their result.
    """
    added = tokenizer.get_added_tokens_decoder()
    plain = {i: token for i, token in added.items() if not token.special}
    reachable = _reachable(
        model, merges, [t.content for t in added.values() if t.special and t.content]
    )
    unknown = model.get("unk_token")
    if model["vocab"] and isinstance(model.get("unk_id"), int):
        unknown = model["vocab"][model["unk_id"]][0]
    marks = {
        token.content for i, token in plain.items()
        if i not in ordinary or token.lstrip or token.rstrip or stages.adds_space
        or not stages.is_local
    }  # fmt: skip
    marks |= {*reachable} | ({unknown} if isinstance(unknown, str) else set())
    if stages.metaspace:
        marks |= {mark.replace("▁", " ") for mark in marks}
    if tokenizer.normalizer is not None:
        marks |= {tokenizer.normalizer.normalize_str(token.content) for token in plain.values()
                  if token.normalized and token.content in marks}  # fmt: skip
    return TokenizersEncoder(
        tokenizer,
        stages,
        exact=complete and stages.keeps_text,
        complete=complete,
        added=tuple(t.content for i, t in plain.items() if i not in ordinary),
        marks=tuple(sorted(marks - {""})),
        reachable=reachable,
        names_bytes=bool(model.get("byte_fallback"))
        and (model.get("type") == "Unigram" or bool(model.get("ignore_merges"))),
    )


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
