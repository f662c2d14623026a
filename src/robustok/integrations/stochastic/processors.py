"""tiktoken encodings and SentencePiece processors that draw."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

import numpy as np

from robustok.errors import RobustokError
from robustok.integrations.stochastic.switch import Wrapper


class StochasticEncoding(Wrapper):
    """A tiktoken ``Encoding`` whose ``encode`` methods draw."""

    _encoding_names = ("encode_with_unstable",)

    def encode(self, text: str, **kwargs: object) -> list[int]:
        """As `tiktoken.Encoding.encode`."""
        return self._drawn_rows([self.wrapped_tokenizer.encode(text, **kwargs)])[0]

    def encode_ordinary(self, text: str) -> list[int]:
        """As `tiktoken.Encoding.encode_ordinary`."""
        return self._drawn_rows([self.wrapped_tokenizer.encode_ordinary(text)])[0]

    def encode_to_numpy(self, text: str, **kwargs: object) -> np.ndarray:
        """As `tiktoken.Encoding.encode_to_numpy`: uint32 [tokens]."""
        return np.asarray(self.encode(text, **kwargs), np.uint32)

    def encode_batch(self, text: list[str], **kwargs: object) -> list[list[int]]:
        """As `tiktoken.Encoding.encode_batch`."""
        return self._drawn_rows(self.wrapped_tokenizer.encode_batch(text, **kwargs))

    def encode_ordinary_batch(self, text: list[str], **kwargs: object) -> list[list[int]]:
        """As `tiktoken.Encoding.encode_ordinary_batch`."""
        return self._drawn_rows(self.wrapped_tokenizer.encode_ordinary_batch(text, **kwargs))


# Options of SentencePiece's encode that are treated here; `return_type` is `out_type`'s new name.
_TREATED = ("out_type", "return_type", "reverse", "enable_sampling", "nbest_size", "alpha")


class StochasticProcessor(Wrapper):
    """A ``SentencePieceProcessor`` whose ``encode`` methods draw by the scheme."""

    _encoding_names = ("encode", "tokenize")

    def encode(self, input: str | Sequence[str], *args: Any, **kwargs: object) -> list[Any]:
        """As `sentencepiece.SentencePieceProcessor.encode`, to ids or token strings.

        ``out_type`` is int (ids) or str (token strings). SentencePiece's own sampling is refused.
        """
        inner = self.wrapped_tokenizer
        if not self.training:
            return inner.encode(input, *args, **kwargs)
        if args:
            kwargs = dict(signature(inner.encode).bind(input, *args, **kwargs).arguments)
            del kwargs["input"]
        default = getattr(inner, "_return_type", None) or getattr(inner, "_out_type", None)
        kind = kwargs.get("return_type") or kwargs.get("out_type") or default
        sampling = kwargs.get("enable_sampling", getattr(inner, "_enable_sampling", False))
        if kind not in (int, str) or sampling:
            raise RobustokError(
                "a stochastic SentencePiece processor encodes to ids or strings (out_type=int or "
                "str) and draws by its scheme: leave enable_sampling out, or call eval() first"
            )
        kept = {name: value for name, value in kwargs.items() if name not in _TREATED}
        texts = [input] if isinstance(input, str) else list(input)
        rows = self._drawn_rows(inner.encode(texts, out_type=int, reverse=False, **kept))
        reverse = kwargs.get("reverse")
        if reverse if reverse is not None else getattr(inner, "_reverse", False):
            rows = [row[::-1] for row in rows]
        if kind is str:
            rows = [[inner.id_to_piece(i) for i in row] for row in rows]
        return rows[0] if isinstance(input, str) else rows

    def encode_as_ids(self, input: str | Sequence[str], **kwargs: object) -> list[Any]:
        """Ids, as :meth:`encode`."""
        if not self.training:
            return self.wrapped_tokenizer.encode_as_ids(input, **kwargs)
        return self.encode(input, out_type=int, **kwargs)

    def encode_as_pieces(self, input: str | Sequence[str], **kwargs: object) -> list[Any]:
        """Token strings, as :meth:`encode`."""
        if not self.training:
            return self.wrapped_tokenizer.encode_as_pieces(input, **kwargs)
        return self.encode(input, out_type=str, **kwargs)

    Encode = tokenize = Tokenize = encode
    EncodeAsIds, EncodeAsPieces = encode_as_ids, encode_as_pieces

    def __len__(self) -> int:
        return len(self.wrapped_tokenizer)

    def __getitem__(self, piece: str) -> int:
        return self.wrapped_tokenizer[piece]
