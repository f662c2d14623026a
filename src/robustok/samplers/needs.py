"""Requirements of schemes on a tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from robustok.vocabulary import Vocabulary


class Need(NamedTuple):
    """A requirement: its name in errors, and a test of a vocabulary."""

    what: str
    is_met: Callable[[Vocabulary], bool]


def _has_merges(vocab: Vocabulary) -> bool:
    """Whether the merges are listed, or follow from ranks or scores."""
    return vocab.data.merges is not None or vocab.data.family.endswith("BPE")


def _has_scores(vocab: Vocabulary) -> bool:
    return vocab.data.scores is not None and not vocab.data.family.endswith("BPE")


MERGES = Need("a BPE tokenizer with its merges", _has_merges)
SCORES = Need("the piece scores of a Unigram tokenizer", _has_scores)
