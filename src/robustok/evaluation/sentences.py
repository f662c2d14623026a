"""Items without a question, such as BLiMP's pairs, scored as whole drawn sentences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.errors import RobustokError
from robustok.evaluation.questions import Ids, item_key
from robustok.scoring import Request, score_many

if TYPE_CHECKING:
    from robustok.tasks.item import Item
    from robustok.vocabulary import Vocabulary


def start_ids(model: Any) -> list[int]:
    """The id that a text begins with, for the probability of its first token.

    Raises RobustokError where the model names none.
    """
    for name in ("bos_token_id", "eos_token_id"):
        value = getattr(model.config, name, None)
        if isinstance(value, int) and value >= 0:
            return [value]
    raise RobustokError(
        "the model names no token that begins a text (bos_token_id), so whole sentences cannot be "
        "scored: set one in its config"
    )


def sequence_log_probs(
    model: Any, rows: Iterable[Ids], start: Ids, prefix_cache: dict[bytes, Any] | None = None
) -> np.ndarray:
    """The log-probability of each whole tokenization after ``start``, in nats, float64 [rows]."""
    request = Request([[]], list(rows), start)
    return score_many(model, [request], prefix_cache=prefix_cache)[0].log_probs[0]


def sentence_keys(item: Item) -> list[tuple[str, str]]:
    """The sentences of an item, each with the key that its draws depend on."""
    return [(choice, f"{item.key}/{i}") for i, choice in enumerate(item.choices)]


def sentence_request(
    item: Item, vocab: Vocabulary, sampler: Any, draws: int, seed: int, prefix: Ids
) -> Request:
    """All draws of all sentences as options after one prefix: draw by draw, choice by choice."""
    keys = np.array([item_key(key) for _, key in sentence_keys(item)], np.int64)
    rows = sampler.sample_batch(list(item.choices), seed=seed, draws=draws, keys=keys)
    order = [c * draws + d for d in range(draws) for c in range(len(item.choices))]
    return Request([[]], [rows[i] for i in order], prefix)


def by_draw(log_probs: np.ndarray, item: Item) -> np.ndarray:
    """The scores of a sentence request as [draws, choices]."""
    return log_probs.reshape(-1, len(item.choices))
