"""Tokenizers of `tokenizers` and transformers that draw.

A ``tokenizers.Tokenizer`` encodes, draws, then cuts, adds special tokens and pads. Truncation, the
post-processor and padding are those of the wrapped tokenizer, applied to the drawn ids by its own
``post_process``. It takes ``tokenizers.Encoding`` objects, for which the library has no
constructor: a kernel rewrites their pickled state, which is JSON.

A transformers tokenizer becomes one of a subclass of its own class. So ``isinstance`` holds, and
padding, truncation, tensors and saving are those of transformers. Only its backend is replaced.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Sequence
from contextvars import ContextVar
from functools import cached_property
from typing import Any

import numpy as np
import tokenizers
from tokenizers import Encoding

from robustok.errors import RobustokError
from robustok.integrations.stochastic.switch import SeededScheme, Switch, Wrapper
from robustok.kernels.encodings import rewrite
from robustok.tokenizer.chat import content_spans
from robustok.tokenizer.tokenizer_json import plain_twin

# Texts of which only some characters may be drawn anew: rendered chats. Each thread has its own.
SPANS: ContextVar[dict[str, list[tuple[int, int]]] | None] = ContextVar("spans", default=None)


class StochasticTokenizer(Wrapper):
    """A `tokenizers.Tokenizer` whose ``encode``, ``encode_batch`` and the like draw.

    >>> import robustok as rt
    >>> drawing = rt.stochastic(tokenizer, "uniform-k(k=2)", seed=0)
    >>> drawing.encode("hello world").tokens
    ['hell', 'o', 'Ġworld']
    >>> drawing.eval().encode("hello world").tokens
    ['hello', 'Ġworld']

    All else is the wrapped tokenizer's. Its settings, as truncation, may be changed through either.
    """

    def __init__(self, tokenizer: Any, scheme: Any, seed: int, state: Any = None) -> None:
        super().__init__(tokenizer, scheme, seed, state)
        self._size = tokenizer.get_vocab_size()

    def encode(
        self,
        sequence: Any,
        pair: Any = None,
        is_pretokenized: bool = False,
        add_special_tokens: bool = True,
    ) -> Any:
        """As `tokenizers.Tokenizer.encode`; each word of a list of words is drawn by itself."""
        if not self.training:
            return self.wrapped_tokenizer.encode(
                sequence, pair, is_pretokenized, add_special_tokens
            )
        return self._encode([(sequence, pair)], is_pretokenized, add_special_tokens)[0]

    def encode_batch(
        self, input: Any, is_pretokenized: bool = False, add_special_tokens: bool = True
    ) -> list[Any]:
        """As `tokenizers.Tokenizer.encode_batch`, of texts or pairs of texts."""
        if not self.training:
            return self.wrapped_tokenizer.encode_batch(input, is_pretokenized, add_special_tokens)
        pairs = [_pair(one, is_pretokenized) for one in input]
        return self._padded(self._encode(pairs, is_pretokenized, add_special_tokens))

    encode_batch_fast = encode_batch

    async def async_encode(self, *args: Any, **kwargs: Any) -> Any:
        """As :meth:`encode`."""
        return self.encode(*args, **kwargs)

    async def async_encode_batch(self, *args: Any, **kwargs: Any) -> list[Any]:
        """As :meth:`encode_batch`."""
        return self.encode_batch(*args, **kwargs)

    async_encode_batch_fast = async_encode_batch

    def add_tokens(self, tokens: Any) -> int:
        """As `tokenizers.Tokenizer.add_tokens`; the vocabulary is read again."""
        return self._changed(self.wrapped_tokenizer.add_tokens(tokens))

    def add_special_tokens(self, tokens: Any) -> int:
        """As `tokenizers.Tokenizer.add_special_tokens`; the vocabulary is read again."""
        return self._changed(self.wrapped_tokenizer.add_special_tokens(tokens))

    def _changed(self, added: int) -> int:
        self._size = self.wrapped_tokenizer.get_vocab_size()
        for name in ("_names", "_bare"):
            vars(self).pop(name, None)
        self.draws.forget()
        return added

    def _encode(
        self, pairs: Sequence[tuple[Any, Any]], is_pretokenized: bool, add_special_tokens: bool
    ) -> list[Any]:
        """Drawn encodings, cut and with special tokens; each padded alone."""
        if self.wrapped_tokenizer.get_vocab_size() != self._size:
            self._changed(0)
        texts = [text for pair in pairs for text in pair if text is not None]
        bare = self._bare
        if bare.encode_special_tokens != self.wrapped_tokenizer.encode_special_tokens:
            bare.encode_special_tokens = self.wrapped_tokenizer.encode_special_tokens
        if len(texts) == 1:  # a tenth less than a batch of one
            raw = [bare.encode(texts[0], None, is_pretokenized, False)]
        else:
            raw = bare.encode_batch(texts, is_pretokenized, False)
        ids = [np.array(encoding.ids, np.int32) for encoding in raw]
        draw, vocab = self.draws.draw, self.draws.vocab
        drawn = self._by_word(ids, raw) if is_pretokenized else draw(ids, _fixed(texts, raw))
        tables = vocab.token_bytes, vocab.token_offsets, *self._names
        rows = zip(raw, ids, drawn, strict=True)
        process = self.wrapped_tokenizer.post_process
        results = []
        for _, second in pairs:
            first = _with_ids(*next(rows), *tables, 0)
            pair = None if second is None else _with_ids(*next(rows), *tables, 1)
            results.append(process(first, pair, add_special_tokens))
        return results

    def _by_word(self, ids: list[np.ndarray], raw: list[Any]) -> list[np.ndarray]:
        """Draw each word by itself: a token across two words would belong to neither."""
        numbers = [[-1 if word is None else word for word in one.word_ids] for one in raw]
        cuts = [np.flatnonzero(np.diff(np.array(row, np.int64))) + 1 for row in numbers]
        words = [np.split(row, cut) for row, cut in zip(ids, cuts, strict=True)]
        drawn = iter(self.draws.draw([word for row in words for word in row]))
        return [np.concatenate([next(drawn) for _ in row]) for row in words]

    def _padded(self, encodings: list[Any]) -> list[Any]:
        """Pad to the longest of the batch, where that is what the tokenizer is set to."""
        padding = self.wrapped_tokenizer.padding
        if padding is None or padding["length"] is not None or not encodings:
            return encodings
        longest = max(len(encoding) for encoding in encodings)
        names = ("direction", "pad_id", "pad_type_id", "pad_token")
        for encoding in encodings:
            encoding.pad(longest, **{name: padding[name] for name in names})
        return encodings

    @cached_property
    def _bare(self) -> Any:
        """A twin on the same model without truncation, post-processor and padding."""
        return plain_twin(self.wrapped_tokenizer)

    @cached_property
    def _names(self) -> tuple[np.ndarray, np.ndarray]:
        """The token strings of all ids as JSON, and where they begin, as `rewrite` takes them."""
        names = [self.wrapped_tokenizer.id_to_token(i) for i in range(self.draws.vocab.size)]
        text = json.dumps(names, ensure_ascii=False, separators=("\n", ":"))[1:-1] + "\n"
        text_bytes = np.frombuffer(bytearray(text.encode()), np.uint8)
        return text_bytes, np.append(0, np.flatnonzero(text_bytes == ord("\n")) + 1)

    def __setattr__(self, name: str, value: Any) -> None:
        """Settings go to the wrapped tokenizer; a new normalizer or model is read again."""
        if name in ("wrapped_tokenizer", "draws") or name.startswith("_"):
            object.__setattr__(self, name, value)
            return
        setattr(self.wrapped_tokenizer, name, value)
        if name in ("normalizer", "pre_tokenizer", "model", "decoder"):
            self._changed(0)


def _pair(one: Any, is_pretokenized: bool) -> tuple[Any, Any]:
    if is_pretokenized:
        two = len(one) == 2 and all(isinstance(part, (list, tuple)) for part in one)
    else:
        two = isinstance(one, (list, tuple))
    return (one[0], one[1]) if two else (one, None)


def _with_ids(encoding: Any, *arguments: Any) -> Any:
    """An Encoding with other ids of the same bytes; ``arguments`` are those of `rewrite`."""
    state = rewrite(np.frombuffer(encoding.__getstate__(), np.uint8), *arguments)
    if not len(state):
        raise RobustokError(
            f"tokenizers {tokenizers.__version__} stores encodings in another form than the "
            "releases that robustok requires"
        )
    result = Encoding()
    result.__setstate__(state.tobytes())
    return result


def _fixed(texts: list[Any], raw: list[Any]) -> list[np.ndarray] | None:
    """The tokens of each text that stay: those not entirely in its spans, where it has spans."""
    spans_of = SPANS.get()
    if spans_of is None:
        return None
    rows = []
    for text, encoding in zip(texts, raw, strict=True):
        spans = spans_of.get(text)
        fixed = np.full(len(encoding), spans is not None)
        offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        for begin, end in spans or ():
            fixed &= ~((offsets[:, 0] >= begin) & (offsets[:, 1] <= end))
        rows.append(fixed)
    return rows


class StochasticPreTrained(Switch):
    """What is added to the class of a transformers tokenizer."""

    __dict__: dict[str, Any]

    @property
    def draws(self) -> SeededScheme:  # type: ignore[override]
        return self.__dict__["_tokenizer"].draws

    @property
    def wrapped_tokenizer(self) -> Any:  # type: ignore[override]
        """A tokenizer of the original class with the current settings, which is canonical."""
        canonical = original_class(type(self))
        new = canonical.__new__(canonical)
        new.__dict__.update(_copied(self.__dict__))
        new.__dict__["_tokenizer"] = self.__dict__["_tokenizer"].wrapped_tokenizer
        return new

    def apply_chat_template(self, conversation: Any, *args: Any, **kwargs: Any) -> Any:
        """As the wrapped tokenizer; only the contents of the chosen roles are drawn."""
        plain: Any = super()
        tokenize = kwargs.get("tokenize", True)
        if not (tokenize and self.training) or (len(args) > 5 and not args[5]):
            return plain.apply_chat_template(conversation, *args, **kwargs)
        if kwargs.get("sanitize_control_tokens"):
            self._refuse("sanitize_control_tokens", "it without this option")
        unused = ("tokenize", "return_dict", "return_assistant_tokens_mask", "return_tensors")
        options = {name: value for name, value in kwargs.items() if name not in unused}

        def render(messages: Any) -> str:
            return plain.apply_chat_template(messages, *args[:5], tokenize=False, **options)

        batched = bool(conversation) and (
            isinstance(conversation[0], (list, tuple)) or hasattr(conversation[0], "messages")
        )
        spans = {}  # the characters of each rendered chat that may be drawn
        for one in conversation if batched else [conversation]:
            messages = getattr(one, "messages", one)
            rendered = render(messages)
            spans[rendered] = content_spans(rendered, messages, self.__dict__["_roles"], render)
        token = SPANS.set(spans)
        try:
            return plain.apply_chat_template(conversation, *args, **kwargs)
        finally:
            SPANS.reset(token)

    def train_new_from_iterator(self, *args: Any, **kwargs: Any) -> Any:
        """As the wrapped tokenizer: a new canonical tokenizer."""
        return self.wrapped_tokenizer.train_new_from_iterator(*args, **kwargs)

    def __reduce__(self) -> Any:
        return _rebuilt, (original_class(type(self)), dict(self.__dict__))


def stochastic_pretrained(tokenizer: Any, scheme: Any, seed: int, roles: Sequence[str]) -> Any:
    """A transformers tokenizer with a Rust backend, wrapped."""
    if isinstance(roles, str) or not all(isinstance(role, str) for role in roles):
        raise RobustokError(f"roles is a list of names, as ['user'], not {roles!r}")
    state = _copied(tokenizer.__dict__)
    backend = tokenizer.backend_tokenizer
    state["_tokenizer"] = StochasticTokenizer(backend, scheme, seed)
    state["_roles"] = tuple(roles)
    return _rebuilt(type(tokenizer), state)


@functools.cache
def stochastic_class(original: type) -> Any:
    """The subclass of a tokenizer's class. It has the same name, under which it is saved."""
    return type(original.__name__, (StochasticPreTrained, original), {"__module__": __name__})


def original_class(cls: type) -> Any:
    """The class of the wrapped tokenizer."""
    return cls.__mro__[cls.__mro__.index(Switch) + 1]


def _rebuilt(original: type, state: dict[str, Any]) -> Any:
    cls = stochastic_class(original)
    tokenizer = cls.__new__(cls)
    tokenizer.__dict__.update(state)
    return tokenizer


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a tokenizer; containers are copied, so that they change apart."""
    return {k: copy.copy(v) if type(v) in (dict, list, set) else v for k, v in state.items()}
