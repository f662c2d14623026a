"""Encode much text fast: the ids of each distinct pre-token are computed once and looked up then.

A byte-level BPE tokenizer encodes each pre-token on its own, and pre-tokens repeat (Zipf's law).
The ids are those of the tokenizer, which encodes the pre-tokens that are new.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from robustok.locks import ForkSafeLock
from robustok.pretokenize.pre_tokenizer import PreTokenizer, stage_of
from robustok.ragged import Ragged
from robustok.tokenizer_files import TokenizerData, TokenizersEncoder, steps

_CAPACITY = 1 << 19  # pre-tokens in the table; when it is full, it is emptied
_AT_ONCE = 512  # pre-tokens the tokenizer encodes at once: its results take a kilobyte each
_NORMALIZERS = ("NoneType", "NFC", "NFKC")  # these leave ASCII alone


class PreTokenEncoder:
    """The canonical ids of texts from a table of pre-tokens; see :func:`pre_token_encoder`."""

    def __init__(self, encoder: TokenizersEncoder, cutter: PreTokenizer) -> None:
        from tokenizers import Tokenizer
        from tokenizers.pre_tokenizers import ByteLevel

        self._cutter = cutter
        self._normalizer: Any = encoder.tokenizer.normalizer
        # The same model without pre-tokenizer, for single pre-tokens.
        self._tokenizer = Tokenizer(encoder.tokenizer.model)
        self._tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
        # The tokenizer itself encodes texts that spell an added token.
        tokens = encoder.tokenizer.get_added_tokens_decoder().values()
        added = [token.content for token in tokens if token.content and not token.special]
        self._added = added
        self._lock = ForkSafeLock()
        self._seed = np.uint64(secrets.randbits(64))
        self._forget(0, 0)

    def encode_batch(
        self, texts: Sequence[str | bytes], others: Callable[[list[str | bytes]], Ragged]
    ) -> Ragged:
        """The ids of many texts, a row each; ``others`` encodes what must not be cut here."""
        plain = [self._plain(text) for text in texts]
        fast = self._encode([text for text in plain if text is not None])
        if len(fast) == len(texts):
            return fast
        left = others([text for text, cut in zip(texts, plain, strict=True) if cut is None])
        rows, rest = iter(fast), iter(left)
        return Ragged.from_rows([next(rest if text is None else rows) for text in plain])

    def _plain(self, text: str | bytes) -> bytes | None:
        """The bytes that the pre-tokens spell, or None where the tokenizer itself must encode."""
        try:
            spelled = text if isinstance(text, bytes) else text.encode("utf8")
            text = text if isinstance(text, str) else text.decode("utf8")
        except UnicodeError:
            return None
        if any(content in text for content in self._added):
            return None
        if self._normalizer is None or text.isascii():
            return spelled
        return spelled if self._normalizer.normalize_str(text) == text else None

    def _encode(self, texts: list[bytes]) -> Ragged:
        from robustok.kernels import intern as kernels

        edges = np.cumsum([0, *map(len, texts)])
        text = np.frombuffer(b"".join(texts), np.uint8)
        ends = self._cutter.cut(text, edges)
        rows = np.searchsorted(ends, edges, "right")
        numbers = np.empty(len(ends), np.int32)
        offsets = np.empty(len(edges), np.int64)
        with self._lock:
            capacity, used = len(self._known.start), self._known.start[self._entries]
            full = self._entries + len(ends) >= capacity or used + len(text) > len(self._known.text)
            if full or self._changing:
                self._forget(len(ends), len(text))
            self._changing = True
            self._learn(kernels.intern(self._known, self._entries, text, ends, numbers))
            self._changing = False
            values = np.empty(kernels.count_ids(numbers, self._first), np.int32)
            kernels.gather_ids(numbers, self._first, self._ids, rows, values, offsets)
        return Ragged(values, offsets)

    def _learn(self, entries: int) -> None:
        """Encode the pre-tokens after the first ``_entries``, up to ``entries`` in the table."""
        start = self._known.start[self._entries : entries + 1].tolist()
        text = self._known.text[start[0] : start[-1]].tobytes()
        pre_tokens = [
            text[a - start[0] : b - start[0]].decode("utf8") for a, b in itertools.pairwise(start)
        ]
        rows = []
        for i in range(0, len(pre_tokens), _AT_ONCE):
            part = pre_tokens[i : i + _AT_ONCE]
            encoded = self._tokenizer.encode_batch_fast(part, add_special_tokens=False)
            rows += [one.ids for one in encoded]
        sizes = np.fromiter(map(len, rows), np.int64, len(rows))
        flat = np.fromiter(itertools.chain.from_iterable(rows), np.int32, int(sizes.sum()))
        self._first = np.concatenate([self._first, len(self._ids) + np.cumsum(sizes)])
        self._ids = np.concatenate([self._ids, flat])
        self._entries = entries

    def _forget(self, count: int, size: int) -> None:
        """Make an empty table for at least ``count`` pre-tokens with ``size`` bytes."""
        from robustok.kernels.intern import Strings

        capacity = 1 << (max(_CAPACITY, 2 * count) - 1).bit_length()
        self._known = Strings(
            np.full(2 * capacity, -1, np.int32), np.zeros(capacity + 1, np.int64),
            np.empty(max(8 * capacity, 2 * size), np.uint8), self._seed,
        )  # fmt: skip
        self._changing = False  # true after an error, an interrupt or a fork amid a change
        self._entries = 0
        self._first, self._ids = np.zeros(1, np.int64), np.empty(0, np.int32)


def pre_token_encoder(data: TokenizerData) -> PreTokenEncoder | None:
    """The encoder by pre-tokens, or None where they are not known to be independent.

    >>> pre_tokens = pre_token_encoder(vocab.data)
    >>> pre_tokens.encode_batch(texts, vocab.encode_batch) == vocab.encode_batch(texts)
    True
    """
    encoder = data.encoder
    if data.family != "byte-level BPE" or not isinstance(encoder, TokenizersEncoder):
        return None
    if not encoder.complete:
        return None  # what has no token must be refused
    if encoder.prefix or type(encoder.tokenizer.normalizer).__name__ not in _NORMALIZERS:
        return None
    stages = steps(stage_of(encoder.tokenizer, "pre_tokenizer"), "pretokenizers")
    if not stages or stages[-1]["type"] != "ByteLevel":
        return None
    cutter = PreTokenizer(data)
    return None if cutter.automaton is None else PreTokenEncoder(encoder, cutter)
