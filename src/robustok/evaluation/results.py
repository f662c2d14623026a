"""Results of evaluations: outcomes, accuracies, their paired comparison, and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robustok.checks import check_integer
from robustok.errors import RobustokError
from robustok.evaluation.comparison import Difference, difference
from robustok.runtime.display import markdown_table


@dataclass(frozen=True)
class Outcome:
    """One item's predictions, one for each draw.

    >>> from robustok.evaluation import evaluate
    >>> outcome = evaluate(model, vocab, items, "uniform", draws=3, seed=0).outcomes[1]
    >>> outcome.key, outcome.label, len(outcome.predictions)
    ('q1', 1, 3)

    Args:
        key: key of the item.
        kind: group of the item; empty for none.
        label: index of the right option, from 0.
        predictions: index of the option with the greatest log-probability, [draws].
        margins: greatest log-probability of a wrong option minus that of the right one, in nats,
            [draws]; above 0 the draw is wrong.
        norm_predictions: as ``predictions``, with each log-probability divided by the number of
            characters of the option, [draws].
    """

    key: str
    kind: str
    label: int
    predictions: tuple[int, ...]
    margins: tuple[float, ...]
    norm_predictions: tuple[int, ...]

    @property
    def correct(self) -> float:
        """Fraction of draws that got the label."""
        return sum(p == self.label for p in self.predictions) / len(self.predictions)

    @property
    def correct_norm(self) -> float:
        """Fraction of draws that got the label by ``norm_predictions``."""
        return sum(p == self.label for p in self.norm_predictions) / len(self.norm_predictions)


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
        mode: scoring mode: ``"tree"``, ``"cache"`` or ``"plain"``; see
            :func:`~robustok.scoring.scoring_mode`.
        tokens_computed: positions that went through the model, padding included, without those of a
            resume file.
        tokens_naive: positions of one unpadded sequence for each tokenization and option, counted
            likewise.
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

    def _line(self, details: str) -> str:
        interval = f"{self.accuracy:.3f} [{self.low:.3f}, {self.high:.3f}]"
        overflowed = f", {self.overflowed} longer than the model's max_length"
        return f"{self.eval_scheme}: accuracy {interval}, {details}" + (
            overflowed if self.overflowed else ""
        )


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
    """

    outcomes: tuple[Outcome, ...]
    acc_norm: float
    acc_norm_low: float
    acc_norm_high: float
    precision: str = "float32"

    @property
    def consistency(self) -> float | None:
        """Share of items with one prediction in all draws; None where an item has one only.

        The other items change their answer between draws. A wrong answer counts as consistent.
        """
        if max(len(one.predictions) for one in self.outcomes) < 2:
            return None
        return sum(len(set(one.predictions)) == 1 for one in self.outcomes) / self.n

    def __str__(self) -> str:
        normalized = f"{self.acc_norm:.3f} [{self.acc_norm_low:.3f}, {self.acc_norm_high:.3f}]"
        same = "" if self.consistency is None else f", consistency {self.consistency:.3f}"
        return self._line(f"acc_norm {normalized}, {self.n} items × {self.draws} draws{same}")

    def table(self) -> list[dict[str, object]]:
        """One plain dictionary per item, ready for JSON lines.

        ``predictions[j]`` and ``margins[j]`` are those of draw j of ``draws``.
        """
        return [
            {
                "key": o.key,
                "kind": o.kind,
                "label": o.label,
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

    Raises RobustokError where the items differ.
    """
    if {o.key for o in first.outcomes} != {o.key for o in second.outcomes}:
        raise RobustokError(
            "the two evaluations have different items: compare evaluations of the same items"
        )
    return difference(*map(_row_of, (first, second)))


def _row_of(evaluation: Evaluation) -> dict[str, Any]:
    """The answers of an evaluation as a row to compare, as those of one seed."""
    return {"answers": {0: {outcome.key: outcome.correct for outcome in evaluation.outcomes}}}


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
    against: Difference | None


def against(first: Evaluation | None, second: Evaluation) -> Difference | None:
    """The paired difference over the items that neither evaluation dropped."""
    if first is None or not {o.key for o in first.outcomes} & {o.key for o in second.outcomes}:
        return None
    return difference(*map(_row_of, (first, second)))


def table(results: Sequence[TaskResult]) -> str:
    """A Markdown table in the paper's form: canonical accuracy, and the loss under other schemes.

    A cell is the accuracy in percent with its 95% interval, and of several draws the consistency,
    the share of questions with one answer in all draws. After the first column, it also has the
    difference from that column in points and the p-value of the paired test.
    """
    by_task: dict[str, dict[str, TaskResult]] = {}  # a scheme that was given twice counts once
    for result in results:
        by_task.setdefault(result.task, {})[result.evaluation.eval_scheme] = result
    rows = [list(row.values()) for row in by_task.values()]
    lines = [[row[0].task, str(row[0].evaluation.n), *map(_cell, row)] for row in rows]
    if len(rows) > 1:
        accuracies = np.array([[r.evaluation.accuracy for r in row] for row in rows])
        first, *others = 100 * accuracies.mean(axis=0)
        means = [f"{mean:.1f} {mean - first:+.1f}".replace("-", "−") for mean in others]
        lines.append(["mean", "", f"{first:.1f}", *means])
    return markdown_table(["task", "n", *(r.evaluation.eval_scheme for r in rows[0])], lines)


def _cell(result: TaskResult) -> str:
    text, same = _accuracy(result.evaluation), result.evaluation.consistency
    if same is not None:
        text += f", consistency {100 * same:.1f}"
    if result.against is None:
        return text
    return f"{text} {100 * result.against.mean:+.1f}, {_p(result.against)}".replace("-", "−")


def _accuracy(one: Evaluation) -> str:
    return f"{100 * one.accuracy:.1f} [{100 * one.low:.1f}, {100 * one.high:.1f}]"


def _p(change: Difference) -> str:
    return "p < 0.001" if change.p < 0.001 else f"p = {change.p:.3f}"


@dataclass(frozen=True)
class ModelDifference:
    """Two models on one task under one scheme.

    >>> from robustok.evaluation import evaluate_tasks
    >>> results = evaluate_tasks(model, vocab, {"odd": items}, ["canonical"], seed=0)
    >>> differences = compare_models({"a": results, "b": results})
    >>> differences[0].model, differences[0].against, differences[0].paired.mean
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
    paired: Difference


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
        ModelDifference(name, first, one.task, one.evaluation.eval_scheme, change)
        for name, theirs in others
        for one, other in zip(baseline, theirs, strict=True)
        if (change := against(one.evaluation, other.evaluation)) is not None
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
            if change := differences.get((name, task, scheme)):
                points = [100 * x for x in (change.mean, change.low, change.high)]
                cell += " {:+.1f} [{:+.1f}, {:+.1f}], ".format(*points) + _p(change)
            cells.append(cell.replace("-", "−"))
        lines.append([task, scheme, str(row[0].evaluation.n), *cells])
    return markdown_table(["task", "scheme", "n", *results], lines)


def item_rows(results: Sequence[TaskResult]) -> list[dict[str, Any]]:
    """One plain row for each task, tokenization and item."""
    return [
        {"task": r.task, "eval_scheme": r.evaluation.eval_scheme, **row}
        for r in results
        for row in r.evaluation.table()
    ]
