"""Canonical ids by gigatoken, where they are known to equal those of the tokenizer's library.

gigatoken loads the same model, without added tokens, once enough text was encoded to repay the time
of loading. Before its first use it is compared with the library on texts of many kinds. A text that
it may encode differently is left to the caller, who encodes it with the library. gigatoken does not
check bytes, so it gets only str. :mod:`robustok.tokenizer.gigatoken_texts` prepares texts for it.

gigatoken keeps the ids of pre-tokens in a hash table without limit, which is therefore replaced
after `TABLE` characters.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from robustok.errors import RobustokError
from robustok.runtime.environment import ForkSafeLock, give_back_memory, import_lock
from robustok.runtime.packages import EXTRAS, missing_line
from robustok.tokenizer.data import (
    TokenizerData,
    library_error,
    library_errors,
)
from robustok.tokenizer.gigatoken_check import (
    are_checked,
    check_texts,
    first_difference,
)
from robustok.tokenizer.gigatoken_texts import TextEncoder
from robustok.tokenizer.libraries import (
    MOST_SPACES,
    SAME_CUTS,
    SentencePieceEncoder,
    TiktokenEncoder,
)
from robustok.tokenizer.stages import isolating
from robustok.tokenizer.tokenizer_json import TokenizersEncoder

Text = str | bytes
_log = logging.getLogger(__name__)

LARGE = 1 << 20  # characters without gigatoken that are worth a message
TABLE = 1 << 29  # characters after which the table is replaced; a new word takes 7 bytes for each
_CALL = 64  # characters that take as long as the overhead of a call of a library


class GigatokenEncoder:
    """The canonical encoder of a tokenizer by gigatoken, which says itself whether it can be used.

    >>> encoder = GigatokenEncoder(vocab.data)
    >>> encoder.load()
    >>> encoder.encode("hello world")
    array([276, 275], dtype=int32)

    ``reason`` says why gigatoken is not used, or is None. Where gigatoken is not installed, more
    than `LARGE` characters log how to install it.
    """

    def __init__(self, data: TokenizerData) -> None:
        self._data = data
        self.reason = _obstacle(data)
        self._left = 4 * len(data.tokens)  # characters until loading, or a new table, pays
        if self.reason is None and find_spec("gigatoken") is None:
            self.reason, self._left = missing_line("gigatoken"), LARGE
        self._backend: Callable[[str], np.ndarray] | None = None
        self._is_compared = False
        self._lock = ForkSafeLock()
        self._running: list[None] = []  # an entry for each call in progress
        self._texts: Any = TextEncoder(data) if self.reason is None else None
        _encoders.add(self)

    def encode(self, text: Text) -> np.ndarray | None:
        """The ids of a text, int32, or None for one that the tokenizer's library must encode.

        A str holds no lone surrogate.
        """
        self._left -= len(text) + _CALL
        if self._left < 0:
            self._renew()
        backend = self._backend
        return None if backend is None else self._encode_with(backend, text)

    def load(self) -> None:
        """Load gigatoken now, if it can be used."""
        with self._lock:
            if self._backend is not None or self.reason is not None:
                return
            try:
                with library_errors("gigatoken cannot load this tokenizer"):
                    with import_lock:
                        import gigatoken

                    backend = gigatoken.Tokenizer.from_json(self._texts.json()).backend.encode
                    different = None if self._is_compared else self._first_difference(backend)
            except RobustokError as e:
                self.reason = str(e)
                return
            if self.reason is not None:  # it failed
                return
            if different is not None:
                self.reason = f"gigatoken gives other ids for {different!r}"
                return
            give_back_memory()
            self._left, self._is_compared = TABLE, True
            self._backend = backend

    def _renew(self) -> None:
        """Load gigatoken once there was enough text, or anew once there was very much."""
        if self.reason is not None:
            if self.reason == missing_line("gigatoken"):
                _say_missing()
            return
        with self._lock:
            if self._left < 0:
                self._backend = None
                self.load()

    def _first_difference(self, backend: Callable[[str], np.ndarray]) -> str | None:
        """The first text or character of the comparison with the library that has other ids."""
        data = self._data
        some = data.tokens[:: max(1, len(data.tokens) // 256)]
        added = [*self._texts.added][:64]
        texts = [*check_texts(), *(token.decode("utf8", "ignore") for token in some)]
        texts += [
            f"{a} x{a}{a}y {a}{b}\n{b}z" for a, b in zip(added, added[1:] + added, strict=False)
        ]
        if isinstance(data.encoder, SentencePieceEncoder):
            texts += [" " * count + end for count in range(MOST_SPACES) for end in ("", "a")]
        expected = data.encoder.encode_batch(texts, parse_special=False)
        for text, ids in zip(texts, expected, strict=True):
            row = self._encode_with(backend, text)
            if row is not None and row.tolist() != ids:
                return text
        if not data.family.startswith("byte-level"):
            return None
        if isinstance(data.encoder, TiktokenEncoder):
            encoding = data.encoder.encoding
            return (
                None
                if are_checked("tiktoken")
                else first_difference(isolating(SAME_CUTS[encoding._pat_str]), data.encoder.over)
            )
        if are_checked("tokenizers"):
            return None
        return first_difference(data.stages.pre_tokenizer or {})

    def _encode_with(self, backend: Callable[[str], np.ndarray], text: Text) -> np.ndarray | None:
        """The ids by gigatoken, None where it may give other ids than the library."""
        if isinstance(text, bytes):
            try:
                text = text.decode("utf8")
            except UnicodeDecodeError:
                return None
        return self._texts.encode(text, partial(self._encode_part, backend))

    def _encode_part(self, backend: Callable[[str], np.ndarray], part: str) -> np.ndarray | None:
        self._running.append(None)
        try:
            return backend(part).view(np.int32)
        except BaseException as error:  # a panic of a Rust library is no Exception
            self.reason = str(library_error("gigatoken failed", error))
            self._backend = None
            return None
        finally:
            self._running.pop()


@cache
def _say_missing() -> None:
    """Log once that an installed gigatoken would encode faster."""
    _log.warning(
        "canonical ids are computed by the tokenizer's own library; gigatoken is usually 10 to 70"
        " times as fast: %s",
        EXTRAS["gigatoken"].install("gigatoken"),
    )


def _obstacle(data: TokenizerData) -> str | None:
    """Why gigatoken cannot be used for this tokenizer, as far as its settings tell."""
    encoder = data.encoder
    if isinstance(encoder, (TiktokenEncoder, SentencePieceEncoder)):
        return encoder.model_obstacle
    if not isinstance(encoder, TokenizersEncoder) or not data.family.endswith("BPE"):
        return f"gigatoken does not know {data.family}"
    model = encoder.parsing.model
    if not encoder.complete:
        return "the vocabulary lacks bytes"
    if encoder.names_bytes:
        return "the model reads names of bytes in the text"
    if not data.family.startswith("byte-level"):
        if not model.byte_fallback:
            return "the model has no byte fallback"
        known = data.stages.space_rules is not None
        return None if known else "gigatoken does not know this normalizer"
    if data.stages.adds_space:
        return "the pre-tokenizer adds a space"
    known = data.stages.isolates_then_spells
    return None if known else "gigatoken does not know this pre-tokenizer"


_encoders: weakref.WeakSet[GigatokenEncoder] = weakref.WeakSet()
_abandoned: list[Any] = []  # never freed, since another thread of the parent was changing them


def _forget_running() -> None:
    """In a forked child: load gigatoken anew where a thread of the parent was encoding."""
    for encoder in list(_encoders):
        if encoder._running:
            _abandoned.append(encoder._backend)
            encoder._running, encoder._backend, encoder._left = [], None, -1


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_forget_running)
