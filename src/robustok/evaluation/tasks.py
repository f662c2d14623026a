"""Accuracy on many tasks under many schemes, in one resumable call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.display import markdown_table
from robustok.evaluation.accuracy import evaluate
from robustok.evaluation.comparison import Paired, paired
from robustok.evaluation.incontext import solved_examples
from robustok.evaluation.questions import Ids, as_sampler
from robustok.evaluation.result import Evaluation, Outcome
from robustok.evaluation.resume import RowFile, items_digest
from robustok.models.fingerprint import model_fingerprint

if TYPE_CHECKING:
    from robustok.tasks.item import Item
    from robustok.vocabulary import Vocabulary


FORMAT = 2  # of the rows in a resume file


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
    with ExitStack() as stack:
        kept = None
        if resume_file is not None:
            config = {
                "model": model_fingerprint(model), "vocabulary": vocab.fingerprint,
                "draws": draws, "seed": seed,
                "shots": [few_shot.count, few_shot.scheme] if few_shot else None,
                "items": {name: items_digest(items) for name, items in tasks.items()},
                "overflow": overflow, "format": FORMAT,
                **({"start": [int(i) for i in start]} if len(start) else {}),
            }  # fmt: skip
            kept = stack.enter_context(RowFile(resume_file, config))
        total, done = sum(map(len, tasks.values())) * len(samplers), 0
        results: list[TaskResult] = []
        for name, items in tasks.items():
            first: Evaluation | None = None
            prefix, questions = _context(vocab, items, few_shot, seed, start)
            for sampler in samplers:
                key = f"{name} {sampler.spec}"
                if kept and key in kept.rows:
                    evaluation = _from_row(kept.rows[key])
                else:
                    task_progress = _task_progress(progress, key, done, total)
                    evaluation = evaluate(
                        model, vocab, questions, sampler, draws=draws, seed=seed, prefix=prefix,
                        overflow=overflow, progress=task_progress,
                    )  # fmt: skip
                    if kept:
                        kept.add_row({"key": key, **_to_row(evaluation)})
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


def _context(
    vocab: Vocabulary, items: Sequence[Item], few_shot: FewShot | None, seed: int, start: Ids
) -> tuple[Any, Sequence[Item]]:
    if few_shot is None:
        return (np.asarray(start, np.int32) if len(start) else None), items
    solved, rest = items[-few_shot.count :], items[: -few_shot.count]
    return solved_examples(vocab, solved, few_shot.scheme, seed=seed, start=start), rest


def _task_progress(
    progress: Callable[[int, int, str], None] | None, label: str, done: int, total: int
) -> Callable[[int, int], None] | None:
    if progress is None:
        return None
    return lambda more, _: progress(done + more, total, label)


def _to_row(evaluation: Evaluation) -> dict[str, Any]:
    fields = {name: getattr(evaluation, name) for name in Evaluation.__dataclass_fields__}
    outcomes = [[o.key, o.kind, o.label, o.predictions, o.margins] for o in evaluation.outcomes]
    return fields | {"outcomes": outcomes}


def _from_row(row: dict[str, Any]) -> Evaluation:
    fields: dict[str, Any] = {name: row[name] for name in Evaluation.__dataclass_fields__}
    fields["outcomes"] = tuple(
        Outcome(key, kind, label, tuple(predictions), tuple(margins))
        for key, kind, label, predictions, margins in row["outcomes"]
    )
    return Evaluation(**fields)


def table(results: Sequence[TaskResult]) -> str:
    """A Markdown table in the paper's form: canonical accuracy, and the loss under other schemes.

    A cell is the accuracy in percent with its 95% interval. After the first column, it also has the
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
    one = result.evaluation
    text = f"{100 * one.accuracy:.1f} [{100 * one.low:.1f}, {100 * one.high:.1f}]"
    if result.against is None:
        return text
    p = result.against.p
    sure = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    return f"{text} {100 * result.against.difference:+.1f}, {sure}".replace("-", "−")


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
        {"task": r.task, "query": r.evaluation.eval_scheme, **row}
        for r in results
        for row in r.evaluation.table()
    ]
