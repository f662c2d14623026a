"""A transformers tokenizer that draws.

It becomes one of a subclass of its own class. So ``isinstance`` holds, and padding, truncation,
tensors and saving are those of transformers. Only its backend is replaced.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from robustok.errors import RobustokError
from robustok.integrations.stochastic.fast import SPANS, StochasticTokenizer
from robustok.integrations.stochastic.switch import Scheme, SeededScheme, Switch
from robustok.tokenizer.chat import content_spans

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


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
