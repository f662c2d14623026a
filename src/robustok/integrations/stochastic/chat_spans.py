"""Where in a rendered chat the contents of some roles are, by rendering placeholders."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from robustok.errors import RobustokError

Message = dict[str, Any]
Span = tuple[int, int]

# A private-use character on both sides: no chat template writes these.
_PLACEHOLDER = re.compile("\ue000(\\d+)\ue000")


def content_spans(
    rendered: str,
    messages: Sequence[Message],
    roles: Sequence[str],
    render: Callable[[list[Message]], str],
) -> list[Span]:
    """The character spans of the contents of ``roles`` in ``rendered``, in order.

    >>> chat = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "world"}]
    >>> render = lambda chat: "".join(f"<{m['role']}>{m['content']}" for m in chat)
    >>> content_spans("<user>hello<assistant>world", chat, ["user"], render)
    [(6, 11)]

    ``render`` applies the chat template. The text around the contents is that of the same chat with
    placeholders for contents, so white space that the template strips is not in a span.

    Raises RobustokError where the template changes contents or writes other text around
    placeholders.
    """
    contents: list[str] = []
    templated = render([_replaced(message, roles, contents) for message in messages])
    parts = _PLACEHOLDER.split(templated)
    literals, numbers = parts[::2], [int(number) for number in parts[1::2]]
    spans: list[Span] = []
    place = _expected(rendered, literals[0], 0)
    for number, literal in zip(numbers, literals[1:], strict=True):
        end = _end_of_content(rendered, contents[number], place, literal)
        spans.append((place, end))
        place = end + len(literal)
    if place != len(rendered):
        _refuse()
    return spans


def _replaced(message: Message, roles: Sequence[str], contents: list[str]) -> Message:
    """The message with placeholders for its texts, which are appended to ``contents``."""

    def placeholder(text: str) -> str:
        contents.append(text)
        return f"\ue000{len(contents) - 1}\ue000"

    content = message.get("content")
    if message.get("role") not in roles or not content:
        return message
    if isinstance(content, str):
        return {**message, "content": placeholder(content)}
    return {
        **message,
        "content": [
            {**part, "text": placeholder(part["text"])} if part.get("text") else part
            for part in content
        ],
    }


def _end_of_content(rendered: str, content: str, place: int, literal: str) -> int:
    for text in (content, content.strip(), content.lstrip(), content.rstrip()):
        end = place + len(text)
        if rendered.startswith(text, place) and rendered.startswith(literal, end):
            return end
    return _refuse()


def _expected(rendered: str, literal: str, place: int) -> int:
    return place + len(literal) if rendered.startswith(literal, place) else _refuse()


def _refuse() -> Any:
    raise RobustokError(
        "the chat template changes the contents of messages, so they cannot be found in its text: "
        "draw other roles (roles=...), or call apply_chat_template(tokenize=False) and encode that"
    )
