"""Searches over the tokenizations of one text, each written as a generator.

A search yields tokenizations, receives their scores, and returns an Attack. :func:`run` advances
many searches at once and scores all the tokenizations that they yield in one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from robustok.attack_settings import AttackSettings
from robustok.evaluation.adversarial.ascent import ascend, next_rows
from robustok.evaluation.adversarial.problem import Problem
from robustok.evaluation.questions import margins
from robustok.ragged import Ragged
from robustok.scoring import Request, score_many

if TYPE_CHECKING:
    from robustok.vocabulary import Vocabulary

Search = Generator[Ragged, np.ndarray, "Attack"]

_CHUNK = 256  # uniform draws scored between two looks at the result of a random search


class Step(NamedTuple):
    """One tokenization that an attack moved to: ids (int32), log-probabilities of the options."""

    ids: np.ndarray
    log_probs: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Attack:
    """The worst tokenization that a search reached for one question.

    >>> from robustok.evaluation import attack
    >>> item = items[1]
    >>> result = attack(model, vocab, item.question, item.choices, item.label, seed=0)
    >>> vocab.decode(result.ids) == vocab.decode(result.start)
    True

    Args:
        key: key of the item, or the text itself.
        label: index of the right option, from 0.
        ids: the tokenization with the greatest margin, int32 [n].
        start: the tokenization where its ascent began, int32 [m].
        margins: greatest z of a wrong option minus that of the right one, at the start and after
            each step, [steps + 1]. z is a probability or its logarithm, by the objective.
        n_scored_by_step: tokenizations scored by then, one for each margin.
        n_scored: tokenizations scored in the whole attack.
        success: whether the prediction at the end is wrong.
        flipped_at: number of tokenizations scored when the prediction first was wrong, None for
            never.
        log_probs_start: log-probabilities of the options at the canonical start, in nats.
        log_probs: log-probabilities of the options under ``ids``, in nats.
        steps: ids and log-probabilities at the start and after each step, one for each margin.
        overflowed: number of tokenizations that did not fit the model.
    """

    key: str
    label: int
    ids: np.ndarray
    start: np.ndarray
    margins: list[float]
    n_scored_by_step: list[int]
    n_scored: int
    success: bool
    flipped_at: int | None
    log_probs_start: tuple[float, ...]
    log_probs: tuple[float, ...]
    steps: tuple[Step, ...]
    overflowed: int = 0

    def as_row(self) -> dict[str, Any]:
        """Plain lists and numbers, ready for JSON."""
        row = {**asdict(self), "ids": self.ids.tolist(), "start": self.start.tolist()}
        row["steps"] = [{"ids": s.ids.tolist(), "log_probs": s.log_probs} for s in self.steps]
        return row

    def tokens(self, vocab: Vocabulary) -> list[bytes]:
        """The bytes of each token of ``ids``.

        Args:
            vocab: the vocabulary of the attacked model.
        """
        return [vocab.tokens[i] for i in self.ids.tolist()]


def run(
    model: Any,
    problems: Iterable[Problem],
    search: Callable[[Problem], Search],
    *,
    max_batch_tokens: int | None,
    pool: int,
    finished: Callable[[Attack, int, int, str], None],
) -> None:
    """Advance up to ``pool`` searches together, until all have returned.

    ``finished`` is called once for each with its Attack, the tokens computed and naive
    of the rounds since the last call, and the scoring mode.
    """
    waiting = iter(problems)
    active: list[tuple[Problem, Search, Ragged]] = []
    computed, naive = 0, 0
    prefix_cache: dict[bytes, Any] = {}
    while True:
        while len(active) < pool and (problem := next(waiting, None)) is not None:
            searching = search(problem)
            active.append((problem, searching, next(searching)))
        if not active:
            return
        requests = [_request(problem, rows) for problem, _, rows in active]
        scores = score_many(
            model, requests, max_batch_tokens=max_batch_tokens, prefix_cache=prefix_cache
        )
        computed += sum(s.tokens_computed for s in scores)
        naive += sum(s.tokens_naive for s in scores)
        unfinished = []
        for (problem, searching, _), result in zip(active, scores, strict=True):
            try:
                unfinished.append((problem, searching, searching.send(result.log_probs)))
            except StopIteration as stop:
                finished(stop.value, computed, naive, result.mode)
                computed, naive = 0, 0
        active = unfinished


def _request(problem: Problem, rows: Ragged) -> Request:
    request = problem.request(rows)
    assert request is not None, "items that the policy drops are left out before the search"
    return request


class _Climb:
    """The tokenizations that one climb moved to, the last one being the best."""

    def __init__(
        self, problem: Problem, objective: str, start: np.ndarray, log_probs: np.ndarray,
        n_scored: int,
    ) -> None:  # fmt: skip
        self.problem, self.objective = problem, objective
        self.start, self.log_probs_start = start, log_probs
        self.margins: list[float] = []
        self.n_scored_by_step: list[int] = []
        self.steps: list[Step] = []
        self.move(start, log_probs, n_scored)

    def move(self, ids: np.ndarray, log_probs: np.ndarray, n_scored: int) -> None:
        """Continue from ``ids``, reached after ``n_scored`` scored tokenizations."""
        self.ids, self.log_probs = ids, log_probs
        self.margins.append(self.margin)
        self.n_scored_by_step.append(n_scored)
        step = Step(np.asarray(ids, np.int32), tuple(np.asarray(log_probs).tolist()))
        self.steps.append(step)

    @property
    def margin(self) -> float:
        return float(margins(self.log_probs[None], self.problem.label, self.objective)[0])

    @property
    def wrong(self) -> bool:
        return int(self.log_probs.argmax()) != self.problem.label

    def attack(self, n_scored: int, flipped_at: int | None) -> Attack:
        """The result of a search whose best climb this is."""
        return Attack(
            key=self.problem.key,
            label=self.problem.label,
            ids=np.asarray(self.ids, np.int32),
            start=np.asarray(self.start, np.int32),
            margins=self.margins,
            n_scored_by_step=self.n_scored_by_step,
            n_scored=n_scored,
            success=self.wrong,
            flipped_at=flipped_at,
            log_probs_start=tuple(self.log_probs_start.tolist()),
            log_probs=tuple(self.log_probs.tolist()),
            steps=tuple(self.steps),
            overflowed=self.problem.window.overflowed,
        )


def climb(problem: Problem, settings: AttackSettings, seed: int) -> Search:
    """Greedy ascent of the margin over neighborhoods (paper, algorithm 2), and its variants."""
    lattice = problem.vocab.lattice(problem.text)
    best: _Climb | None = None
    n_scored, flipped_at = 0, None

    def neighborhood(ids: np.ndarray, distance: int) -> list[np.ndarray]:
        return problem.eligible(lattice.neighbors(ids, distance=distance))

    def left() -> int | None:
        return None if settings.max_scored is None else settings.max_scored - n_scored

    for restart in range(settings.restarts + 1):
        if restart == 0:
            start = problem.start(settings.start, seed)
        else:
            start = problem.draw("uniform", seed, 1, epoch=restart)[0]
            if not problem.eligible([start]):
                continue
        if left() == 0:
            break
        seeds = (seed, problem.draw_key, restart)
        ascent = ascend(neighborhood, start, settings, seeds, left)
        current: _Climb | None = None
        rows: Ragged | None = next(ascent)
        while rows is not None:
            log_probs = yield rows
            n_scored += len(rows)
            gains = margins(log_probs, problem.label, settings.objective)
            top = int(gains.argmax())
            if current is None:
                current = _Climb(problem, settings.objective, start, log_probs[0], n_scored)
            elif gains[top] > current.margins[-1]:
                current.move(rows[top], log_probs[top], n_scored)
            flipped_at = n_scored if flipped_at is None and current.wrong else flipped_at
            stop = settings.stop_when_wrong and current.wrong
            rows = None if stop else next_rows(ascent, gains)
        assert current is not None
        if best is None or current.margin > best.margin:
            best = current
        if best.wrong:
            break
    assert best is not None
    return best.attack(n_scored, flipped_at)


def draw_at_random(problem: Problem, settings: AttackSettings, seed: int) -> Search:
    """The control: ``max_scored`` uniform draws, of which the worst is kept."""
    assert settings.max_scored is not None
    start = problem.start(settings.start, seed)
    log_probs = yield Ragged.from_rows([start])
    best = _Climb(problem, settings.objective, start, log_probs[0], 1)
    n_scored, flipped_at = 1, 1 if best.wrong else None
    draws = problem.draw("uniform", seed, max(1, settings.max_scored - 1), epoch=1)
    draws = problem.eligible(draws)[: settings.max_scored - 1]
    for begin in range(0, len(draws), _CHUNK):
        if settings.stop_when_wrong and best.wrong:
            break
        rows = draws[begin : begin + _CHUNK]
        log_probs = yield Ragged.from_rows(rows)
        wrong = log_probs.argmax(axis=1) != problem.label
        if flipped_at is None and wrong.any():
            flipped_at = n_scored + 1 + int(wrong.argmax())
        gains = margins(log_probs, problem.label, settings.objective)
        n_scored += len(rows)
        if gains.max() > best.margins[-1]:
            top = int(gains.argmax())
            best.move(rows[top], log_probs[top], n_scored)
    return best.attack(n_scored, flipped_at)
