"""Adversarial evaluation: accuracy under the worst tokenization that a search reaches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.attack_settings import AttackSettings
from robustok.display import Progress
from robustok.errors import RobustokError
from robustok.evaluation.adversarial.problem import (
    Problem,
    Surroundings,
    make_problem,
    problem_of,
)
from robustok.evaluation.adversarial.search import Attack, Search, climb, draw_at_random, run
from robustok.evaluation.intervals import clustered
from robustok.evaluation.questions import Ids, check_questions
from robustok.evaluation.resume import ResumeFile
from robustok.models.fingerprint import model_fingerprint

if TYPE_CHECKING:
    from robustok.tasks.item import Item
    from robustok.vocabulary import Vocabulary

_POOL = 32  # items attacked at once


@dataclass(frozen=True)
class AttackEvaluation:
    """Accuracy after an attack on every item, and each attack.

    >>> result = attack_items(model, vocab, items, seed=0)
    >>> result.eval_scheme, len(result.attacks)
    ('adversarial(distances=(2), start=canonical, steps=10)', 8)

    Args:
        accuracy: accuracy after the attacks, over items.
        low: lower 95% bound of ``accuracy``.
        high: upper 95% bound.
        n: number of items.
        draws: always 1: an item has one attack.
        eval_scheme: the settings as a string, in the place of a scheme.
        seed: seed of the attacks' random choices.
        seconds: wall-clock time.
        start_accuracy: accuracy under the tokenizations that the attacks start from.
        n_scored: number of tokenizations scored, over all items.
        attacks: the attack on each item, in the order of the items.
        mode: scoring mode: ``"tree"``, ``"cache"`` or ``"plain"``.
        tokens_computed: positions that went through the model, padding included, without those of a
            resume file.
        tokens_naive: positions of one unpadded sequence for each tokenization and option, without
            those of a resume file.
        overflowed: number of tokenizations that did not fit the model.
    """

    accuracy: float
    low: float
    high: float
    n: int
    draws: int
    eval_scheme: str
    seed: int
    seconds: float
    start_accuracy: float
    n_scored: int
    attacks: tuple[Attack, ...]
    mode: str
    tokens_computed: int
    tokens_naive: int
    overflowed: int = 0

    def __str__(self) -> str:
        overflowed = f", {self.overflowed} longer than the model's max_length"
        return (
            f"{self.eval_scheme}: accuracy {self.accuracy:.3f} [{self.low:.3f}, {self.high:.3f}], "
            f"{self.start_accuracy:.3f} before, {self.n} items, "
            f"{self.n_scored} tokenizations scored" + (overflowed if self.overflowed else "")
        )

    def curve(self, limits: Sequence[int] | None = None) -> list[dict[str, float]]:
        """Accuracy against the number of tokenizations scored for an item.

        >>> evaluation = attack_items(model, vocab, items, seed=0)
        >>> evaluation.curve([0, 10])[0]["n_scored"]
        0

        Args:
            limits: numbers of tokenizations scored at which to give the accuracy; by default each
                number at which an item was lost.
        """
        lost = [a.flipped_at for a in self.attacks]
        return accuracy_by_budget(lost, max(a.n_scored for a in self.attacks), limits)

    def table(self) -> list[dict[str, object]]:
        """One plain dictionary per item, ready for JSON lines."""
        return [a.as_row() for a in self.attacks]


def accuracy_by_budget(
    lost: Sequence[int | None], most: int, limits: Sequence[int] | None = None
) -> list[dict[str, float]]:
    """Accuracy against the number of tokenizations scored for an item.

    >>> [row["accuracy"] for row in accuracy_by_budget([None, 7], 20)]
    [1.0, 0.5, 0.5]

    Args:
        lost: for each item, the number of tokenizations scored when it was lost, None for never.
        most: greatest number of tokenizations scored for an item.
        limits: as in :meth:`AttackEvaluation.curve`.
    """
    if limits is None:
        limits = sorted({1, most, *(n for n in lost if n is not None)})
    rows = []
    for limit in limits:
        accuracy, low, high = clustered([float(n is None or n > limit) for n in lost])
        rows.append({"n_scored": limit, "accuracy": accuracy, "low": low, "high": high})
    return rows


def attack(
    model: Any,
    vocab: Vocabulary,
    text: str,
    options: Sequence[str | Ids],
    label: int,
    *,
    settings: AttackSettings | None = None,
    seed: int = 0,
    prefix: Ids | None = None,
    suffix: Ids | None = None,
    overflow: str = "error",
    max_batch_tokens: int | None = None,
    **changes: Any,
) -> Attack:
    """Search the tokenization of ``text`` under which the right option loses most.

    >>> item = items[1]
    >>> result = attack(model, vocab, item.question, item.choices, item.label, steps=3, seed=0)
    >>> vocab.decode(result.ids), result.n_scored >= len(result.margins)
    ('hello world, is 1 odd? Answer:', True)

    Args:
        model: any causal language model of transformers.
        vocab: the model's vocabulary.
        text: the question.
        options: at least two answers, each a string, tokenized canonically, or ids.
        label: index of the right option.
        settings: how to attack; by default as in the paper.
        seed: any integer; decides all random draws.
        prefix: ids before the text that stay as they are, such as those of a chat template.
        suffix: ids between the text and the option that stay as they are.
        overflow: what happens to a tokenization longer than the model's longest input. "error"
            raises; "left" cuts off the start of the prompt; "canonical" starts at the canonical
            tokenization and leaves out neighbors that are too long; "drop" leaves them out and
            refuses a start that is too long.
        max_batch_tokens: greatest number of tokens of one forward pass; by default 1,024 on a CPU
            and 16,384 elsewhere. Out of memory, it is halved and the pass repeated.
        changes: fields of :class:`AttackSettings` in place of those of ``settings``, such as
            ``distances``, ``start``, ``steps`` and ``objective``.

    Greedy ascent of max wrong z − right z over the neighborhood, z = p(option | prefix,
    tokenization, suffix), until a step gains nothing or all steps are done.

    Raises RobustokError on an unknown setting, a label that is no option, and by ``overflow``.
    Source: the paper, algorithm 2.
    """
    settings = (settings or AttackSettings()).replaced(**changes)
    surroundings = Surroundings(prefix, suffix, overflow)
    problem = make_problem(model, vocab, text, options, label, surroundings)
    if problem.is_dropped(settings.start, seed):
        raise RobustokError(
            "the text does not fit the model's max_length: choose overflow left or canonical"
        )
    results: list[Attack] = []

    def finished(result: Attack, computed: int, naive: int, mode: str) -> None:
        results.append(result)

    search = partial(_search, settings=settings, seed=seed)
    run(model, [problem], search, max_batch_tokens=max_batch_tokens, pool=1, finished=finished)
    return results[0]


def attack_items(
    model: Any,
    vocab: Vocabulary,
    items: Sequence[Item],
    *,
    settings: AttackSettings | None = None,
    seed: int,
    prefix: Ids | None = None,
    suffix: Ids | None = None,
    overflow: str = "error",
    max_scored_by_key: Mapping[str, int] | None = None,
    max_batch_tokens: int | None = None,
    resume_file: str | Path | None = None,
    progress: Progress | None = None,
    each: Callable[[Attack], None] | None = None,
    **changes: Any,
) -> AttackEvaluation:
    """Attack every item, many at once, and measure the remaining accuracy.

    >>> result = attack_items(model, vocab, items, seed=0)
    >>> result.n, result.accuracy <= result.start_accuracy
    (8, True)

    Args:
        model: any causal language model of transformers.
        vocab: the model's vocabulary.
        items: the questions, each with its own key.
        settings: how to attack each item on its own; by default as in the paper.
        seed: any integer; a draw depends on it and the item's key.
        prefix: ids before every question that stay as they are, such as few-shot examples.
        suffix: ids between every question and its options that stay as they are.
        overflow: as in :func:`attack`; "drop" leaves out the items whose start or canonical
            tokenization is longer than the model's longest input.
        max_scored_by_key: ``max_scored`` of single items, by key. A random search takes the numbers
            of another attack as its control.
        max_batch_tokens: greatest number of tokens of one forward pass; by default 1,024 on a CPU
            and 16,384 elsewhere. Out of memory, it is halved and the pass repeated.
        resume_file: file that keeps each finished item. Another call with the same arguments reads
            them and repeats only the group of items at which the earlier run stopped, so the
            results are equal to the last bit to those of an uninterrupted run.
        progress: called with (items done, items).
        each: called with every finished attack.
        changes: fields of :class:`AttackSettings` in place of those of ``settings``.

    Raises RobustokError as :func:`attack`, on a resume file of other settings, and where no item
    fits the model.
    """
    began = time.perf_counter()
    check_questions(items)
    limits = dict(max_scored_by_key or {})
    if limits:
        changes["max_scored"] = max(limits.values())
    settings = (settings or AttackSettings()).replaced(**changes)
    surroundings = Surroundings(prefix, suffix, overflow)

    def begin(problem: Problem) -> Search:
        limit = limits.get(problem.key, settings.max_scored)
        return _search(problem, settings.replaced(max_scored=limit), seed)

    with ExitStack() as stack:
        file = None
        if resume_file is not None:
            config = {
                "settings": asdict(settings), "seed": seed, "max_scored_by_key": limits,
                "vocabulary": len(vocab.tokens), "model": model_fingerprint(model),
                **surroundings.as_config(),
            }  # fmt: skip
            file = stack.enter_context(ResumeFile(resume_file, config, items))
        problems = [problem_of(model, vocab, item, surroundings) for item in items]
        kept, dropped = [], []
        for problem in problems:
            (dropped if problem.is_dropped(settings.start, seed) else kept).append(problem)
        if not kept:
            raise RobustokError(
                "no item fits the model's max_length: choose overflow left or canonical"
            )
        tally = _Tally([p.key for p in kept], file, progress, each)
        # In fixed groups, so that a resumed run forms the same batches as an uninterrupted one.
        for at in range(0, len(kept), _POOL):
            group = kept[at : at + _POOL]
            if not all(problem.key in tally.done for problem in group):
                run(
                    model, group, begin,
                    max_batch_tokens=max_batch_tokens, pool=_POOL, finished=tally.add,
                )  # fmt: skip
    overflowed = sum(problem.window.overflowed for problem in dropped)
    return tally.summary(str(settings), seed, time.perf_counter() - began, overflowed)


class _Tally:
    """The attacks finished so far, also on disk where there is a resume file."""

    def __init__(
        self,
        keys: Sequence[str],
        file: ResumeFile | None,
        progress: Progress | None,
        each: Callable[[Attack], None] | None,
    ) -> None:
        self.keys, self.file, self.progress, self.each = keys, file, progress, each
        self.done = {k: a for k, a in file.done.items() if k in set(keys)} if file else {}
        self.computed, self.naive, self.mode = 0, 0, ""

    def add(self, attack: Attack, computed: int, naive: int, mode: str) -> None:
        self.computed += computed
        self.naive += naive
        self.mode = mode
        if attack.key in self.done:  # repeated so that its group forms the same batches
            return
        self.done[attack.key] = attack
        if self.file is not None:
            self.file.add(attack)
        if self.each is not None:
            self.each(attack)
        if self.progress is not None:
            self.progress(len(self.done), len(self.keys))

    def summary(
        self, eval_scheme: str, seed: int, seconds: float, overflowed: int
    ) -> AttackEvaluation:
        attacks = tuple(self.done[key] for key in self.keys)
        accuracy, low, high = clustered([float(not a.success) for a in attacks])
        start_right = [float(np.argmax(a.log_probs_start) == a.label) for a in attacks]
        return AttackEvaluation(
            accuracy=accuracy,
            low=low,
            high=high,
            n=len(attacks),
            draws=1,
            eval_scheme=eval_scheme,
            seed=seed,
            seconds=seconds,
            start_accuracy=float(np.mean(start_right)),
            n_scored=sum(a.n_scored for a in attacks),
            attacks=attacks,
            mode=self.mode,
            tokens_computed=self.computed,
            tokens_naive=self.naive,
            overflowed=overflowed + sum(a.overflowed for a in attacks),
        )


def _search(problem: Problem, settings: AttackSettings, seed: int) -> Search:
    if settings.search == "annealing":
        raise RobustokError("annealing takes an objective: use robustok.redteam.attack_prompt")
    search = climb if settings.search == "greedy" else draw_at_random
    return search(problem, settings, seed)
