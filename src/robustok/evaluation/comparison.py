"""Paired comparison of two evaluations of the same items: McNemar's test, also for clusters."""

from __future__ import annotations

import math
from dataclasses import dataclass

from robustok.errors import RobustokError
from robustok.evaluation.intervals import exact_mcnemar
from robustok.evaluation.result import Evaluation
from robustok.normal import Z95


@dataclass(frozen=True)
class Paired:
    """The same questions under two tokenizations.

    >>> Paired(difference=-0.31, low=-0.36, high=-0.26, lost=160, won=5, n=500, p=1e-41).lost
    160

    Args:
        difference: second accuracy minus the first, from -1 to 1.
        low: lower 95% bound of ``difference``.
        high: upper 95% bound.
        lost: questions answered less often by the second.
        won: questions answered more often by the second.
        n: number of questions.
        p: two-sided probability of a difference this large where there is none.
    """

    difference: float
    low: float
    high: float
    lost: int
    won: int
    n: int
    p: float


def paired(first: Evaluation, second: Evaluation) -> Paired:
    """Compare two evaluations of the same items.

    >>> from robustok.evaluation import evaluate
    >>> result = paired(evaluate(model, vocab, items, "canonical", seed=0),
    ...                 evaluate(model, vocab, items, "uniform", seed=0))
    >>> 0 <= result.p <= 1
    True

    Args:
        first: the evaluation to compare with.
        second: the evaluation of the same items, in any order; the difference is its accuracy minus
            the first one's.

    With one draw each it is McNemar's exact test: under the null hypothesis a question that only
    one of the two gets right is equally likely to be either's. With several, draws of one question
    are a cluster, and the statistic is McNemar's for clusters (Durkalski et al. 2003), which is the
    same for clusters of one.

    Raises RobustokError where the items differ.
    """
    theirs = {outcome.key: outcome for outcome in second.outcomes}
    if set(theirs) != {outcome.key for outcome in first.outcomes}:
        raise RobustokError(
            "the two evaluations have different items: compare evaluations of the same items"
        )
    changes = [theirs[outcome.key].correct - outcome.correct for outcome in first.outcomes]
    n = len(changes)
    lost, won = sum(c < 0 for c in changes), sum(c > 0 for c in changes)
    mean = math.fsum(changes) / n
    spread = math.fsum((c - mean) ** 2 for c in changes) / max(n - 1, 1)
    half = Z95 * math.sqrt(spread / n)
    if first.draws == second.draws == 1:
        p = exact_mcnemar(lost, won)
    else:
        squares = math.fsum(c * c for c in changes)
        p = math.erfc(abs(math.fsum(changes)) / math.sqrt(2 * squares)) if squares else 1.0
    return Paired(mean, max(-1.0, mean - half), min(1.0, mean + half), lost, won, n, p)
