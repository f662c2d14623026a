"""The one comparison of two accuracies, from the answers to each question: command, report, card.

A row is the mapping of one model under one scheme, such as a row of a report. It has ``answers``:
by seed, then by the key of the question, the share of draws with the right answer. Seeds are paired
by their number, questions by their key, and only what both rows have is compared. Where a row has
no answers, its ``accuracy`` with the bounds ``low`` and ``high`` over ``n`` questions stands for
them, and the two rows count as independent.

The interval and its p are those of :func:`robustok.evaluation.intervals.compare_answers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from robustok.evaluation.intervals import LEVEL, compare_answers, interval
from robustok.runtime.display import Z95

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Second accuracy minus the first, with its 95% interval and the p of the same test.

    >>> one = Difference(before=0.8, after=0.5, low=-0.4, high=-0.2, p=0.001, n=100)
    >>> round(one.mean, 2), one.is_clear
    (-0.3, True)

    Args:
        before: first accuracy, over the seeds and questions that both have.
        after: second accuracy, over the same.
        low: lower 95% bound of ``after`` minus ``before``.
        high: upper 95% bound.
        p: two-sided probability of a difference this large where there is none. It is below 0.05
            exactly where the interval of a single comparison excludes zero.
        n: number of questions.
        seeds: number of seeds.
        lost: questions answered less often by the second; None where answers are not known.
        won: questions answered more often by the second; None where answers are not known.
    """

    before: float
    after: float
    low: float
    high: float
    p: float
    n: int
    seeds: int = 1
    lost: int | None = None
    won: int | None = None

    @property
    def mean(self) -> float:
        """Second accuracy minus the first."""
        return self.after - self.before

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0

    def bounds_text(self) -> str:
        """The interval, its bounds with three decimal digits.

        >>> Difference(before=0.8, after=0.5, low=-0.4, high=-0.0002, p=0.04, n=9).bounds_text()
        '[-0.400, -0.0002]'

        A bound that would be rounded to zero has more digits.
        """
        low, high = (_beside(bound, 0.0, "+.{}f", 3) for bound in (self.low, self.high))
        return f"[{low}, {high}]"

    def p_text(self) -> str:
        """The p with two digits, or more where it would be rounded to 0.05.

        >>> Difference(before=0.8, after=0.5, low=-0.4, high=-0.1, p=0.0496, n=9).p_text()
        '0.0496'
        """
        return _beside(self.p, LEVEL, ".{}g", 2)


def _beside(value: float, threshold: float, form: str, digits: int) -> str:
    """A number with so many digits, or as many more as show on which side of a threshold it is."""
    for more in range(digits, digits + 18):
        text = format(value, form.format(more))
        if np.sign(float(text) - threshold) == np.sign(value - threshold):
            break
    return text


def difference(first: Row, second: Row, *, level: float = LEVEL) -> Difference:
    """Compare two rows question by question, over the seeds and questions that both have.

    >>> first = {"answers": {0: {str(i): 0.0 for i in range(30)}}}
    >>> second = {"answers": {0: {str(i): float(i > 5) for i in range(30)}}}
    >>> change = difference(first, second)
    >>> change.mean, change.won, change.is_clear
    (0.8, 24, True)

    Args:
        first: the row to compare with.
        second: the row whose accuracy minus the first one's is the difference.
        level: probability that the interval misses the true difference, by default 0.05.
    """
    answers = _shared_answers(first, second)
    if answers is None:
        parts = [(variance_of(row), float(max(row["n"] - 1, 1))) for row in (first, second)]
        before, after = first["accuracy"], second["accuracy"]
        low, high, p = interval(after - before, parts, level=level)
        seeds = len(second.get("seeds") or (None,))
        return Difference(
            before=before,
            after=after,
            low=max(low, -1.0),
            high=min(high, 1.0),
            p=p,
            n=second["n"],
            seeds=seeds,
        )
    low, high, p = compare_answers(*answers, level=level)
    before, after = (float(part.mean()) for part in answers)
    changes = (answers[1] - answers[0]).mean(0)
    return Difference(
        before=before,
        after=after,
        low=low,
        high=high,
        p=p,
        n=len(changes),
        seeds=len(answers[0]),
        lost=int((changes < 0).sum()),
        won=int((changes > 0).sum()),
    )


def _shared_answers(first: Row, second: Row) -> tuple[np.ndarray, np.ndarray] | None:
    """The answers of both, float64 [seeds, questions], over what both measured."""
    before, after = first.get("answers") or {}, second.get("answers") or {}
    pairs = [(before[seed], after[seed]) for seed in before if seed in after]
    if not pairs:
        return None
    keys = [key for key in pairs[0][0] if all(key in one for pair in pairs for one in pair)]
    if not keys:
        return None
    rows = np.array([[[one[key] for key in keys] for one in pair] for pair in pairs], np.float64)
    return rows[:, 0], rows[:, 1]


def variance_of(row: Any) -> Any:
    """The variance of a mean, from the bounds ``low`` and ``high`` of its 95% interval."""
    return ((row["high"] - row["low"]) / 2 / Z95) ** 2


def clear_differences(
    pairs: Mapping[Any, tuple[Row, Row]], *, compare: Callable[..., Difference] = difference
) -> dict[Any, Difference]:
    """The differences that Holm's method keeps among several, each with the interval of its step.

    >>> answers = [{"answers": {0: dict.fromkeys("abcdefghij", right)}} for right in (0.0, 1.0)]
    >>> list(clear_differences({"same": (answers[0], answers[0]), "better": tuple(answers)}))
    ['better']

    ``pairs`` are the two rows of each comparison, by any name. Of k comparisons the one with the
    smallest p has an interval that holds for k at once, the next one for k - 1, and so on, until
    one of them includes zero. ``compare`` is the comparison of two rows, by default
    :func:`difference`.
    """
    changes: dict[Any, Difference] = {}
    smallest_first = sorted(pairs, key=lambda name: compare(*pairs[name]).p)
    for rank, name in enumerate(smallest_first):
        change = compare(*pairs[name], level=LEVEL / (len(pairs) - rank))
        if not change.is_clear:
            break
        changes[name] = change
    return {name: changes[name] for name in pairs if name in changes}
