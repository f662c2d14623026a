"""Adversarial evaluation: accuracy under the worst tokenization that a search finds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.display import Progress
from robustok.errors import RobustokError
from robustok.evaluation.adversarial.search import (
    Attack,
    Problem,
    Search,
    Settings,
    climb,
    draw_at_random,
    run,
)
from robustok.evaluation.intervals import clustered
from robustok.evaluation.questions import Ids, check_questions, encode_options, item_key
from robustok.evaluation.resume import ResumeFile
from robustok.models.fingerprint import model_fingerprint

if TYPE_CHECKING:
    from robustok.tasks.item import Item
    from robustok.vocabulary import Vocabulary

_POOL = 32  # items attacked side by side


@dataclass(frozen=True)
class AttackEvaluation:
    """Accuracy after an attack on every item, and each attack.

    >>> found = attack_items(model, vocab, items, seed=0)
    >>> found.eval_scheme, len(found.attacks)
    ('adversarial(distances=(2), start=canonical, steps=10)', 8)

    ``accuracy`` with its 95% interval ``low``, ``high`` is over ``n`` items;
    ``start_accuracy`` is that of the starting tokenizations; ``n_scored`` is the
    number of tokenizations scored in all. The token counts leave out what a resume file held.
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

    def __str__(self) -> str:
        return (
            f"{self.eval_scheme}: accuracy {self.accuracy:.3f} [{self.low:.3f}, {self.high:.3f}], "
            f"{self.start_accuracy:.3f} before, {self.n} items, "
            f"{self.n_scored} tokenizations scored"
        )

    def curve(self, limits: Sequence[int] | None = None) -> list[dict[str, float]]:
        """Accuracy against the number of tokenizations scored for an item.

        >>> evaluation = attack_items(model, vocab, items, seed=0)
        >>> evaluation.curve([0, 10])[0]["n_scored"]
        0

        Without ``limits``, at every number at which an item was lost.
        """
        lost = [a.flipped_at for a in self.attacks]
        if limits is None:
            most = max(a.n_scored for a in self.attacks)
            limits = sorted({1, most, *(f for f in lost if f is not None)})
        rows = []
        for limit in limits:
            right = [float(f is None or f > limit) for f in lost]
            accuracy, low, high = clustered(right)
            rows.append({"n_scored": limit, "accuracy": accuracy, "low": low, "high": high})
        return rows

    def table(self) -> list[dict[str, object]]:
        """One plain dictionary per item, ready for JSON lines."""
        return [a.as_row() for a in self.attacks]


def attack(
    model: Any,
    vocab: Vocabulary,
    text: str,
    options: Sequence[str | Ids],
    label: int,
    *,
    distances: Sequence[int] = (2,),
    start: str = "canonical",
    steps: int = 10,
    objective: str = "probability",
    prefix: Ids | None = None,
    suffix: Ids | None = None,
    seed: int = 0,
    max_neighbors: int | None = None,
    beam: int = 1,
    restarts: int = 0,
    search: str = "greedy",
    max_scored: int | None = None,
    max_batch_tokens: int | None = None,
) -> Attack:
    """Search the tokenization of ``text`` under which the right option loses most.

    >>> item = items[1]
    >>> a = attack(model, vocab, item.question, item.choices, item.label, seed=0)
    >>> vocab.decode(a.ids), a.n_scored >= len(a.margins)
    ('hello world, is 1 odd? Answer:', True)

    Greedy ascent of max wrong z − right z over the neighborhood, z = p(option | prefix,
    tokenization, suffix), until a step gains nothing or ``steps`` are done (paper,
    algorithm 2). Options are strings or ids. ``prefix`` and ``suffix`` are ids that stay as
    they are: a chat template, a system prompt. The further settings are those of
    :class:`Settings`; ``max_batch_tokens`` bounds the tokens of a forward pass.

    Raises RobustokError on an unknown setting, or a label that is no option.
    """
    further = (max_neighbors, beam, restarts, search, max_scored)
    settings = Settings(tuple(distances), start, steps, objective, *further)
    if not text:
        raise RobustokError("the text to attack is empty: give a question")
    if len(options) < 2 or not 0 <= label < len(options):
        raise RobustokError(
            f"label {label} of {len(options)} options: give at least two, and the number of one"
        )
    encoded = encode_options(vocab, options)
    problem = Problem(text, text, encoded, label, prefix, suffix, vocab, item_key(text))
    done: list[Attack] = []

    def finished(found: Attack, computed: int, naive: int, mode: str) -> None:
        done.append(found)

    search_it = partial(_search, settings=settings, seed=seed)
    run(model, [problem], search_it, max_batch_tokens=max_batch_tokens, pool=1, finished=finished)
    return done[0]


def attack_items(
    model: Any,
    vocab: Vocabulary,
    items: Sequence[Item],
    *,
    distances: Sequence[int] = (2,),
    start: str = "canonical",
    steps: int = 10,
    objective: str = "probability",
    seed: int,
    prefix: Ids | None = None,
    suffix: Ids | None = None,
    max_neighbors: int | None = None,
    beam: int = 1,
    restarts: int = 0,
    search: str = "greedy",
    max_scored: int | Mapping[str, int] | None = None,
    max_batch_tokens: int | None = None,
    resume_file: str | Path | None = None,
    progress: Progress | None = None,
    each: Callable[[Attack], None] | None = None,
) -> AttackEvaluation:
    """Attack every item, many side by side, and give the accuracy that is left.

    >>> found = attack_items(model, vocab, items, seed=0)
    >>> found.n, found.accuracy <= found.start_accuracy
    (8, True)

    The settings are those of :func:`attack`, for each item on its own; ``max_scored`` may
    give one number per item key, so that ``search="random"`` spends what another attack
    spent. With ``resume_file``, finished items are kept there and not attacked again, but
    for those of the group of items at which the earlier run stopped: the results are equal
    to those of an uninterrupted run, to the last bit.
    ``each`` is called with every finished attack, ``progress`` with (done, total).

    Raises RobustokError as :func:`attack`, and on a resume file of other settings.
    """
    began = time.perf_counter()
    check_questions(items)
    own = max_scored if isinstance(max_scored, Mapping) else {}
    most = max(max_scored.values()) if isinstance(max_scored, Mapping) else max_scored
    further = (max_neighbors, beam, restarts, search, most)
    settings = Settings(tuple(distances), start, steps, objective, *further)

    def begin(problem: Problem) -> Search:
        limit = own.get(problem.key, settings.max_scored)
        return _search(problem, replace(settings, max_scored=limit), seed)

    with ExitStack() as stack:
        file = None
        if resume_file is not None:
            config = _config(model, vocab, settings, seed, prefix, suffix, own)
            file = stack.enter_context(ResumeFile(resume_file, config, items))
        tally = _Tally(items, file, progress, each)
        # In fixed groups, so that a resumed run forms the same batches as an uninterrupted one.
        for at in range(0, len(items), _POOL):
            group = items[at : at + _POOL]
            if all(item.key in tally.done for item in group):
                continue
            problems = (_problem(item, vocab, prefix, suffix) for item in group)
            run(
                model,
                problems,
                begin,
                max_batch_tokens=max_batch_tokens,
                pool=_POOL,
                finished=tally.add,
            )
    return tally.summary(settings.spec, seed, time.perf_counter() - began)


class _Tally:
    """The attacks finished so far, on disk too where there is a resume file."""

    def __init__(
        self,
        items: Sequence[Item],
        file: ResumeFile | None,
        progress: Progress | None,
        each: Callable[[Attack], None] | None,
    ) -> None:
        self.items, self.file, self.progress, self.each = items, file, progress, each
        keys = {item.key for item in items}
        self.done = {k: a for k, a in file.done.items() if k in keys} if file else {}
        self.computed, self.naive, self.mode = 0, 0, ""

    def add(self, attack: Attack, computed: int, naive: int, mode: str) -> None:
        self.computed += computed
        self.naive += naive
        self.mode = mode
        if attack.key in self.done:  # repeated for the sake of its group
            return
        self.done[attack.key] = attack
        if self.file is not None:
            self.file.add(attack)
        if self.each is not None:
            self.each(attack)
        if self.progress is not None:
            self.progress(len(self.done), len(self.items))

    def summary(self, eval_scheme: str, seed: int, seconds: float) -> AttackEvaluation:
        attacks = tuple(self.done[item.key] for item in self.items)
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
        )


def _problem(item: Item, vocab: Vocabulary, prefix: Ids | None, suffix: Ids | None) -> Problem:
    options, number = encode_options(vocab, item.choices), item_key(item.key)
    return Problem(item.key, item.question, options, item.label, prefix, suffix, vocab, number)


def _search(problem: Problem, settings: Settings, seed: int) -> Search:
    way = climb if settings.search == "greedy" else draw_at_random
    return way(problem, settings, seed)


def _config(
    model: Any,
    vocab: Vocabulary,
    settings: Settings,
    seed: int,
    prefix: Ids | None,
    suffix: Ids | None,
    budgets: Mapping[str, int],
) -> dict[str, Any]:
    def listed(ids: Ids | None) -> list[int]:
        return [] if ids is None else [int(i) for i in ids]

    return {
        "settings": asdict(settings),
        "seed": seed,
        "prefix": listed(prefix),
        "suffix": listed(suffix),
        "budgets": dict(budgets),
        "vocabulary": len(vocab.tokens),
        "model": model_fingerprint(model),
    }
