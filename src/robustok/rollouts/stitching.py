"""Ids of a conversation from sampled ids and new text, without encoding sampled text again.

The chat template is rendered as text with a placeholder in place of each sampled turn. The text
between two placeholders is encoded, and the sampled ids stand where the placeholders were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robustok.checks import check_ids, check_list, shown
from robustok.errors import RobustokError
from robustok.vocabulary import Vocabulary, check_vocabulary

_MARK = "\ue000"  # private use: no chat template or tokenizer writes it


@dataclass(frozen=True, eq=False)
class Stitched:
    """The ids of a conversation; :func:`stitch` makes it.

    >>> stitched = Stitched(np.array([5, 6]), np.array([False, True]), np.array([-1, 0]))
    >>> stitched.ids[stitched.sampled]
    array([6])

    Args:
        ids: int32 [n].
        sampled: which ids were given as ids, bool [n]: the mask of a policy's loss.
        turn: for each id the number of the turn that it was given for, int64 [n]; -1 for ids of the
            template and of text.
    """

    ids: np.ndarray
    sampled: np.ndarray
    turn: np.ndarray


def stitch(
    vocab: Vocabulary,
    tokenizer: Any,
    turns: Sequence[Mapping[str, Any]],
    *,
    generation_prompt: bool = True,
    **template_arguments: Any,
) -> Stitched:
    """The ids of a conversation whose sampled turns keep their ids.

    >>> from transformers import PreTrainedTokenizerFast
    >>> from robustok.rollouts import stitch
    >>> template = "{% for m in messages %}{{ m.content }}<|endoftext|>{% endfor %}"
    >>> chat = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template)
    >>> sampled = [*vocab.encode("t"), *vocab.encode("he")]
    >>> turns = [{"role": "user", "content": "hello"}, {"role": "assistant", "ids": sampled}]
    >>> stitched = stitch(vocab, chat, turns, generation_prompt=False)
    >>> vocab.decode(stitched.ids), stitched.sampled.sum()
    ('hello<|endoftext|>the<|endoftext|>', np.int64(2))

    Args:
        vocab: the vocabulary of the tokenizer.
        tokenizer: a transformers tokenizer with a chat template.
        turns: messages in the form of the template; a sampled turn has ``ids`` instead of
            ``content``.
        generation_prompt: whether the template opens an answer at the end.
        **template_arguments: more arguments of ``apply_chat_template``, such as ``tools``.

    Where the sampled ids end with the special token that the template writes after them, it stands
    there once. What the template does to the text of a turn (trimming, removing reasoning) is not
    done to sampled ids. Raises RobustokError where there is no chat template, or where it does not
    write the text of a sampled turn exactly once.
    """
    check_vocabulary(vocab)
    if getattr(tokenizer, "chat_template", None) is None:
        raise RobustokError("the tokenizer has no chat template: set tokenizer.chat_template")
    messages, sampled = _with_placeholders(vocab, turns)
    text = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=generation_prompt, **template_arguments
    )
    parts: list[np.ndarray] = []
    turn: list[np.ndarray] = []
    position = 0
    previous = np.empty(0, np.int32)
    for number, mark in sorted(sampled, key=lambda entry: text.find(entry[1])):
        if text.count(mark) != 1:
            raise RobustokError(
                f"turn {number}: the chat template writes its content {text.count(mark)} times; "
                "sampled ids need a template that writes it once"
            )
        start = text.index(mark)
        parts.append(_template_ids(vocab, tokenizer, text[position:start], previous))
        previous = check_ids(turns[number]["ids"], vocab.size)
        parts.append(previous)
        turn += [np.full(len(parts[-2]), -1), np.full(len(previous), number)]
        position = start + len(mark)
    parts.append(_template_ids(vocab, tokenizer, text[position:], previous))
    turn.append(np.full(len(parts[-1]), -1))
    turns_of_ids = np.concatenate(turn).astype(np.int64)
    return Stitched(np.concatenate(parts).astype(np.int32), turns_of_ids >= 0, turns_of_ids)


def _with_placeholders(
    vocab: Vocabulary, turns: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    """The messages for the template, and (number, placeholder) of each sampled turn."""
    messages: list[dict[str, Any]] = []
    sampled: list[tuple[int, str]] = []
    for number, given in enumerate(check_list("turns", turns)):
        if not isinstance(given, Mapping):
            raise RobustokError(f"turn {number}: give a dict with a role, not {shown(given)}")
        message = dict(given)
        if "ids" in message:
            if message.get("content") is not None:
                raise RobustokError(f"turn {number} has ids and content: give one of them")
            try:
                check_ids(message.pop("ids"), vocab.size)
            except RobustokError as e:
                raise RobustokError(f"turn {number}: {e}") from e
            message["content"] = f"{_MARK}{number}{_MARK}"
            sampled.append((number, message["content"]))
        elif _MARK in str(message.get("content")):
            raise RobustokError(
                f"turn {number} has the private character U+E000, which marks sampled turns: "
                "remove it"
            )
        messages.append(message)
    return messages, sampled


def _template_ids(vocab: Vocabulary, tokenizer: Any, text: str, previous: np.ndarray) -> np.ndarray:
    """The ids of text after the ``previous`` sampled ids, without a special token twice."""
    if not text:
        return np.empty(0, np.int32)
    head, rest = ("", text) if not len(previous) else _split_at_special(vocab, text)
    # In mid-text, where an encoder that adds a space to a text must add none.
    ids = vocab.encode_continuation(head.encode()) if head else []
    if rest:
        ids += tokenizer.encode(rest, add_special_tokens=False)
    ended = len(previous) and ids and ids[0] == previous[-1] and not vocab.readable[ids[0]]
    return np.asarray(ids[1:] if ended else ids, np.int32)


def _split_at_special(vocab: Vocabulary, text: str) -> tuple[str, str]:
    """The text up to its first special token, and the rest."""
    names = (vocab.tokens[i].decode(errors="replace") for i in vocab.special)
    starts = [at for name in names if name and (at := text.find(name)) >= 0]
    at = min(starts, default=len(text))
    return text[:at], text[at:]
