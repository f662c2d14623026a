"""How far draws are from canonical: growth in tokens, distances, and splits under BPE-dropout.

Growth under a scheme is the cost of stochastic training. The splits of BPE-dropout depend on p, the
text and the merge list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from robustok.analysis.splits import in_blocks
from robustok.checks import check_list
from robustok.lattice import Lattice
from robustok.ragged import Ragged
from robustok.runtime.display import Progress, part_of_progress
from robustok.samplers import BpeDropout, measure, sampler
from robustok.samplers.bpe_dropout import RULES
from robustok.tokenizer.vocabulary import Text, Vocabulary


class Growth(NamedTuple):
    """Length ratio of one scheme at one alpha, over all texts together.

    >>> result = growth(vocab, texts, ["uniform-k"], alphas=[1], seed=0)[0]
    >>> result.scheme, result.alpha, result.texts
    ('uniform-k', 1.0, 2)

    Attributes:
        scheme: the scheme, without its alpha.
        alpha: strength per canonical token.
        ratio: drawn tokens over canonical tokens.
        error: standard error of ``ratio`` over texts (of a ratio of sums, by linearization).
        texts: number of texts.
    """

    scheme: str
    alpha: float
    ratio: float
    error: float
    texts: int


def growth(
    vocab: Vocabulary,
    texts: Iterable[str],
    schemes: Sequence[str] = ("stochastok", "stochastok-uniform", "uniform-k"),
    *,
    seed: int,
    alphas: Sequence[float] = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0),
    progress: Progress | None = None,
) -> list[Growth]:
    """Expected length ratio of each scheme at each alpha, from one draw of every text.

    >>> round(growth(vocab, texts, ["stochastok"], alphas=[0.5], seed=0)[0].ratio, 2)
    1.5

    Args:
        vocab: the vocabulary.
        texts: the texts, all weighted by their length: tokens are summed before they are divided.
        schemes: names or specs of schemes, without their alpha: ``"stochastok(ways=3)"``.
        seed: any integer; it and the position of a text decide its draw.
        alphas: strengths per canonical token, each from 0 to 10,000.
        progress: called with (pairs of scheme and alpha done, all pairs).

    Rows are ordered by scheme, then by alpha. Raises RobustokError for a scheme without alpha.
    """
    schemes = check_list("schemes", schemes)
    rows = vocab.encode_batch(texts)
    jobs = [(scheme, alpha) for scheme in schemes for alpha in alphas]
    points = []
    for number, (scheme, alpha) in enumerate(jobs, 1):
        name, _, inside = scheme.partition("(")
        rest = f", {inside[:-1]}" if inside else ""
        draw = sampler(f"{name}(alpha={alpha:g}{rest})", vocab)
        strength = measure(vocab, rows, draw.sample_batch(rows, seed=seed))
        ratio, error = ratio_of_sums(strength.tokens, strength.canonical)
        points.append(Growth(scheme, float(alpha), ratio, error, len(rows)))
        if progress:
            progress(number, len(jobs))
    return points


def ratio_of_sums(parts: np.ndarray, wholes: np.ndarray) -> tuple[float, float]:
    """The sum of ``parts`` over that of ``wholes``, and its standard error by linearization."""
    n, total = len(parts), max(float(wholes.sum()), 1.0)
    ratio = float(parts.sum()) / total
    squares = float(((parts - ratio * wholes) ** 2).sum())
    return ratio, float(np.sqrt(squares * n / max(n - 1, 1)) / total)


def distance_shares(
    lattice: Lattice, rows: Ragged | Sequence[np.ndarray], *, least: float
) -> list[tuple[int, float, float]]:
    """By distance from canonical: the exact share of all tokenizations, and that of drawn rows.

    >>> from robustok.analysis.lengths import distance_shares
    >>> distance_shares(vocab.lattice("the"), [vocab.encode("the")], least=0.01)
    [(0, 0.3333333333333333, 1.0), (2, 0.3333333333333333, 0.0), (3, 0.3333333333333333, 0.0)]

    Args:
        lattice: that of a text.
        rows: drawn ids of the text.
        least: distances with both shares below it are left out.
    """
    seen = Counter(measure(lattice.vocab, [lattice.reference], rows).distance.tolist())
    counts = lattice.counts(by="distance")
    total = sum(counts)
    shares = [(at, count / total, seen[at] / len(rows)) for at, count in enumerate(counts)]
    return [share for share in shares if max(share[1:]) >= least]


class Splits(NamedTuple):
    """Splits over many draws of one text.

    >>> Splits(mean=0.75, std=0.9, least=0, most=6).most
    6

    Attributes:
        mean: mean number of splits.
        std: standard deviation.
        least: smallest number.
        most: greatest number.
    """

    mean: float
    std: float
    least: int
    most: int


# Llama 3, by the probability of a drop (paper, table `bpedropout_splits`).
DROPOUT: dict[float, Splits] = {
    0.10: Splits(0.75, 0.90, 0, 6),
    0.25: Splits(3.01, 1.89, 0, 14),
    0.50: Splits(22.41, 4.62, 6, 44),
    0.75: Splits(53.06, 6.13, 29, 78),
}


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
    progress: Progress | None = None,
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
        share = part_of_progress(progress, number * draws, len(jobs) * draws)
        blocks = in_blocks(scheme, canonical, draws, seed, share)
        splits = np.concatenate([measure(vocab, rows, samples).splits for rows, samples in blocks])
        span = int(splits.min()), int(splits.max())
        results.append(
            DropoutRow(rule, p, Splits(float(splits.mean()), float(splits.std()), *span), draws)
        )
    return results
