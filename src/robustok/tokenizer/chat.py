"""Chat templates: where the text of messages stands in what a template writes, as text or as ids.

A template is a program, so nothing is read from it. It renders messages whose contents are
placeholders, and the rendered text is cut at them. `after_prefix` continues the text of any ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from robustok.checks import check_ids
from robustok.errors import RobustokError
from robustok.tokenizer.vocabulary import Vocabulary

# Ids before a text, or a function from a text to the ids before it.
Prefix = Sequence[int] | np.ndarray | Callable[[str], Sequence[int] | np.ndarray] | None
Message = dict[str, Any]
Span = tuple[int, int]

MARK = "\ue000"  # private use: no chat template or tokenizer writes it
_NO_IDS = np.empty(0, np.int64)
_PLACEHOLDERS = re.compile(f"{MARK}([0-9]{{1,9}}){MARK}")


def placeholder(number: int = 0) -> str:
    """The content that stands for text ``number`` while a template is rendered."""
    return f"{MARK}{number}{MARK}"


def split_at_placeholders(rendered: str) -> tuple[list[str], list[int]]:
    """The text before, between and after the placeholders, and their numbers in order.

    >>> split_at_placeholders(f"<user>{placeholder(0)}<end>")
    (['<user>', '<end>'], [0])
    """
    parts = _PLACEHOLDERS.split(rendered)
    return parts[::2], [int(number) for number in parts[1::2]]


def check_template(tokenizer: Any, advice: str) -> None:
    """Raise RobustokError, with what to do, for a tokenizer without a chat template."""
    if getattr(tokenizer, "chat_template", None) is None:
        raise RobustokError(f"the tokenizer has no chat template: {advice}")


def render_chat(tokenizer: Any, messages: Sequence[Message], **options: Any) -> str:
    """The text that the chat template of a tokenizer of transformers writes for messages."""
    try:
        return tokenizer.apply_chat_template(messages, tokenize=False, **options)
    except Exception as error:  # of any class: a template is a program
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise RobustokError(f"the chat template failed: {reason[:300]}") from error


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


def chat_frame(tokenizer: Any, *, system: str | None = None) -> Frame:
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

    The text is the user's message. The generation prompt is included.

    Raises RobustokError where the template fails, and where it does not contain the text exactly
    once.
    """
    check_template(tokenizer, "ask without one, or in Python give prefix and suffix ids")
    messages = [{"role": "user", "content": placeholder()}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    whole = render_chat(tokenizer, messages, add_generation_prompt=True)
    parts, _ = split_at_placeholders(whole)
    if len(parts) != 2:
        raise RobustokError(f"the chat template writes the user message {len(parts) - 1} times")
    before, after = parts
    vocab = Vocabulary.load(tokenizer)
    parse = not tokenizer.split_special_tokens
    (suffix,) = vocab.encode_continuations([after], parse_special=parse)
    return Frame(vocab.encode(before, parse_special=parse), suffix)


def after_prefix(vocab: Vocabulary, prefix: Prefix, text: str) -> tuple[np.ndarray, np.ndarray]:
    """The ids before a text, and the canonical ids of the text after them, int32.

    >>> before, ids = after_prefix(vocab, vocab.encode("hello"), " world")
    >>> np.array_equal(np.concatenate([before, ids]), vocab.encode("hello world"))
    True

    Args:
        vocab: the vocabulary.
        prefix: ids before the text, or a function from a text to them; None for none.
        text: the text. After ordinary ids it continues their text; after none, or after a special
            token, it is a text of its own.

    A token across the end of the prefix belongs to the text, and the returned prefix ends before
    it.
    """
    prefix_ids = prefix(text) if callable(prefix) else prefix
    before = check_ids([] if prefix_ids is None else prefix_ids, vocab.size).astype(np.int32)
    fixed = np.flatnonzero(~vocab.ordinary[before])
    begin = int(fixed[-1]) + 1 if len(fixed) else 0
    prefix_text = vocab.decode_bytes(before[begin:])
    if not prefix_text:
        return before, vocab.encode(text)
    (separate,) = vocab.encode_continuations([text])
    (joint,) = vocab.encode_continuations([prefix_text + text.encode()])
    if vocab.decode_bytes(joint) == prefix_text + vocab.decode_bytes(separate):
        starts = token_starts(vocab, joint)
        first_token = int(np.searchsorted(starts, len(prefix_text) + 1)) - 1
        if first_token == len(joint):  # an empty text
            return before, separate
        borders = np.flatnonzero(token_starts(vocab, before[begin:]) == starts[first_token])
        if len(borders):
            return before[: begin + int(borders[0])], joint[first_token:]
    return before, separate


def token_starts(vocab: Vocabulary, ids: np.ndarray) -> np.ndarray:
    """The byte at which each token starts, and the end of the last, int64 [ids + 1]."""
    return np.concatenate([[0], np.cumsum(vocab.token_lengths[ids])])


class ChatTurns:
    """Which ids of a chat are the contents of user turns, and which the headers of all turns.

    >>> from transformers import PreTrainedTokenizerFast
    >>> turn = "<|endoftext|>{{ m.role }}: {{ m.content }}\\n"
    >>> template = "{% for m in messages %}" + turn + "{% endfor %}"
    >>> chat = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template)
    >>> messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "world"}]
    >>> ids = np.array(chat.apply_chat_template(messages)["input_ids"], np.int32)
    >>> turns = ChatTurns(chat, vocab)
    >>> vocab.decode(ids[turns.user(ids)]), vocab.decode(ids[turns.headers(ids)])
    (' hello\\n', '<|endoftext|>user:<|endoftext|>assistant:')

    Args:
        tokenizer: a transformers tokenizer with a chat template.
        vocab: its vocabulary.

    The header of a user turn, such as a special token, a role's name and a line break, comes from
    the chat template. Every header begins with a token that opens a turn, and ends as that of the
    user; so names that are not asked for, as of a tool or a channel, are known too. A turn of the
    user ends at the next special token, and at an added token that the template ends or begins a
    turn with. A token that holds the end of the header and the first characters of the content
    counts as header. A system message that the template writes into the first turn of the user, as
    that of Gemma 3 does, is a part of this turn.

    Raises RobustokError without a chat template, and where it fails or special tokens do not mark
    its turns.
    """

    def __init__(self, tokenizer: Any, vocab: Vocabulary) -> None:
        check_template(tokenizer, "set tokenizer.chat_template")
        self._vocab, self._marks = vocab, ~vocab.ordinary
        before = self._before_contents(tokenizer)
        openings = {role: self._opening(ids, before) for role, ids in before.items()}
        self._opening_of_user = openings.get("user", _NO_IDS)
        if not len(self._opening_of_user):
            raise RobustokError(
                "the chat template marks no user turns by special tokens: set another one"
            )
        self._closing = _joined(self._opening_of_user, vocab)
        # Those with a name between them and the closing.
        self._begins = [
            ids[0]
            for ids in openings.values()
            if len(ids) > 2
            and np.flatnonzero(np.isin(ids, self._closing)).tolist() == [len(ids) - 1]
        ]
        # Other added tokens, such as `<think>`, may stand in a content.
        self._is_end = ~vocab.readable
        answered = before["assistant"]  # from the end of the user's content
        end = answered[self._marks[answered]][0]
        self._is_end[[self._opening_of_user[0], end, *self._begins]] = True

    def user(self, ids: np.ndarray) -> np.ndarray:
        """Which ids are contents of user turns, bool [n].

        Args:
            ids: the ids of a chat, int [n].
        """
        ids = np.asarray(ids)
        in_turn = np.zeros(len(ids), np.bool_)
        ends = np.append(np.flatnonzero(self._is_end[ids]), len(ids))
        opening = self._opening_of_user
        for start in _occurrences(ids, opening, self._closing) + len(opening):
            in_turn[start : ends[np.searchsorted(ends, start)]] = True
        return in_turn

    def headers(self, ids: np.ndarray) -> np.ndarray:
        """Which ids are headers that have a name, of any role, bool [n].

        Args:
            ids: the ids of a chat, int [n].
        """
        ids = np.asarray(ids)
        headers = np.zeros(len(ids), np.bool_)
        ends = np.append(np.flatnonzero(np.isin(ids, self._closing)), len(ids))
        for start in np.flatnonzero(np.isin(ids, self._begins)):
            headers[start : ends[np.searchsorted(ends, start)] + 1] = True
        return headers

    def _before_contents(self, tokenizer: Any) -> dict[str, np.ndarray]:
        """The ids between the content of each role and the one before it.

        Without the system message where the template refuses it, or writes it into the turn of the
        user. Empty where no special token stands before a content.
        """
        for roles in (("system", "user", "assistant"), ("user", "assistant")):
            chat = [{"role": role, "content": placeholder(n)} for n, role in enumerate(roles)]
            try:
                parts, numbers = split_at_placeholders(render_chat(tokenizer, chat))
            except RobustokError:
                if roles[0] == "user":
                    raise
                continue
            before = [self._before_word(tokenizer, part) for part in parts[:-1]]
            if numbers == [*range(len(roles))] and all(self._marks[ids].any() for ids in before):
                return dict(zip(roles, before, strict=True))
        return {}

    def _before_word(self, tokenizer: Any, text: str) -> np.ndarray:
        """The ids of a text that a word follows.

        What comes before a word is cut differently from an end. The word's bytes are counted from
        the end, for an encoder may add spaces before the text.
        """
        word = "word"
        ids = tokenizer.encode(text + word, add_special_tokens=False)
        ends = np.cumsum([len(self._vocab.tokens[i]) for i in ids])
        size = np.searchsorted(ends, ends[-1] - len(word), side="right")
        return np.array(ids[:size], np.int64)

    def _opening(self, ids: np.ndarray, before: dict[str, np.ndarray]) -> np.ndarray:
        """The shortest end of ``ids`` that begins with a special token and stands nowhere else."""
        for start in reversed(np.flatnonzero(self._marks[ids])):
            opening = ids[start:]
            places = [_occurrences(other, opening, opening[-1:]) for other in before.values()]
            if sum(map(len, places)) == 1:
                return opening
        return _NO_IDS


def _joined(opening: np.ndarray, vocab: Vocabulary) -> np.ndarray:
    """The ids that may end an opening: its last one, and longer tokens that begin as it does.

    Where a header ends in a line break and the content begins with one, a tokenizer may join them.
    """
    last = opening[-1]
    if not vocab.ordinary[last]:
        return opening[-1:]
    start = vocab.tokens[last]
    return np.array(
        [i for i in np.flatnonzero(vocab.ordinary) if vocab.tokens[i].startswith(start)]
    )


def _occurrences(ids: np.ndarray, opening: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Where ``opening``, with one of ``last`` as its last id, begins in ``ids``, ascending."""
    if len(opening) > len(ids):
        return _NO_IDS
    windows = np.lib.stride_tricks.sliding_window_view(ids, len(opening))
    is_opening = (windows[:, :-1] == opening[:-1]).all(axis=1)
    return np.flatnonzero(is_opening & np.isin(windows[:, -1], last))


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
    templated = render([_with_placeholders(message, roles, contents) for message in messages])
    literals, numbers = split_at_placeholders(templated)
    spans: list[Span] = []
    refusal = RobustokError(
        "the chat template changes the contents of messages, so they cannot be found in its text: "
        "draw other roles (roles=...), or call apply_chat_template(tokenize=False) and encode that"
    )
    if not rendered.startswith(literals[0]) or max(numbers, default=-1) >= len(contents):
        raise refusal
    place = len(literals[0])
    for number, literal in zip(numbers, literals[1:], strict=True):
        content = contents[number]
        for text in (content, content.strip(), content.lstrip(), content.rstrip()):
            end = place + len(text)
            if rendered.startswith(text, place) and rendered.startswith(literal, end):
                break
        else:
            raise refusal
        spans.append((place, end))
        place = end + len(literal)
    if place != len(rendered):
        raise refusal
    return spans


def _with_placeholders(message: Message, roles: Sequence[str], contents: list[str]) -> Message:
    """The message with placeholders for its texts, which are appended to ``contents``."""

    def replaced(text: str) -> str:
        contents.append(text)
        return placeholder(len(contents) - 1)

    content = message.get("content")
    if message.get("role") not in roles or not content:
        return message
    if isinstance(content, str):
        return {**message, "content": replaced(content)}
    return {
        **message,
        "content": [
            {**part, "text": replaced(part["text"])} if part.get("text") else part
            for part in content
        ],
    }
