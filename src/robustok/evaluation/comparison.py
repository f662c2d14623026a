"""Results of evaluations, and the one comparison of two accuracies: command, report, card.

A row is the mapping of one model under one scheme, such as a row of a report. It has ``answers``:
by seed, then by the key of the question, the share of draws with the right answer. Seeds are paired
by number, questions by key; others are left out. Where a row has no answers, its ``accuracy`` with
the bounds ``low`` and ``high`` over ``n`` questions is compared, and the rows count as independent.

The interval and its p are those of :func:`robustok.evaluation.intervals.compare_answers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from robustok.errors import RobustokError
from robustok.evaluation.intervals import LEVEL, Z95, compare_answers, interval
from robustok.runtime.display import counted
from robustok.runtime.files import JsonFields
from robustok.tasks.item import Item

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
        lost: questions answered right less often by the second; None without answers.
        won: questions answered right more often by the second; None without answers.
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
        low, high = (_rounded_beside(bound, 0.0, "+.{}f", 3) for bound in (self.low, self.high))
        return f"[{low}, {high}]"

    def p_text(self) -> str:
        """The p with two digits, or more where it would be rounded to 0.05.

        >>> Difference(before=0.8, after=0.5, low=-0.4, high=-0.1, p=0.0496, n=9).p_text()
        '0.0496'
        """
        return _rounded_beside(self.p, LEVEL, ".{}g", 2)


def _rounded_beside(value: float, threshold: float, form: str, digits: int) -> str:
    """A number with at least ``digits`` digits that is rounded to its side of the threshold."""
    for n_digits in range(digits, digits + 18):
        text = format(value, form.format(n_digits))
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
        variances = [(variance_of(row), float(max(row["n"] - 1, 1))) for row in (first, second)]
        before, after = first["accuracy"], second["accuracy"]
        low, high, p = interval(after - before, variances, level=level)
        counts = {"n": second["n"], "seeds": len(second.get("seeds") or (None,))}
    else:
        low, high, p = compare_answers(*answers, level=level)
        before, after = (float(rows.mean()) for rows in answers)
        changes = (answers[1] - answers[0]).mean(0)
        lost, won = int((changes < 0).sum()), int((changes > 0).sum())
        counts = {"n": len(changes), "seeds": len(answers[0]), "lost": lost, "won": won}
    low, high = max(low, -1.0), min(high, 1.0)
    return Difference(before=before, after=after, low=low, high=high, p=p, **counts)


def _shared_answers(first: Row, second: Row) -> tuple[np.ndarray, np.ndarray] | None:
    """The answers of both, float64 [seeds, questions], over what both measured."""
    before, after = first.get("answers") or {}, second.get("answers") or {}
    pairs = [(before[seed], after[seed]) for seed in before if seed in after]
    if not pairs:
        return None
    keys = [key for key in pairs[0][0] if all(key in answers for pair in pairs for answers in pair)]
    if not keys:
        return None
    shared = [[[answers[key] for key in keys] for answers in pair] for pair in pairs]
    rows = np.array(shared, np.float64)
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

    ``pairs`` are the two rows of each comparison, by any name. Of k comparisons, the smallest p
    gets an interval that holds for k at once, the next for k - 1, and so on until an interval
    includes zero. ``compare`` compares two rows, by default :func:`difference`.
    """
    changes: dict[Any, Difference] = {}
    smallest_first = sorted(pairs, key=lambda name: compare(*pairs[name]).p)
    for rank, name in enumerate(smallest_first):
        change = compare(*pairs[name], level=LEVEL / (len(pairs) - rank))
        if not change.is_clear:
            break
        changes[name] = change
    return {name: changes[name] for name in pairs if name in changes}


@dataclass(frozen=True)
class Outcome:
    """One item's predictions, one for each draw.

    >>> from robustok.evaluation import evaluate
    >>> outcome = evaluate(model, vocab, items, "uniform", draws=3, seed=0).outcomes[1]
    >>> outcome.item.key, outcome.item.label, len(outcome.predictions)
    ('q1', 1, 3)

    Args:
        item: the item.
        predictions: index of the option with the greatest log-probability, [draws].
        margins: greatest log-probability of a wrong option minus that of the right one, in nats,
            [draws]; above 0 the draw is wrong.
        norm_predictions: as ``predictions``, with each log-probability divided by the number of
            characters of the option, [draws].
    """

    item: Item
    predictions: tuple[int, ...]
    margins: tuple[float, ...]
    norm_predictions: tuple[int, ...]

    @property
    def correct(self) -> float:
        """Fraction of draws that got the label."""
        return sum(p == self.item.label for p in self.predictions) / len(self.predictions)

    @property
    def correct_norm(self) -> float:
        """Fraction of draws that got the label by ``norm_predictions``."""
        right = sum(p == self.item.label for p in self.norm_predictions)
        return right / len(self.norm_predictions)


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Accuracy over items, drawn or attacked, and the work that it took.

    >>> from robustok.attack import attack_items
    >>> isinstance(attack_items(model, vocab, items, seed=0), Accuracy)
    True

    Args:
        accuracy: mean over items of the fraction of correct draws; over attacked items, the share
            that the attack did not break.
        low: lower 95% bound of ``accuracy``, with items as clusters.
        high: upper 95% bound.
        n: number of items.
        draws: draws of each item; 1 for an attack.
        eval_scheme: spec of the scheme that drew the questions, or the settings of the attack.
        seed: seed of the draws and of all random choices.
        seconds: wall-clock time.
        mode: scoring mode, ``"tree"`` or ``"plain"``; see
            :func:`~robustok.scoring.scoring_mode`.
        tokens_computed: positions that went through the model, padding included.
        tokens_naive: positions of one unpadded sequence for each tokenization and option.
        overflowed: number of tokenizations that did not fit the model's longest input.
    """

    accuracy: float
    low: float
    high: float
    n: int
    draws: int
    eval_scheme: str
    seed: int
    seconds: float
    mode: str
    tokens_computed: int
    tokens_naive: int
    overflowed: int = 0


def accuracy_line(row: JsonFields, details: str) -> str:
    """An accuracy on one line; ``row`` has the fields of an :class:`Accuracy`."""
    interval = "{accuracy:.3f} [{low:.3f}, {high:.3f}]".format_map(row)
    count = row.get("overflowed")
    too_long = f", {count} longer than the model's max_length" if count else ""
    return f"{row['eval_scheme']}: accuracy {interval}, {details}{too_long}"


def evaluation_line(row: JsonFields) -> str:
    """An evaluation on one line; ``row`` has its fields and maybe ``consistency``."""
    normalized = "{acc_norm:.3f} [{acc_norm_low:.3f}, {acc_norm_high:.3f}]".format_map(row)
    same = "" if row.get("consistency") is None else f", consistency {row['consistency']:.3f}"
    draws = f"{counted(row['n'], 'item')} × {counted(row['draws'], 'draw')}"
    return accuracy_line(row, f"acc_norm {normalized}, {draws}{same}")


@dataclass(frozen=True, kw_only=True)
class Evaluation(Accuracy):
    """Accuracy over items, each under several tokenizations of its question.

    >>> from robustok.evaluation import evaluate
    >>> result = evaluate(model, vocab, items, "uniform", draws=3, seed=0)
    >>> result.eval_scheme, result.n, result.draws, len(result.outcomes)
    ('uniform', 8, 3, 8)

    Args:
        outcomes: the predictions for each item.
        acc_norm: accuracy where each log-probability is divided by the number of characters of its
            option, without the space before it: `acc_norm` of lm-eval.
        acc_norm_low: lower 95% bound of ``acc_norm``.
        acc_norm_high: upper 95% bound.
        precision: type of the model's weights, as ``"float32"`` or ``"bfloat16"``.
        strength: how far the draws are from canonical: ``splits``, ``distance`` and
            ``length_ratio`` per canonical token, as :meth:`robustok.Strength.mean` gives them.
    """

    outcomes: tuple[Outcome, ...]
    acc_norm: float
    acc_norm_low: float
    acc_norm_high: float
    precision: str
    strength: dict[str, float]

    @property
    def consistency(self) -> float | None:
        """Share of items with one prediction in all draws; None for a single draw.

        The other items change their answer between draws. A wrong answer counts as consistent.
        """
        if max(len(outcome.predictions) for outcome in self.outcomes) < 2:
            return None
        return sum(len(set(outcome.predictions)) == 1 for outcome in self.outcomes) / self.n

    def __str__(self) -> str:
        return evaluation_line({**vars(self), "consistency": self.consistency})

    def table(self) -> list[dict[str, object]]:
        """One plain dictionary per item, ready for JSON lines.

        ``predictions[j]`` and ``margins[j]`` are those of draw j of ``draws``.
        """
        return [
            {
                "key": o.item.key,
                "kind": o.item.kind,
                "label": o.item.label,
                "predictions": list(o.predictions),
                "margins": [round(m, 6) for m in o.margins],
                "correct": o.correct,
                "norm_predictions": list(o.norm_predictions),
                "correct_norm": o.correct_norm,
                "seed": self.seed,
                "draws": len(o.predictions),
            }
            for o in self.outcomes
        ]


def paired(first: Evaluation, second: Evaluation) -> Difference:
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

    The draws of one item are a cluster. Items are paired by their key, also where the two
    evaluations have other seeds.

    Raises RobustokError where the items differ, also in their question or choices alone.
    """
    before, after = ({o.item.key: o.item for o in e.outcomes} for e in (first, second))
    if before != after:
        raise RobustokError(
            "the two evaluations have different items: compare evaluations of the same items"
        )
    answers = ({o.item.key: o.correct for o in e.outcomes} for e in (first, second))
    return difference(*({"answers": {0: one}} for one in answers))  # as rows of one seed
