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
import operator
import secrets
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from robustok.errors import RobustokError
from robustok.runtime.environment import computed_once
from robustok.tokenizer.data import TokenizerData, library_error, library_errors
from robustok.tokenizer.json_tokens import BYTE_NAME, ModelTokens, TokenIds, added_tokens
from robustok.tokenizer.stages import Stages


def from_json(text: str, name: str, tokenizer: Any = None) -> TokenizerData:
    """The tokenizer of a tokenizer.json; ``name`` is what messages call it.

    ``tokenizer`` is what :func:`open_json` returns of it, where the caller has it.

    Raises RobustokError where the file is malformed, the library refuses it, or its ids cannot be
    read as bytes of the text.
    """
    with errors_name(name):
        if tokenizer is None:
            tokenizer = open_json(text)
        _check_kind(type(tokenizer.model).__name__, partial(getattr, tokenizer.model))
        return _read(tokenizer, text)


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


def open_json(text: str) -> Any:
    """The tokenizer of the library; raises RobustokError where it refuses the file."""
    try:
        with library_errors("the tokenizers library refuses it"):
            return Tokenizer.from_str(text)
    except RobustokError:
        model = json.loads(text)["model"]
        _check_kind(model.get("type") or "BPE", model.get)  # older files do not say it
        raise


def _check_kind(kind: str, setting: Callable[[str, Any], Any]) -> None:
    """Raise RobustokError for a kind of model, or a setting, that is not supported."""
    if kind not in ("BPE", "Unigram"):
        raise RobustokError(
            f"a {kind} tokenizer is not supported, its tokens are not bytes of the text "
            "(supported: BPE and Unigram)"
        )
    for affix in ("continuing_subword_prefix", "end_of_word_suffix"):
        if setting(affix, None):
            raise RobustokError(f"BPE with {affix} {setting(affix, None)!r} is not supported")


def _read(tokenizer: Any, text: str) -> TokenizerData:
    stages = Stages.of_tokenizer(tokenizer)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    is_bpe = type(tokenizer.model).__name__ == "BPE"
    if is_bpe:
        tokenizer.model.dropout = None
    model = ModelTokens(tokenizer, text)
    if not model.names:
        raise RobustokError("its model has no tokens")
    added = added_tokens(tokenizer, model.names)
    ids = TokenIds(tokenizer, model, added, stages)
    if is_bpe and not ids.complete and model.unknown_name is None:
        # The library leaves out what it has no token for; where the name is not in the vocabulary
        # it raises instead.
        longest = max(len(name) for name in model.names if name is not None)
        tokenizer.model.unk_token = "<unk>" * (1 + longest)
    family = "byte-level" if stages.byte_level else "sentencepiece"
    return TokenizerData(
        tokens=ids.tokens,
        ordinary=array("i", np.flatnonzero(ids.is_ordinary).astype(np.int32).tobytes()),
        byte_fallback=frozenset(ids.fallback),
        encoder=TokenizersEncoder(tokenizer, model, ids),
        family=f"{family} {model.kind}",
        read_merges=_read_merges if is_bpe else None,
        read_scores=None if is_bpe else partial(_scores_by_id, model.scores),
        source=tokenizer,
        stages=stages,
        added=added,
        spelling=ids.spelling,
        spells_all=ids.complete
        and stages.spells_text
        and all(t.special for t in added.values())
        and not ids.spelling.words,
    )


def _read_merges(data: TokenizerData) -> np.ndarray:
    """The merges of a BPE, as `TokenizerData` has them."""
    model = json.loads(data.source.to_str())["model"]
    left, right = [a for a, _ in model["merges"]], [b for _, b in model["merges"]]
    columns = left, right, map(operator.add, left, right)
    ids = np.array([[*map(model["vocab"].__getitem__, column)] for column in columns], np.int32)
    known = np.zeros(len(data.tokens), np.bool_)
    known[[*data.ordinary, *data.spelling.in_model]] = True
    return ids[:2, known[ids].all(axis=0)].T.copy()


def _scores_by_id(scores: list[float], data: TokenizerData) -> dict[int, float]:
    """The scores of a Unigram model, as `TokenizerData` has them."""
    return dict(enumerate(scores))


class TokenizersEncoder:
    """A Rust tokenizer for plain text and its twin that parses special tokens.

    ``complete``: every text has a token for each character or byte. ``reachable``: special tokens
    that the model itself would read in a text. ``names_bytes``: the model would read "<0x41>" in a
    text as the byte.
    """

    def __init__(self, tokenizer: Any, model: ModelTokens, ids: TokenIds) -> None:
        added = tokenizer.get_added_tokens_decoder()
        # Special tokens that are words, and the unknown token, spell text.
        text = {*ids.spelling.words} | ({ids.spelling.unknown} & ids.spelling.placed)
        special = [t.content for i, t in added.items() if t.special and t.content and i not in text]
        self.parsing, self.complete = tokenizer, ids.complete
        self.reachable = _reachable(model, special)
        self.names_bytes = model.byte_fallback and (model.kind == "Unigram" or model.ignore_merges)

    @computed_once
    def tokenizer(self) -> Any:
        """The tokenizer to which special tokens are text; slow to make where the model has them."""
        hides = self.reachable
        return _hiding_twin(self.parsing, hides) if hides else plain_twin(self.parsing)

    def __getstate__(self) -> dict[str, Any]:
        """One of the two tokenizers; the library does not pickle ``encode_special_tokens``."""
        return {name: value for name, value in vars(self).items() if name != "tokenizer"}

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

    def pre_token_ends(self, text: str) -> list[int]:
        """Where the pre-tokens of a normalized text end, in characters."""
        cutter = self.parsing.pre_tokenizer
        if cutter is None:
            return [len(text)] if text else []
        with library_errors("the tokenizers library cannot cut this text"):
            spans = [span for _, span in cutter.pre_tokenize_str(text)]
        return sorted({x for span in spans for x in span} - {0} | ({len(text)} if text else set()))

    def _normalized(self, text: str) -> str:
        if self.parsing.normalizer is None:
            return text
        with library_errors("the tokenizers library cannot normalize this text"):
            return self.parsing.normalizer.normalize_str(text)

    def _refuse_names(self, text: str) -> None:
        name = BYTE_NAME.search(self._normalized(text))
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
            except BaseException as error:
                library_error("", error)  # raises what is no error of the library
                raise RobustokError(
                    f"the vocabulary has no token for {character!r}: this text cannot be tokenized"
                ) from None


def _reachable(model: ModelTokens, special: list[str]) -> tuple[str, ...]:
    """The special tokens that the model itself would find in a text, where none are parsed."""
    inside = {content for content in special if model.id_of(content) is not None}
    is_all = model.kind == "Unigram" or model.ignore_merges
    return tuple(sorted(inside if is_all else model.merged(inside)))


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


def _hiding_twin(tokenizer: Any, hidden: Sequence[str]) -> Any:
    """:func:`plain_twin` of a model that would find special tokens, ``hidden``, in a text."""
    spec = json.loads(tokenizer.to_str())
    model = spec["model"]
    # Nobody can write a name that is chosen at random in this process.
    names = {content: f"{secrets.token_hex(16)}" for content in hidden}
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
    # They still keep other added tokens from being found within them. Last, since the model lacks
    # them here, so that they take new ids.
    spec["added_tokens"].sort(key=lambda token: token["content"] in names)
    twin = Tokenizer.from_str(json.dumps(spec))
    twin.encode_special_tokens = True
    return twin
