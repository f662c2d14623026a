"""Masks of the user turns and of the turn headers in ids of a chat template."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from robustok.errors import RobustokError
from robustok.special_tokens import PLACEHOLDER
from robustok.vocabulary import Vocabulary


def user_turns(tokenizer: Any, vocab: Vocabulary) -> Callable[[np.ndarray], np.ndarray]:
    """A function from ids to a mask of the contents of user turns.

    >>> from transformers import PreTrainedTokenizerFast
    >>> turn = "<|endoftext|>{{ m.role }}: {{ m.content }}\\n"
    >>> template = "{% for m in messages %}" + turn + "{% endfor %}"
    >>> chat = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template)
    >>> messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "world"}]
    >>> ids = np.array(chat.apply_chat_template(messages)["input_ids"], np.int32)
    >>> vocab.decode(ids[user_turns(chat, vocab)(ids)])
    ' hello\\n'

    Args:
        tokenizer: a transformers tokenizer with a chat template.
        vocab: its vocabulary.

    The header of a user turn, such as a special token and a role, comes from the chat template. The
    turn ends at the next special token. The function maps int32 [n] to bool [n].

    Raises RobustokError without a chat template, and if special tokens do not mark its turns.
    """
    if getattr(tokenizer, "chat_template", None) is None:
        raise RobustokError("the tokenizer has no chat template: choose where='unlabeled'")
    opening = _openings(tokenizer, vocab).get("user")
    if opening is None:
        raise RobustokError(
            "the chat template marks no user turns by special tokens: choose where='unlabeled'"
        )
    special = _special(vocab)

    def mask(ids: np.ndarray) -> np.ndarray:
        ids = np.asarray(ids)
        in_turn = np.zeros(len(ids), np.bool_)
        ends = np.append(np.flatnonzero(special[ids]), len(ids))
        for start in _places(ids, opening) + len(opening):
            in_turn[start : ends[np.searchsorted(ends, start)]] = True
        return in_turn

    return mask


def template_headers(
    tokenizer: Any, vocab: Vocabulary
) -> Callable[[np.ndarray], np.ndarray] | None:
    """A function from ids to a mask of turn headers: the role's name and the tokens around it.

    None where the tokenizer has no chat template, or one without special tokens. Takes int32 of
    shape [n], gives bool of shape [n].
    """
    if getattr(tokenizer, "chat_template", None) is None:
        return None
    openings = list(_openings(tokenizer, vocab).values())

    def mask(ids: np.ndarray) -> np.ndarray:
        headers = np.zeros(len(ids), np.bool_)
        for opening in openings:
            for start in _places(np.asarray(ids), opening):
                headers[start : start + len(opening)] = True
        return headers

    return mask if openings else None


def _openings(tokenizer: Any, vocab: Vocabulary) -> dict[str, np.ndarray]:
    """The ids that open a turn of each role and of no other."""
    user_turn = {"role": "user", "content": "x"}
    before = {
        role: _before(tokenizer, vocab, [*earlier, {"role": role, "content": PLACEHOLDER}])
        for role, earlier in (("user", []), ("assistant", [user_turn]))
    }
    system = [{"role": "system", "content": PLACEHOLDER}, user_turn]
    before["system"] = _before(tokenizer, vocab, system)
    special, openings = _special(vocab), {}
    for role, ids in before.items():
        others = [o for r, o in before.items() if r != role and o is not None]
        opening = _opening(ids, others, special)
        if opening is not None:
            openings[role] = opening
    return openings


def _special(vocab: Vocabulary) -> np.ndarray:
    special = np.zeros(vocab.size, np.bool_)
    special[list(vocab.special)] = True
    return special


def _places(ids: np.ndarray, opening: np.ndarray) -> np.ndarray:
    """Where ``opening`` begins in ``ids``."""
    if len(ids) < len(opening):
        return np.empty(0, np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(ids, len(opening))
    return np.flatnonzero((windows == opening).all(axis=1))


def _before(tokenizer: Any, vocab: Vocabulary, messages: list[dict[str, str]]) -> list[int] | None:
    """The ids a template puts before a place; nothing where it refuses such messages."""
    try:
        whole = tokenizer.apply_chat_template(messages, tokenize=False)
    except Exception:  # templates raise what they like, jinja2.TemplateError mostly
        return None
    head, separator, _ = whole.partition(PLACEHOLDER)
    if not separator:
        return None
    # Encoded with a word after it: what comes before a word is cut differently from an end.
    ids = tokenizer.encode(head + "word", add_special_tokens=False)
    ends = np.cumsum([len(vocab.tokens[i]) for i in ids])
    return ids[: int(np.searchsorted(ends, len(head.encode()), side="right"))]


def _opening(
    before: list[int] | None, others: list[list[int]], special: np.ndarray
) -> np.ndarray | None:
    """The shortest end of ``before`` from a special token on that ends none of the others."""
    for at in reversed(range(len(before or []))):
        assert before is not None
        tail = before[at:]
        if special[before[at]] and not any(o[-len(tail) :] == tail for o in others):
            return np.asarray(tail)
    return None
