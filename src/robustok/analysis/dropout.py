"""The splits of a text under BPE-dropout, by its probability and by the rule of each library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from robustok.analysis.splits import DRAWS, in_blocks
from robustok.checks import check_list
from robustok.runtime.display import Progress, part_of_progress
from robustok.samplers import BpeDropout, measure
from robustok.samplers.bpe_dropout import RULES
from robustok.tokenizer.vocabulary import Text, Vocabulary


class DropoutRow(NamedTuple):
    """The splits over many draws of one text by one dropout rule at one p.

    >>> row = dropout_splits(vocab, "hello world", seed=0, rules=["hf"], draws=100)[0]
    >>> row.rule, row.p, row.draws
    ('hf', 0.1, 100)

    Attributes:
        rule: name of the rule.
        p: probability that a merge is dropped.
        mean: mean number of splits.
        std: standard deviation.
        min: smallest number.
        max: greatest number.
        draws: number of draws.
    """

    rule: str
    p: float
    mean: float
    std: float
    min: int
    max: int
    draws: int


# Of SENTENCE under Llama 3 (paper, table `bpedropout_splits`).
DROPOUT = (
    DropoutRow("paper", 0.10, 0.75, 0.90, 0, 6, DRAWS),
    DropoutRow("paper", 0.25, 3.01, 1.89, 0, 14, DRAWS),
    DropoutRow("paper", 0.50, 22.41, 4.62, 6, 44, DRAWS),
    DropoutRow("paper", 0.75, 53.06, 6.13, 29, 78, DRAWS),
)


def dropout_splits(
    vocab: Vocabulary,
    text: Text,
    *,
    seed: int,
    probabilities: Sequence[float] = (0.1, 0.25, 0.5, 0.75),
    rules: Sequence[str] = RULES,
    draws: int = 50_000,
    progress: Progress | None = None,
) -> list[DropoutRow]:
    """Mean, standard deviation, minimum and maximum of the splits of a text, by rule and p.

    >>> result = dropout_splits(vocab, "hello world", seed=0, rules=["hf"])[0]
    >>> result.min, result.max
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
        share = part_of_progress(progress, number * draws, len(jobs) * draws)
        blocks = in_blocks(scheme, canonical, draws, seed, share)
        splits = np.concatenate([measure(vocab, rows, samples).splits for rows, samples in blocks])
        results.append(
            DropoutRow(
                rule,
                p,
                float(splits.mean()),
                float(splits.std()),
                int(splits.min()),
                int(splits.max()),
                draws,
            )
        )
    return results
