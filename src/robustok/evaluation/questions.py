"""Items as token ids, and predictions and margins from a model's scores."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from robustok.checks import check_ids, check_list
from robustok.errors import RobustokError

if TYPE_CHECKING:
    from robustok.samplers import Sampler
    from robustok.tasks.item import Item
    from robustok.vocabulary import Vocabulary

Ids = Sequence[int] | np.ndarray


def item_key(key: str) -> int:
    """A stable 63-bit number for an item's key, so that draws don't depend on its position."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 1


def as_sampler(sampler: str | Sampler, vocab: Vocabulary) -> Sampler:
    """The sampler of a spec string; a sampler of this vocabulary stays itself."""
    from robustok.samplers import Sampler, Spec
    from robustok.samplers import sampler as build

    return build(sampler, vocab) if isinstance(sampler, (str, Spec, Sampler)) else sampler


def encode_options(vocab: Vocabulary, options: Sequence[str | Ids]) -> list[np.ndarray]:
    """Options as ids: text is tokenized canonically, ids stay as they are (int32)."""
    encoded = []
    for option in options:
        is_text = isinstance(option, (str, bytes))
        ids = vocab.encode(option) if is_text else check_ids(option, vocab.size)
        if not len(ids):
            raise RobustokError(f"option {option!r} has no tokens: every option needs some")
        encoded.append(ids)
    return encoded


def check_options(options: Sequence[str | Ids]) -> list[str | Ids]:
    """The options as a list; raises RobustokError for one string and for fewer than two options."""
    options = check_list("options", options)
    if len(options) < 2:
        raise RobustokError(f"a question needs at least two options, not {len(options)}")
    return options


def check_items(items: Sequence[Item]) -> None:
    """Raise where items are missing or share a key."""
    if not items:
        raise RobustokError("there are no items to evaluate: give at least one")
    seen: set[str] = set()
    for item in items:
        if item.key in seen:
            raise RobustokError(f"two items have the key '{item.key}': give each its own")
        seen.add(item.key)


def check_questions(items: Sequence[Item]) -> None:
    """Raise RobustokError if items are missing, share a key, or have no question."""
    check_items(items)
    for item in items:
        if not item.question:
            raise RobustokError(
                f"item '{item.key}' has no question, only sentences to choose from: "
                "those are for `evaluate` and `icl`, so leave it out here"
            )


def margins(log_probs: np.ndarray, label: int, objective: str = "log-probability") -> np.ndarray:
    """max over wrong options of z − z of the right one, float64 [questions].

    >>> margins(np.log([[0.5, 0.2, 0.3]]), 0, "probability").round(2).tolist()
    [-0.2]

    z is p(option | question) or its logarithm (paper, equations 1 and 2).
    """
    z = np.exp(log_probs) if objective == "probability" else log_probs
    wrong = np.delete(z, label, axis=1)
    return wrong.max(axis=1) - z[:, label]
