"""Accuracy on many tasks under many schemes, in one resumable call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.checks import check_integer
from robustok.evaluation.accuracy import evaluate
from robustok.evaluation.comparison import FewShot, TaskResult, against
from robustok.evaluation.questions import Ids, as_sampler, plain_ids, solved_examples
from robustok.evaluation.result import Evaluation, Outcome
from robustok.evaluation.resume import RowFile, question_digest
from robustok.models.load import model_fingerprint
from robustok.runtime.display import Progress
from robustok.runtime.files import json_digest

if TYPE_CHECKING:
    from robustok.tasks.item import Item
    from robustok.tokenizer.vocabulary import Vocabulary


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
    draws, seed = check_integer("draws", draws, 1), check_integer("seed", seed)
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
                results.append(TaskResult(name, evaluation, against(first, evaluation)))
                first = first or evaluation
    return results


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
