"""Accuracy on many tasks under many schemes, in one resumable call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.evaluation.accuracy import evaluate
from robustok.evaluation.comparison import Paired, paired
from robustok.evaluation.questions import Ids, as_sampler, plain_ids, solved_examples
from robustok.evaluation.result import Evaluation, Outcome
from robustok.evaluation.resume import RowFile, question_digest
from robustok.models.load import model_fingerprint
from robustok.runtime.display import Progress, markdown_table
from robustok.runtime.files import json_digest

if TYPE_CHECKING:
    from robustok.tasks.item import Item
    from robustok.tokenizer.vocabulary import Vocabulary


@dataclass(frozen=True)
class TaskResult:
    """One task under one scheme.

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


@dataclass(frozen=True)
class FewShot:
    """Few-shot prompting: solved examples before each question.

    >>> few_shot = FewShot(2, "stochastok(alpha=1)")
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


def evaluate_tasks(
    model: Any,
    vocab: Vocabulary,
    tasks: Mapping[str, Sequence[Item]],
    schemes: Iterable[Any],
    *,
    draws: int = 10,
    seed: int,
    few_shot: FewShot | None = None,
    start: Ids = (),
    overflow: str = "error",
    resume_file: str | Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[TaskResult]:
    """Accuracy on each task under each scheme, and its paired difference from the first.

    >>> results = evaluate_tasks(model, vocab, {"odd": items}, ["canonical", "uniform"], seed=0)
    >>> [(r.task, r.evaluation.eval_scheme, r.evaluation.n) for r in results]
    [('odd', 'canonical', 8), ('odd', 'uniform', 8)]

    Args:
        model: any causal language model of transformers.
        vocab: the model's vocabulary.
        tasks: the items of each task, by its name.
        schemes: specs or samplers; differences are from the first.
        draws: draws of each question, at least 1; a canonical scheme is drawn once.
        seed: any integer. A draw depends on it, the item's key and the number of the draw alone.
        few_shot: solved examples before each question, by default none.
        start: ids before everything, such as the start token that the model was trained with; by
            default none.
        overflow: what to do with a draw that is too long, as in :func:`evaluate`. Items that either
            scheme drops are left out of the paired difference.
        resume_file: file that keeps each finished pair of task and scheme. Another call with the
            same arguments reads them instead of measuring again; by default nothing is kept.
        progress: called with (items done, all items, the task and the scheme).

    Raises RobustokError as :func:`evaluate` does, and for a ``resume_file`` of another call.
    """
    samplers = [as_sampler(scheme, vocab) for scheme in schemes]
    config = {
        "model": model_fingerprint(model), "vocabulary": vocab.fingerprint,
        "schemes": [sampler.spec for sampler in samplers], "draws": draws, "seed": seed,
        "shots": [few_shot.count, few_shot.scheme] if few_shot else None,
        "items": {
            name: json_digest([question_digest(item) for item in items])
            for name, items in tasks.items()
        },
        "overflow": overflow, "start": plain_ids(start),
    }  # fmt: skip
    total, done = sum(map(len, tasks.values())) * len(samplers), 0
    results: list[TaskResult] = []
    with RowFile(resume_file, config) as file:
        for name, items in tasks.items():
            first: Evaluation | None = None
            prefix, questions = _prefix_and_questions(vocab, items, few_shot, seed, start)
            for sampler in samplers:
                key = f"{name} {sampler.spec}"
                if key not in file.rows:
                    evaluation = evaluate(
                        model, vocab, questions, sampler, draws=draws, seed=seed, prefix=prefix,
                        overflow=overflow, progress=_labeled(progress, key, done, total),
                    )  # fmt: skip
                    file.add_row({"key": key, **_to_row(evaluation)})
                evaluation = _from_row(file.rows[key])
                done += len(items)
                results.append(TaskResult(name, evaluation, _against(first, evaluation)))
                first = first or evaluation
    return results


def _against(first: Evaluation | None, second: Evaluation) -> Paired | None:
    """The paired difference over the items that neither evaluation dropped."""
    if first is None:
        return None
    common = {o.key for o in first.outcomes} & {o.key for o in second.outcomes}
    return paired(*(
        replace(e, outcomes=tuple(o for o in e.outcomes if o.key in common))
        for e in (first, second)
    )) if common else None  # fmt: skip


def _prefix_and_questions(
    vocab: Vocabulary, items: Sequence[Item], few_shot: FewShot | None, seed: int, start: Ids
) -> tuple[Any, Sequence[Item]]:
    if few_shot is None:
        return (np.asarray(start, np.int32) if len(start) else None), items
    solved, rest = items[-few_shot.count :], items[: -few_shot.count]
    return solved_examples(vocab, solved, few_shot.scheme, seed=seed, start=start), rest


def _labeled(
    progress: Callable[[int, int, str], None] | None, label: str, before: int, total: int
) -> Progress:
    return lambda done, _: None if progress is None else progress(before + done, total, label)


def _to_row(evaluation: Evaluation) -> dict[str, Any]:
    fields = {name: getattr(evaluation, name) for name in Evaluation.__dataclass_fields__}
    outcomes = [list(asdict(outcome).values()) for outcome in evaluation.outcomes]
    return fields | {"outcomes": outcomes}


def _from_row(row: dict[str, Any]) -> Evaluation:
    fields: dict[str, Any] = {name: row[name] for name in Evaluation.__dataclass_fields__}
    outcomes: list[list[Any]] = row["outcomes"]
    fields["outcomes"] = tuple(
        Outcome(key, kind, label, *map(tuple, lists)) for key, kind, label, *lists in outcomes
    )
    return Evaluation(**fields)


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

    >>> results = evaluate_tasks(model, vocab, {"odd": items}, ["canonical"], seed=0)
    >>> [one.paired.n for one in compare_models({"a": results, "b": results})]
    [8]

    Args:
        results: the results of :func:`evaluate_tasks` for each model, by its name, for the same
            tasks and schemes. A task without an item in both models is left out.
    """
    (first, baseline), *others = results.items()
    return [
        ModelDifference(name, first, one.task, one.evaluation.eval_scheme, difference)
        for name, theirs in others
        for one, other in zip(baseline, theirs, strict=True)
        if (difference := _against(one.evaluation, other.evaluation)) is not None
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
