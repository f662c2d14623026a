"""How many splits BPE-dropout induces: they follow from p only through the text and the merges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from robustok.analysis.draws import in_blocks, one_of
from robustok.analysis.paper import Splits
from robustok.samplers import BpeDropout
from robustok.strength import measure
from robustok.vocabulary import Text, Vocabulary

RULES = ("provilkov", "hf", "sentencepiece")


class DropoutRow(NamedTuple):
    """The splits of one rule at one p.

    >>> row = dropout_splits(vocab, "hello world", seed=0, rules=["hf"], draws=100)[0]
    >>> row.rule, row.p, row.draws
    ('hf', 0.1, 100)
    """

    rule: str
    p: float
    splits: Splits
    draws: int


def dropout_splits(
    vocab: Vocabulary,
    text: Text,
    *,
    seed: int,
    probabilities: Sequence[float] = (0.1, 0.25, 0.5, 0.75),
    rules: Sequence[str] = RULES,
    draws: int = 50_000,
    progress: Callable[[int, int], None] | None = None,
) -> list[DropoutRow]:
    """Mean, standard deviation, minimum and maximum of the splits of a text, by rule and p.

    >>> found = dropout_splits(vocab, "hello world", seed=0, rules=["hf"])[0].splits
    >>> found.least, found.most
    (0, 9)

    Splits are boundaries that the canonical tokenization does not have. The three rules are three
    laws by one name; see :class:`robustok.BpeDropout`. (Paper: table `bpedropout_splits`.)
    """
    canonical = vocab.encode(text)
    found, jobs = [], [(rule, p) for rule in rules for p in probabilities]
    for number, (rule, p) in enumerate(jobs):
        scheme = BpeDropout(vocab, p=p, rule=rule)
        share = one_of(number, len(jobs), progress)
        splits = np.concatenate([
            measure(vocab, rows, drawn).splits
            for rows, drawn in in_blocks(scheme, canonical, draws, seed, share)
        ])  # fmt: skip
        span = int(splits.min()), int(splits.max())
        found.append(
            DropoutRow(rule, p, Splits(float(splits.mean()), float(splits.std()), *span), draws)
        )
    return found
