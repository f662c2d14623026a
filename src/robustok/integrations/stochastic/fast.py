"""Tokenizers of `tokenizers` and of transformers that draw.

A text is encoded canonically, by the fast encoder of the vocabulary where that is known to give the
library's ids, and drawn. Then it is cut, gets special tokens and is padded as the wrapped tokenizer
is set to (`encoding`).

A transformers tokenizer becomes one of a subclass of its own class. So ``isinstance`` holds, and
padding, truncation, tensors and saving are those of transformers. Only its backend is replaced.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from tokenizers import AddedToken, Encoding, Tokenizer

from robustok.checks import check_text
from robustok.errors import RobustokError
from robustok.integrations.stochastic.encoding import (
    DrawnEncoding,
    Lists,
    Part,
    PostProcessing,
    Text,
    aligned,
    pad,
)
from robustok.integrations.stochastic.switch import (
    Scheme,
    SeededScheme,
    Switch,
    Wrapper,
    check_deterministic,
)
from robustok.runtime.processes import State
from robustok.tokenizer.chat import content_spans
from robustok.tokenizer.tokenizers_api import plain_twin

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Input = str | Sequence[str]  # a text, or a list of words
Encoded = Encoding | DrawnEncoding  # canonical in evaluation mode
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

    All else is the wrapped tokenizer's. Its settings, as truncation, may be changed through either;
    tokens are added, and a normalizer, pre-tokenizer, model or decoder set, through this one.
    """

    _encoding_names = ("async_encode",)

    def __init__(
        self, tokenizer: Tokenizer, scheme: Scheme, seed: int, state: State | None = None
    ) -> None:
        super().__init__(tokenizer, scheme, seed, state)
        self._size = tokenizer.get_vocab_size()
        self._tables: _Tables | None = None

    def encode(
        self,
        sequence: Input,
        pair: Input | None = None,
        is_pretokenized: bool = False,
        add_special_tokens: bool = True,
    ) -> Encoded:
        """As `tokenizers.Tokenizer.encode`; each word of a list of words is drawn by itself."""
        check_deterministic(self.wrapped_tokenizer)
        if not self.training:
            return self.wrapped_tokenizer.encode(
                sequence, pair, is_pretokenized, add_special_tokens
            )
        encodings = self._encode([(sequence, pair)], is_pretokenized, add_special_tokens)
        pad(encodings, self.wrapped_tokenizer.padding)
        return encodings[0]

    def encode_batch(
        self, input: Iterable[Any], is_pretokenized: bool = False, add_special_tokens: bool = True
    ) -> Sequence[Encoded]:
        """As `tokenizers.Tokenizer.encode_batch`, of texts or pairs of texts."""
        check_deterministic(self.wrapped_tokenizer)
        if not self.training:
            return self.wrapped_tokenizer.encode_batch(input, is_pretokenized, add_special_tokens)
        pairs = [_pair(one, is_pretokenized) for one in input]
        encodings = self._encode(pairs, is_pretokenized, add_special_tokens)
        pad(encodings, self.wrapped_tokenizer.padding)
        return encodings

    def encode_batch_fast(
        self, input: Iterable[Any], is_pretokenized: bool = False, add_special_tokens: bool = True
    ) -> Sequence[Encoded]:
        """As `tokenizers.Tokenizer.encode_batch_fast`; drawn encodings have their offsets, too."""
        check_deterministic(self.wrapped_tokenizer)
        encode = self.encode_batch if self.training else self.wrapped_tokenizer.encode_batch_fast
        return encode(input, is_pretokenized, add_special_tokens)

    def add_tokens(self, tokens: Sequence[str | AddedToken]) -> int:
        """As `tokenizers.Tokenizer.add_tokens`; the vocabulary is read again."""
        return self._changed(self.wrapped_tokenizer.add_tokens(tokens))

    def add_special_tokens(self, tokens: Sequence[str | AddedToken]) -> int:
        """As `tokenizers.Tokenizer.add_special_tokens`; the vocabulary is read again."""
        return self._changed(self.wrapped_tokenizer.add_special_tokens(tokens))

    def _changed(self, added: int) -> int:
        self._size = self.wrapped_tokenizer.get_vocab_size()
        self._tables = None
        self.draws.forget()
        return added

    def _encode(
        self,
        pairs: Sequence[tuple[Input, Input | None]],
        is_pretokenized: bool,
        add_special_tokens: bool,
    ) -> list[DrawnEncoding]:
        """Drawn encodings, cut and with special tokens."""
        if self.wrapped_tokenizer.get_vocab_size() != self._size:
            self._changed(0)
        texts = [text for pair in pairs for text in pair if text is not None]
        samples = iter(self._drawn(texts, is_pretokenized))
        probes = self._get_tables().probes
        process = PostProcessing(self.wrapped_tokenizer, probes, add_special_tokens)

        def sequence(type_id: int) -> DrawnEncoding:
            text = next(samples)
            return DrawnEncoding([Part(text, 0, len(text.ids), type_id)])

        return [
            process(sequence(0)) if second is None else process(sequence(0), sequence(1))
            for _, second in pairs
        ]

    def _drawn(self, texts: Sequence[Input], is_pretokenized: bool) -> list[Text]:
        """Draws of texts, or of lists of words."""
        tables, spans, draws = self._get_tables(), SPANS.get(), self.draws
        special_is_text = self.wrapped_tokenizer.encode_special_tokens
        rows: list[np.ndarray | None] = [None] * len(texts)
        encodings: dict[int, Encoding] = {}

        def encoded() -> list[Encoding]:
            """The canonical encodings by the library, of the texts that have none yet too."""
            numbers = [i for i in range(len(texts)) if i not in encodings]
            encode(numbers)
            return [encodings[i] for i in range(len(texts))]

        def encode(numbers: list[int]) -> None:
            bare = tables.bare
            bare.encode_special_tokens = special_is_text
            if len(numbers) == 1:  # a tenth less than a batch of one
                encodings[numbers[0]] = bare.encode(texts[numbers[0]], None, is_pretokenized, False)
            elif numbers:
                some = bare.encode_batch([texts[i] for i in numbers], is_pretokenized, False)
                encodings.update(zip(numbers, some, strict=True))

        if spans is None and not is_pretokenized:
            fast = draws.vocab.gigatoken
            for i, text in enumerate(texts):
                if tables.is_plain(text, special_is_text):
                    rows[i] = fast.encode(text)
        others = [i for i, row in enumerate(rows) if row is None]
        encode(others)
        for i in others:
            rows[i] = np.array(encodings[i].ids, np.int32)
        old = [row for row in rows if row is not None]
        if is_pretokenized:
            new = self._by_word(old, encoded())
        else:
            new = draws.draw(old, None if spans is None else _fixed(spans, texts, encoded()))

        computed: list[list[Lists]] = []  # `functools.cache` would take a tenth of a short call

        def lists() -> list[Lists]:
            if not computed:
                computed.append(aligned(draws.vocab, tables.names, old, new, encoded()))
            return computed[0]

        return [Text(row.tolist(), lambda i=i: lists()[i]) for i, row in enumerate(new)]

    def _by_word(self, ids: list[np.ndarray], encodings: list[Encoding]) -> list[np.ndarray]:
        """Draw each word by itself: a token across two words would belong to neither."""
        numbers = [[-1 if word is None else word for word in one.word_ids] for one in encodings]
        cuts = [np.flatnonzero(np.diff(np.array(row, np.int64))) + 1 for row in numbers]
        words = [np.split(row, cut) for row, cut in zip(ids, cuts, strict=True)]
        samples = iter(self.draws.draw([word for row in words for word in row]))
        return [np.concatenate([next(samples) for _ in row]) for row in words]

    def _get_tables(self) -> _Tables:
        if self._tables is None:
            self._tables = _Tables(self.wrapped_tokenizer, self.draws.vocab.some_word)
        return self._tables

    def __setattr__(self, name: str, value: object) -> None:
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


def _fixed(
    spans_of: dict[str, list[tuple[int, int]]],
    texts: Sequence[Input],
    encodings: Sequence[Encoding],
) -> list[np.ndarray]:
    """The tokens of each text that stay: those not entirely in its spans, where it has spans."""
    rows = []
    for text, encoding in zip(texts, encodings, strict=True):
        spans = spans_of.get(text) if isinstance(text, str) else None
        fixed = np.full(len(encoding), spans is not None)
        offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        for begin, end in spans or ():
            fixed &= ~((offsets[:, 0] >= begin) & (offsets[:, 1] <= end))
        rows.append(fixed)
    return rows


class _Tables:
    """What follows from the model and the added tokens of a tokenizer.

    ``bare`` is a twin on the same model without truncation, post-processor and padding. ``names``
    gives the token string of an id. ``probes`` are those of `PostProcessing`.
    """

    def __init__(self, tokenizer: Tokenizer, word: str) -> None:
        self.bare = plain_twin(tokenizer)
        self.names = functools.cache(tokenizer.id_to_token)
        self.probes = _probes(self.bare, word)
        special = [one for one in tokenizer.get_added_tokens_decoder().values() if one.special]
        # Where the library looks for them in normalized text, the text itself does not tell.
        hidden = tokenizer.normalizer is not None and any(one.normalized for one in special)
        names = "|".join(re.escape(one.content) for one in special) or "(?!)"
        self._special = re.compile("" if hidden else names)

    def is_plain(self, text: Input, special_is_text: bool) -> TypeGuard[str]:
        """Whether no special token is found in a text, so that the vocabulary can encode it."""
        if not isinstance(text, str) or not (special_is_text or self._special.search(text) is None):
            return False
        return check_text(text) is text


def _probes(bare: Tokenizer, word: str) -> tuple[Encoding, Encoding, Encoding]:
    """Encodings of one token each, by a tokenizer that adds no special tokens."""
    alone = bare.encode(word, None, False, False)
    alone.truncate(1)
    first = bare.encode([word, word], None, True, False)  # at least two tokens
    second = bare.encode([word, word], [word, word], True, False)
    for one, direction in ((first, "right"), (second, "left")):
        one.truncate(2, direction=direction)
        one.truncate(1, direction=direction)
    return alone, first, second


class StochasticPreTrained(Switch):
    """What is added to the class of a transformers tokenizer."""

    __dict__: dict[str, Any]

    def __new__(cls, *args: object, **kwargs: object) -> PreTrainedTokenizerFast:
        """What the class makes, in ``from_pretrained`` too, is canonical: of the original class."""
        return original_class(cls)(*args, **kwargs)

    @property
    def draws(self) -> SeededScheme:  # type: ignore[override]
        return self.__dict__["_tokenizer"].draws

    @property
    def wrapped_tokenizer(self) -> PreTrainedTokenizerFast:  # type: ignore[override]
        """A tokenizer of the original class with the current settings, which is canonical."""
        canonical = original_class(type(self))
        new = canonical.__new__(canonical)
        new.__dict__.update(_copied(self.__dict__))
        new.__dict__["_tokenizer"] = self.__dict__["_tokenizer"].wrapped_tokenizer
        return new

    def apply_chat_template(self, conversation: Any, *args: object, **kwargs: object) -> Any:
        """As the wrapped tokenizer; only the contents of the chosen roles are drawn."""
        plain: Any = super()
        tokenize = kwargs.get("tokenize", True)
        if not (tokenize and self.training) or (len(args) > 5 and not args[5]):
            return plain.apply_chat_template(conversation, *args, **kwargs)
        if kwargs.get("sanitize_control_tokens"):
            self._refuse("sanitize_control_tokens", "it without this option")
        unused = ("tokenize", "return_dict", "return_assistant_tokens_mask", "return_tensors")
        options = {name: value for name, value in kwargs.items() if name not in unused}

        def render(messages: object) -> str:
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

    def train_new_from_iterator(self, *args: object, **kwargs: object) -> PreTrainedTokenizerFast:
        """As the wrapped tokenizer: a new canonical tokenizer."""
        return self.wrapped_tokenizer.train_new_from_iterator(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (original_class(type(self)), dict(self.__dict__))


def stochastic_pretrained(
    tokenizer: PreTrainedTokenizerFast, scheme: Scheme, seed: int, roles: Sequence[str]
) -> StochasticPreTrained:
    """A transformers tokenizer with a Rust backend, wrapped."""
    if isinstance(roles, str) or not all(isinstance(role, str) for role in roles):
        raise RobustokError(f"roles is a list of names, as ['user'], not {roles!r}")
    state = _copied(tokenizer.__dict__)
    backend = tokenizer.backend_tokenizer
    state["_tokenizer"] = StochasticTokenizer(backend, scheme, seed)
    state["_roles"] = tuple(roles)
    return _rebuilt(type(tokenizer), state)


@functools.cache
def stochastic_class(original: type) -> type[StochasticPreTrained]:
    """The subclass of a tokenizer's class. It has the same name, under which it is saved."""
    return type(original.__name__, (StochasticPreTrained, original), {"__module__": __name__})


def original_class(cls: type) -> type[PreTrainedTokenizerFast]:
    """The class of the wrapped tokenizer."""
    return cls.__mro__[cls.__mro__.index(Switch) + 1]


def _rebuilt(original: type, state: dict[str, Any]) -> StochasticPreTrained:
    cls = stochastic_class(original)
    tokenizer = object.__new__(cls)
    tokenizer.__dict__.update(state)
    return tokenizer


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a tokenizer; containers are copied, so that they change apart."""
    return {k: copy.copy(v) if type(v) in (dict, list, set) else v for k, v in state.items()}
