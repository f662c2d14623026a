"""Canonical ids word by word, for tokenizers of ``tokenizers`` whose pre-tokens are words.

Where "▁" begins each pre-token and nothing else cuts a text (T5, ALBERT, XLM-R and most other
Unigram models), the library spends its time on a word at a time, and the ids of a word do not
depend on the text around it. They are kept, and only new words are encoded by the library.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tokenizers import Tokenizer

from robustok.tokenizer.data import TokenizerData, library_error
from robustok.tokenizer.tokenizer_json import TokenizersEncoder

_MOST = 1 << 21  # characters of kept words, each with `_EACH` more: about 20 MB of memory
_EACH = 16


class WordEncoder:
    """The canonical encoder of a tokenizer by the words that it has encoded before.

    ``data``: a tokenizer of which `knows_words` is true. ``reason`` says that it can be used.
    """

    reason: str | None = None

    def __init__(self, data: TokenizerData) -> None:
        encoder: Any = data.encoder
        self._words = encoder.words
        # Without normalizer and added tokens.
        self._tokenizer: Any = Tokenizer(encoder.of_words.model)
        self._tokenizer.pre_tokenizer = encoder.parsing.pre_tokenizer
        begins = (token.startswith(b" ") for token in data.tokens)
        self._begins_word = np.fromiter(begins, np.bool_, len(data.tokens))
        if data.spelling.unknown is not None:
            self._begins_word[data.spelling.unknown] = False
        self._ids: dict[str, bytes] = {}  # int32
        self._size = 0

    def load(self) -> None:
        """Nothing has to be loaded before the first text."""

    def encode(self, text: str | bytes) -> np.ndarray | None:
        """The ids of a text, int32, or None for one that the tokenizer's library must encode."""
        if isinstance(text, bytes):
            try:
                text = text.decode("utf8")
            except UnicodeDecodeError:
                return None
        words = self._words(text)
        if words is None:
            return None
        if self._size > _MOST:
            self._ids, self._size = {}, 0
        known = self._ids  # another thread may replace it
        new = [*{*words}.difference(known)]
        if new:
            encoded = self._encode_words(new)
            if encoded is None:
                return None
            known.update(zip(new, encoded, strict=True))
            self._size += sum(map(len, new)) + _EACH * len(new)
        # In a bytearray, since arrays of ids can be written.
        return np.frombuffer(bytearray().join(map(known.__getitem__, words)), np.int32)

    def _encode_words(self, words: list[str]) -> list[bytes] | None:
        """The ids of each word, int32; None where the library refuses one, or has no "▁"."""
        try:
            texts = [" " + " ".join(words)]
            (encoded,) = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        except BaseException as error:  # a panic of a Rust library is no Exception
            library_error("", error)  # raises what is no error of the library
            return None
        row = np.array(encoded.ids, np.int32)
        begins = np.flatnonzero(self._begins_word[row]) * row.itemsize
        if len(begins) != len(words):
            return None
        ends, raw = [*begins[1:].tolist(), row.nbytes], row.tobytes()
        return [raw[begin:end] for begin, end in zip(begins.tolist(), ends, strict=True)]


def knows_words(data: TokenizerData) -> bool:
    """Whether a text is known to be encoded word by word.

    >>> knows_words(vocab.data)  # byte-level
    False
    """
    return isinstance(data.encoder, TokenizersEncoder) and data.stages.ends_words is not None
