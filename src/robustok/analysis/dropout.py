"""Number of splits of BPE-dropout, which depends on p, the text and the merge list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from robustok.analysis.draws import in_blocks, one_of
from robustok.analysis.paper import Splits
from robustok.checks import check_list
from robustok.samplers import BpeDropout
from robustok.strength import measure
from robustok.vocabulary import Text, Vocabulary

RULES = ("provilkov", "hf", "sentencepiece")


class DropoutRow(NamedTuple):
    """The splits of one dropout rule at one p.

    >>> row = dropout_splits(vocab, "hello world", seed=0, rules=["hf"], draws=100)[0]
    >>> row.rule, row.p, row.draws
    ('hf', 0.1, 100)

    Attributes:
        rule: name of the rule.
        p: probability that a merge is dropped.
        splits: mean, standard deviation and range of the splits, over the draws.
        draws: number of draws.
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

    >>> result = dropout_splits(vocab, "hello world", seed=0, rules=["hf"])[0].splits
    >>> result.least, result.most
    (0, 9)

    Args:
        vocab: the vocabulary of a BPE tokenizer; its merges are dropped.
        text: one text.
        seed: any integer; it and the number of a draw decide the draw.
        probabilities: values of p, each from 0 to 1: the probability that a merge is dropped.
        rules: names of the dropout rules, by default all three. They are three distributions under
            one name; see :class:`robustok.BpeDropout`.
        draws: draws of the text for each rule and p, at least 1. The standard error of a mean falls
            with the square root of their number.
        progress: called with (draws done, all draws), over all rules and values of p.

    Splits are boundaries that the canonical tokenization does not have. Rows are ordered by rule,
    then by p.

    Raises RobustokError for a vocabulary without merges, an unknown rule and a p out of range.
    Source: the paper's table `bpedropout_splits`.
    """
    rules = check_list("rules", rules)
    canonical = vocab.encode(text)
    results, jobs = [], [(rule, p) for rule in rules for p in probabilities]
    for number, (rule, p) in enumerate(jobs):
        scheme = BpeDropout(vocab, p=p, rule=rule)
        share = one_of(number, len(jobs), progress)
        splits = np.concatenate([
            measure(vocab, rows, drawn).splits
            for rows, drawn in in_blocks(scheme, canonical, draws, seed, share)
        ])  # fmt: skip
        span = int(splits.min()), int(splits.max())
        results.append(
            DropoutRow(rule, p, Splits(float(splits.mean()), float(splits.std()), *span), draws)
        )
    return results
