"""Paired comparison of accuracies on the same questions: intervals, tests over seeds, tables.

The model is one of crossed random effects: an answer depends on the seed (initialization, order of
the data, draws), on the question, and on both. The variance of a mean is the variance between seeds
over their number plus the variance between questions over theirs. Every seed has the same
questions, so more seeds do not shrink the second part. Each part has a quantile of Student's t with
its own degrees of freedom (for two seeds 12.7, not 1.96), and the half-width is the root of the sum
of their squares. It is exact where one part is everything, and wider than needed in between.

One quantile for the sum, with Satterthwaite's degrees of freedom, is not used: with three seeds 7%
of tests at 5% are false alarms where the seeds vary most, since a variance that happens to come out
small also raises the degrees of freedom. `benchmarks/intervals.py` simulates both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from robustok.checks import check_integer
from robustok.errors import RobustokError
from robustok.evaluation.intervals import exact_mcnemar
from robustok.evaluation.result import Evaluation
from robustok.runtime.display import markdown_table

LEVEL = 0.05  # of an interval, and of a family of comparisons
_LEAST_P = 1e-100  # smaller ones are 0


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

    The interval is that of :func:`compare_answers`. With one draw each the test is McNemar's exact
    one: under the null hypothesis a question that only one of the two gets right is equally likely
    to be either's. With several, draws of one question are a cluster, and the statistic is
    McNemar's for clusters (Durkalski et al. 2003), which is the same for clusters of one.

    Raises RobustokError where the items differ.
    """
    theirs = {outcome.key: outcome.correct for outcome in second.outcomes}
    if set(theirs) != {outcome.key for outcome in first.outcomes}:
        raise RobustokError(
            "the two evaluations have different items: compare evaluations of the same items"
        )
    before = np.array([[outcome.correct for outcome in first.outcomes]], np.float64)
    after = np.array([[theirs[outcome.key] for outcome in first.outcomes]], np.float64)
    changes = (after - before)[0]
    lost, won = int((changes < 0).sum()), int((changes > 0).sum())
    low, high, _ = compare_answers(before, after)
    if first.draws == second.draws == 1:
        p = exact_mcnemar(lost, won)
    else:
        squares = math.fsum(changes**2)
        p = math.erfc(abs(math.fsum(changes)) / math.sqrt(2 * squares)) if squares else 1.0
    return Paired(math.fsum(changes) / len(changes), low, high, lost, won, len(changes), p)


def compare_answers(
    before: np.ndarray, after: np.ndarray, *, comparisons: int = 1
) -> tuple[float, float, float]:
    """95% bounds of the mean of ``after - before``, and the two-sided p of no difference.

    >>> low, high, p = compare_answers(np.zeros((1, 30)), np.ones((1, 30)))
    >>> low > 0.8, high
    (True, 1.0)

    Args:
        before: float64 [seeds, questions], the share of draws with the right answer.
        after: the same of the other model or scheme, for the same seeds and questions.
        comparisons: number of differences whose intervals hold at once.

    One seed has no variance between seeds: then the interval covers the questions only.
    """
    changes = after - before
    seeds, questions = changes.shape
    parts = [(_between_questions(changes.mean(0)), max(questions - 1, 1))]
    if seeds > 1:
        parts.append((float(changes.mean(1).var(ddof=1)) / seeds, seeds - 1))
    low, high, p = interval(float(changes.mean()), parts, comparisons=comparisons)
    return max(low, -1.0), min(high, 1.0), p


def _between_questions(changes: np.ndarray) -> float:
    """Variance of the mean change from the choice of the questions.

    Two more questions, half of one better, half of one worse and one the same, keep it above 0
    where all questions change alike (Agresti and Min, 2005).
    """
    n = len(changes) + 2
    return float(((changes**2).sum() + 1) / n - (changes.sum() / n) ** 2) / n


def interval(
    mean: float, parts: Sequence[tuple[float, float]], *, comparisons: int = 1
) -> tuple[float, float, float]:
    """Lower and upper 95% bounds of a mean, and the two-sided p of 0.

    >>> low, high, p = interval(0.0, [(1.0, 1)])
    >>> round(high, 1), p
    (12.7, 1.0)

    Args:
        mean: the mean.
        parts: for each source of error, the variance of the mean from it and its degrees of
            freedom.
        comparisons: number of means that the bounds hold for at once, by Bonferroni's inequality.
    """
    from scipy.optimize import brentq
    from scipy.stats import t

    def half_width(level: float) -> float:
        return math.sqrt(
            math.fsum(part * t.isf(level / 2, degrees) ** 2 for part, degrees in parts if part)
        )

    half = half_width(LEVEL / comparisons)
    if not half:
        return mean, mean, float(mean == 0)
    if mean == 0 or half_width(_LEAST_P) <= abs(mean):
        return mean - half, mean + half, float(mean == 0)
    # p is the level whose interval ends at 0.
    log_p: Any = brentq(lambda x: half_width(math.exp(x)) - abs(mean), math.log(_LEAST_P), 0.0)
    return mean - half, mean + half, math.exp(log_p)


# Several tasks, schemes and models


@dataclass(frozen=True)
class FewShot:
    """Few-shot prompting: solved examples before each question.

    >>> few_shot = FewShot(2, "stochastok(alpha=1)")
    >>> from robustok.evaluation import evaluate_tasks
    >>> tasks = {"odd": items}
    >>> result = evaluate_tasks(model, vocab, tasks, ["canonical"], seed=0, few_shot=few_shot)
    >>> result[0].evaluation.n
    6

    Args:
        count: number of examples, at least 1. The last items of a task are the examples, and are
            not evaluated.
        scheme: spec of the scheme that draws the examples' questions, by default canonical.
    """

    count: int
    scheme: str = "canonical"

    def __post_init__(self) -> None:
        check_integer("count", self.count, 1)


@dataclass(frozen=True)
class TaskResult:
    """One task under one scheme.

    >>> from robustok.evaluation import evaluate_tasks
    >>> result = evaluate_tasks(model, vocab, {"odd": items}, ["canonical", "uniform"], seed=0)
    >>> result[0].against, result[1].against.n
    (None, 8)

    Args:
        task: name of the task.
        evaluation: the accuracy under this scheme.
        against: paired comparison with the first scheme on the same task, None for the first one,
            and where no item is in both.
    """

    task: str
    evaluation: Evaluation
    against: Paired | None


def against(first: Evaluation | None, second: Evaluation) -> Paired | None:
    """The paired difference over the items that neither evaluation dropped."""
    if first is None:
        return None
    common = {o.key for o in first.outcomes} & {o.key for o in second.outcomes}
    return paired(*(
        replace(e, outcomes=tuple(o for o in e.outcomes if o.key in common))
        for e in (first, second)
    )) if common else None  # fmt: skip


def table(results: Sequence[TaskResult]) -> str:
    """A Markdown table in the paper's form: canonical accuracy, and the loss under other schemes.

    A cell is the accuracy in percent with its 95% interval, and of several draws the consistency,
    the share of questions with one answer in all draws. After the first column, it also has the
    difference from that column in points and the p-value of the paired test.
    """
    schemes = list(dict.fromkeys(r.evaluation.eval_scheme for r in results))
    by_cell = {(r.task, r.evaluation.eval_scheme): r for r in results}
    tasks = list(dict.fromkeys(r.task for r in results))
    lines = []
    for task in tasks:
        row = [by_cell.get((task, scheme)) for scheme in schemes]
        n = next(r.evaluation.n for r in row if r)
        lines.append([task, str(n), *(_cell(r) for r in row)])
    if len(tasks) > 1:
        lines.append(["mean", "", *(_mean(results, scheme, schemes[0]) for scheme in schemes)])
    return markdown_table(["task", "n", *schemes], lines)


def _cell(result: TaskResult | None) -> str:
    if result is None:
        return "not run"
    text, same = _accuracy(result.evaluation), result.evaluation.consistency
    if same is not None:
        text += f", consistency {100 * same:.1f}"
    if result.against is None:
        return text
    return f"{text} {100 * result.against.difference:+.1f}, {_p(result.against)}".replace("-", "−")


def _accuracy(one: Evaluation) -> str:
    return f"{100 * one.accuracy:.1f} [{100 * one.low:.1f}, {100 * one.high:.1f}]"


def _p(difference: Paired) -> str:
    return "p < 0.001" if difference.p < 0.001 else f"p = {difference.p:.3f}"


@dataclass(frozen=True)
class ModelDifference:
    """Two models on one task under one scheme.

    >>> from robustok.evaluation import evaluate_tasks
    >>> results = evaluate_tasks(model, vocab, {"odd": items}, ["canonical"], seed=0)
    >>> differences = compare_models({"a": results, "b": results})
    >>> differences[0].model, differences[0].against, differences[0].paired.difference
    ('b', 'a', 0.0)

    Args:
        model: name of the model.
        against: name of the first model.
        task: name of the task.
        eval_scheme: spec of the scheme that drew the questions.
        paired: accuracy of ``model`` minus that of ``against``, over the items of both.
    """

    model: str
    against: str
    task: str
    eval_scheme: str
    paired: Paired


def compare_models(results: Mapping[str, Sequence[TaskResult]]) -> list[ModelDifference]:
    """The paired differences of models from the first one, by task and scheme.

    >>> from robustok.evaluation import evaluate_tasks
    >>> results = evaluate_tasks(model, vocab, {"odd": items}, ["canonical"], seed=0)
    >>> [one.paired.n for one in compare_models({"a": results, "b": results})]
    [8]

    Args:
        results: the results of :func:`evaluate_tasks` for each model, by its name, for the same
            tasks and schemes in the same order. A task without an item in both models is left out.

    Raises RobustokError where the tasks and schemes differ.
    """
    (first, baseline), *others = results.items()
    measured = [[(r.task, r.evaluation.eval_scheme) for r in rows] for rows in results.values()]
    if any(one != measured[0] for one in measured):
        raise RobustokError(
            "the models have different tasks or schemes: evaluate all on the same, in one order"
        )
    return [
        ModelDifference(name, first, one.task, one.evaluation.eval_scheme, difference)
        for name, theirs in others
        for one, other in zip(baseline, theirs, strict=True)
        if (difference := against(one.evaluation, other.evaluation)) is not None
    ]


def model_table(results: Mapping[str, Sequence[TaskResult]]) -> str:
    """A Markdown table of several models: a row for each task and scheme, a column for each model.

    A cell is the accuracy in percent with its 95% interval. After the first model, it also has the
    paired difference from that model in points, with its 95% interval and p-value.
    """
    differences = {(d.model, d.task, d.eval_scheme): d.paired for d in compare_models(results)}
    lines = []
    for row in zip(*results.values(), strict=True):
        task, scheme = row[0].task, row[0].evaluation.eval_scheme
        cells = []
        for name, result in zip(results, row, strict=True):
            cell = _accuracy(result.evaluation)
            if difference := differences.get((name, task, scheme)):
                points = [100 * x for x in (difference.difference, difference.low, difference.high)]
                cell += " {:+.1f} [{:+.1f}, {:+.1f}], ".format(*points) + _p(difference)
            cells.append(cell.replace("-", "−"))
        lines.append([task, scheme, str(row[0].evaluation.n), *cells])
    return markdown_table(["task", "scheme", "n", *results], lines)


def _mean(results: Sequence[TaskResult], scheme: str, first: str) -> str:
    def mean(wanted: str) -> float:
        values = [r.evaluation.accuracy for r in results if r.evaluation.eval_scheme == wanted]
        return 100 * sum(values) / len(values)

    text = f"{mean(scheme):.1f}"
    if scheme == first:
        return text
    return f"{text} {mean(scheme) - mean(first):+.1f}".replace("-", "−")


def item_rows(results: Sequence[TaskResult]) -> list[dict[str, Any]]:
    """One plain row for each task, tokenization and item."""
    return [
        {"task": r.task, "eval_scheme": r.evaluation.eval_scheme, **row}
        for r in results
        for row in r.evaluation.table()
    ]
