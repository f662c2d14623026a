"""A ``tokenizers.Tokenizer`` that draws: encodes, draws, then cuts, adds special tokens and pads.

Truncation, the post-processor and padding are those of the wrapped tokenizer, applied to the drawn
ids by its own ``post_process``. It takes ``tokenizers.Encoding`` objects, for which the library has
no constructor; their pickled form, JSON, is used instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np
from tokenizers import Encoding

from robustok.integrations.stochastic.draws import SeededScheme
from robustok.integrations.stochastic.switch import Switch
from robustok.runtime.environment import ForkSafeLock
from robustok.tokenizer.encoder import plain_twin
from robustok.tokenizer.vocabulary import Vocabulary

# Texts of which only some characters may be drawn anew: rendered chats. Each thread has its own.
SPANS: ContextVar[dict[str, list[tuple[int, int]]] | None] = ContextVar("spans", default=None)

Fields = dict[str, Any]


class StochasticTokenizer(Switch):
    """A `tokenizers.Tokenizer` whose ``encode``, ``encode_batch`` and the like draw.

    >>> import robustok as rt
    >>> drawing = rt.stochastic(tokenizer, "uniform-k(k=2)", seed=0)
    >>> drawing.encode("hello world").tokens
    ['hell', 'o', 'Ġworld']
    >>> drawing.eval().encode("hello world").tokens
    ['hello', 'Ġworld']

    All else is the wrapped tokenizer's. Its settings, as truncation, may be changed through either.
    """

    def __init__(self, tokenizer: Any, draws: SeededScheme) -> None:
        self.wrapped_tokenizer, self.draws = tokenizer, draws
        self._start()

    def _start(self) -> None:
        self._size, self._bare, self._names = self.wrapped_tokenizer.get_vocab_size(), {}, {}
        self._lock = ForkSafeLock()

    def encode(
        self,
        sequence: Any,
        pair: Any = None,
        is_pretokenized: bool = False,
        add_special_tokens: bool = True,
    ) -> Any:
        """As `tokenizers.Tokenizer.encode`.

        Args:
            sequence: a text, or a list of words.
            pair: a second text, or None.
            is_pretokenized: whether texts are lists of words; each word is then drawn by itself.
            add_special_tokens: whether the post-processor adds special tokens.
        """
        if not self.training:
            return self.wrapped_tokenizer.encode(
                sequence, pair, is_pretokenized, add_special_tokens
            )
        return self._encode([(sequence, pair)], is_pretokenized, add_special_tokens)[0]

    def encode_batch(
        self, input: Any, is_pretokenized: bool = False, add_special_tokens: bool = True
    ) -> list[Any]:
        """As `tokenizers.Tokenizer.encode_batch`.

        Args:
            input: texts, or pairs of texts.
            is_pretokenized: whether texts are lists of words; each word is then drawn by itself.
            add_special_tokens: whether the post-processor adds special tokens.
        """
        if not self.training:
            return self.wrapped_tokenizer.encode_batch(input, is_pretokenized, add_special_tokens)
        pairs = [_pair(one, is_pretokenized) for one in input]
        return self._padded(self._encode(pairs, is_pretokenized, add_special_tokens))

    def encode_batch_fast(
        self, input: Any, is_pretokenized: bool = False, add_special_tokens: bool = True
    ) -> list[Any]:
        """As :meth:`encode_batch`.

        Args:
            input: as in :meth:`encode_batch`.
            is_pretokenized: as in :meth:`encode_batch`.
            add_special_tokens: as in :meth:`encode_batch`.
        """
        return self.encode_batch(input, is_pretokenized, add_special_tokens)

    async def async_encode(self, *args: Any, **kwargs: Any) -> Any:
        """As :meth:`encode`."""
        return self.encode(*args, **kwargs)

    async def async_encode_batch(self, *args: Any, **kwargs: Any) -> list[Any]:
        """As :meth:`encode_batch`."""
        return self.encode_batch(*args, **kwargs)

    async def async_encode_batch_fast(self, *args: Any, **kwargs: Any) -> list[Any]:
        """As :meth:`encode_batch`."""
        return self.encode_batch(*args, **kwargs)

    def add_tokens(self, tokens: Any) -> int:
        """As `tokenizers.Tokenizer.add_tokens`; the vocabulary is read again."""
        return self._changed(self.wrapped_tokenizer.add_tokens(tokens))

    def add_special_tokens(self, tokens: Any) -> int:
        """As `tokenizers.Tokenizer.add_special_tokens`; the vocabulary is read again."""
        return self._changed(self.wrapped_tokenizer.add_special_tokens(tokens))

    def _changed(self, added: int) -> int:
        self._start()
        self.draws.forget()
        return added

    def _encode(
        self, pairs: Sequence[tuple[Any, Any]], is_pretokenized: bool, add_special_tokens: bool
    ) -> list[Any]:
        """Drawn encodings, cut and with special tokens; each padded alone."""
        if self.wrapped_tokenizer.get_vocab_size() != self._size:
            self._changed(0)
        texts = [text for pair in pairs for text in pair if text is not None]
        raw = self._bare_tokenizer().encode_batch(texts, is_pretokenized, add_special_tokens=False)
        fields = [fields_of(encoding) for encoding in raw]
        ids = [np.asarray(one["ids"], np.int32) for one in fields]
        fixed = [_outside(text, one) for text, one in zip(texts, fields, strict=True)]
        drawn = self._by_word(ids, fields) if is_pretokenized else self.draws.draw(ids, fixed)
        new = iter([
            one if np.array_equal(old, row) else with_new_ids(
                one, row, self.draws.vocab, None if is_pretokenized else text, self._name
            )
            for text, one, old, row in zip(texts, fields, ids, drawn, strict=True)
        ])  # fmt: skip
        results = []
        for _, second in pairs:
            first = encoding_of(next(new), 0)
            pair = None if second is None else encoding_of(next(new), 1)
            results.append(self.wrapped_tokenizer.post_process(first, pair, add_special_tokens))
        return results

    def _by_word(self, ids: list[np.ndarray], fields: list[Any]) -> list[np.ndarray]:
        """Draw each word by itself: a token across two words would belong to neither."""
        cuts = [np.flatnonzero(np.diff(_word_numbers(one))) + 1 for one in fields]
        words = [np.split(row, cut) for row, cut in zip(ids, cuts, strict=True)]
        drawn = iter(self.draws.draw([word for row in words for word in row]))
        return [np.concatenate([next(drawn) for _ in row]) for row in words]

    def _padded(self, encodings: list[Any]) -> list[Any]:
        """Pad to the longest of the batch, where that is what the tokenizer is set to."""
        padding = self.wrapped_tokenizer.padding
        if padding is None or padding["length"] is not None or not encodings:
            return encodings
        longest = max(len(encoding) for encoding in encodings)
        for encoding in encodings:
            encoding.pad(
                longest,
                direction=padding["direction"],
                pad_id=padding["pad_id"],
                pad_type_id=padding["pad_type_id"],
                pad_token=padding["pad_token"],
            )
        return encodings

    def _bare_tokenizer(self) -> Any:
        """A twin on the same model without truncation, post-processor and padding."""
        special_is_text = bool(self.wrapped_tokenizer.encode_special_tokens)
        with self._lock:
            if special_is_text not in self._bare:
                twin = plain_twin(self.wrapped_tokenizer)
                twin.encode_special_tokens = special_is_text
                self._bare[special_is_text] = twin
            return self._bare[special_is_text]

    def _name(self, token: int) -> str:
        name = self._names.get(token)
        if name is None:
            name = self._names[token] = self.wrapped_tokenizer.id_to_token(token)
        return name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "wrapped_tokenizer" not in vars(self):
            raise AttributeError(name)
        return getattr(self.wrapped_tokenizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Settings go to the wrapped tokenizer; a new normalizer or model is read again."""
        if name in ("wrapped_tokenizer", "draws") or name.startswith("_"):
            object.__setattr__(self, name, value)
            return
        setattr(self.wrapped_tokenizer, name, value)
        if name in ("normalizer", "pre_tokenizer", "model", "decoder"):
            self._changed(0)

    def __reduce__(self) -> Any:
        draws = self.draws
        return _rebuilt, (self.wrapped_tokenizer, draws.scheme, draws.seed, draws.state)

    def __repr__(self) -> str:
        mode = "on" if self.training else "off"
        return f"<stochastic tokenizer, {self.draws.sampler.spec}, draws {mode}>"


def stochastic_tokenizer(
    tokenizer: Any, scheme: Any, seed: int, state: Any = None
) -> StochasticTokenizer:
    """A `tokenizers.Tokenizer` wrapped."""
    return StochasticTokenizer(
        tokenizer, SeededScheme(scheme, seed, lambda: Vocabulary.load(tokenizer), state)
    )


_rebuilt = stochastic_tokenizer


def _pair(one: Any, is_pretokenized: bool) -> tuple[Any, Any]:
    if is_pretokenized:
        two = len(one) == 2 and all(isinstance(part, (list, tuple)) for part in one)
    else:
        two = isinstance(one, (list, tuple))
    return (one[0], one[1]) if two else (one, None)


def _word_numbers(fields: Any) -> np.ndarray:
    return np.array([-1 if word is None else word for word in fields["words"]], np.int64)


def _outside(text: Any, fields: Any) -> np.ndarray:
    """The tokens that stay: those not entirely in the text's spans, where it has spans."""
    size = len(fields["ids"])
    spans = (SPANS.get() or {}).get(text) if isinstance(text, str) else None
    if spans is None:
        return np.zeros(size, np.bool_)
    fixed = np.ones(size, np.bool_)
    if not size:
        return fixed
    offsets = np.asarray(fields["offsets"])
    for begin, end in spans:
        fixed &= ~((offsets[:, 0] >= begin) & (offsets[:, 1] <= end))
    return fixed


# --- Encoding objects -------------------------------------------------------------------------


def fields_of(encoding: Any) -> Fields:
    """The contents of an Encoding, before special tokens are added."""
    return {
        "ids": encoding.ids,
        "tokens": encoding.tokens,
        "words": encoding.word_ids,
        "offsets": encoding.offsets,
    }


def encoding_of(fields: Fields, sequence: int) -> Any:
    """An Encoding; ``sequence`` is 1 for the second text of a pair, else 0.

    Lists of integers are written by ``str``, which takes a third of the time of ``json.dumps``.
    """
    size = len(fields["ids"])
    words = str(fields["words"]).replace("None", "null")
    offsets = str(fields["offsets"]).replace("(", "[").replace(")", "]")
    encoding = Encoding()
    encoding.__setstate__(
        f'{{"ids": {fields["ids"]}, "tokens": {json.dumps(fields["tokens"])}, "words": {words}, '
        f'"offsets": {offsets}, "type_ids": {[sequence] * size}, '
        f'"special_tokens_mask": {[0] * size}, "attention_mask": {[1] * size}, '
        '"overflowing": [], "sequence_ranges": {}}'.encode()
    )
    return encoding


def with_new_ids(
    fields: Fields,
    new: np.ndarray,
    vocab: Vocabulary,
    text: str | None,
    name: Callable[[int], str],
) -> Fields:
    """The contents of an Encoding after its ids became ``new``, other ids of the same bytes.

    ``text`` is the encoded text (None: it came in words, to which offsets are relative), ``name``
    gives the token string of an id. Offsets are those of the characters that a token's bytes belong
    to, as the library gives them. Where the normalizer changed the text, tokens have the offsets of
    the canonical token.
    """
    old_ids = np.array(fields["ids"])
    sizes = _sizes(vocab, new)
    ends, old_ends = np.cumsum(sizes), np.cumsum(_sizes(vocab, old_ids))
    starts = ends - sizes
    source = np.searchsorted(old_ends, starts, side="right")  # the old token of the first byte
    old_tokens = [vocab.tokens[i] for i in fields["ids"]]
    characters = _characters_of_bytes(old_tokens, fields["offsets"], text)
    low, high = characters[starts, 0], characters[ends - 1, 1]
    offsets = np.stack([low, np.maximum(low, high)], axis=1)
    same = (old_ids[source] == new) & (ends == old_ends[source])  # and the same span
    offsets[same] = np.array(fields["offsets"])[source[same]]
    ids, sources = new.tolist(), source.tolist()
    return {
        "ids": ids,
        "tokens": [
            fields["tokens"][j] if is_same else name(i)
            for i, j, is_same in zip(ids, sources, same.tolist(), strict=True)
        ],
        "words": [fields["words"][j] for j in sources],
        "offsets": offsets.tolist(),
    }


def _sizes(vocab: Vocabulary, ids: np.ndarray) -> np.ndarray:
    """The bytes of each token, int64 [ids]; one for a token without any."""
    return np.maximum(vocab.token_offsets[ids + 1] - vocab.token_offsets[ids], 1)


def _characters_of_bytes(old: list[bytes], offsets: list[Any], text: str | None) -> np.ndarray:
    """The span of the character that each byte of the old tokens belongs to, int64 [bytes, 2].

    A token without bytes has one entry. Spans are exact where the tokens spell ``text``, and by
    token otherwise.
    """
    text_bytes = text.encode("utf8") if text is not None and all(old) else None
    if text_bytes is not None and b"".join(old) == text_bytes:
        character = _character_numbers(text_bytes)
        return np.stack([character, character + 1], axis=1)
    pairs = zip(old, offsets, strict=True)
    return np.concatenate([_characters_of_token(token, *span) for token, span in pairs])


def _characters_of_token(token: bytes, begin: int, end: int) -> np.ndarray:
    """Spans of the bytes of a canonical token whose characters are ``begin`` to ``end``.

    The whole span where its bytes are other characters than those of the text.
    """
    spans = np.tile(np.array([begin, end]), (max(len(token), 1), 1))
    try:
        added = len(token.decode("utf8")) - (end - begin)
    except UnicodeDecodeError:
        return spans
    # 1 where the tokenizer put a space before the text, which shares the first character's span.
    if token and (added == 0 or (added == 1 and token[:1] == b" ")):
        first = begin + np.maximum(_character_numbers(token) - added, 0)
        spans = np.stack([first, first + 1], axis=1)
    return spans


def _character_numbers(text: bytes) -> np.ndarray:
    """For each byte of a text, the number of its character."""
    return np.cumsum((np.frombuffer(text, np.uint8) & 0xC0) != 0x80) - 1
