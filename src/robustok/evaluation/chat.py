"""Ids of a chat template around the user's text, which a search keeps."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from robustok.errors import RobustokError
from robustok.special_tokens import PLACEHOLDER


class Frame(NamedTuple):
    """Ids before and after a text, which stay as they are.

    >>> Frame(np.array([0], np.int32), np.array([276], np.int32))._asdict().keys()
    dict_keys(['prefix', 'suffix'])

    Attributes:
        prefix: ids before the text, int32 [n].
        suffix: ids after it, int32 [m].
    """

    prefix: np.ndarray
    suffix: np.ndarray


def chat_frame(tokenizer: Any, *, system: str | None = None, user: str = "{text}") -> Frame:
    """The kept ids around a text that is written into a chat template.

    >>> from transformers import PreTrainedTokenizerFast
    >>> turn = "<|endoftext|>{{ m.role }}: {{ m.content }}\\n"
    >>> template = "{% for m in messages %}" + turn + "{% endfor %}"
    >>> chat = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template)
    >>> frame = chat_frame(chat, system="Is it safe?")
    >>> vocab.decode(frame.prefix), vocab.decode(frame.suffix)
    ('<|endoftext|>system: Is it safe?\\n<|endoftext|>user: ', '\\n')

    Args:
        tokenizer: a tokenizer of transformers with a chat template.
        system: the system message; by default there is none.
        user: the user's message, with ``{text}`` once, where the text comes.

    The generation prompt is included.

    Raises RobustokError where the template or ``user`` does not contain the text exactly once.
    """
    if user.count("{text}") != 1:
        raise RobustokError("the user message must contain {text} once: the attack replaces it")
    if getattr(tokenizer, "chat_template", None) is None:
        raise RobustokError(
            "the tokenizer has no chat template: give prefix and suffix ids instead"
        )
    messages = [{"role": "user", "content": user.replace("{text}", PLACEHOLDER)}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    whole = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    parts = whole.split(PLACEHOLDER)
    if len(parts) != 2:
        raise RobustokError(f"the chat template writes the user message {len(parts) - 1} times")
    before, after = (tokenizer.encode(part, add_special_tokens=False) for part in parts)
    return Frame(np.asarray(before, np.int32), np.asarray(after, np.int32))
