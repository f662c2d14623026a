"""Searches over the tokenizations of one text, written as if each had the model to itself.

A search is a generator: it yields tokenizations, is sent their scores back, and returns
an Attack. :func:`run` advances many of them at once and has the model score all that
they ask for together.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from robustok.errors import RobustokError, nearest
from robustok.evaluation.questions import OBJECTIVES, Ids, margins
from robustok.ragged import Ragged
from robustok.scoring import Request, score_many

if TYPE_CHECKING:
    from robustok.vocabulary import Vocabulary

Search = Generator[Ragged, np.ndarray, "Attack"]


@dataclass(frozen=True)
class Settings:
    """How to attack; the defaults are the paper's.

    ``distances`` make up the neighborhood of a step, ``start`` is "canonical" or the spec
    of a sampler ("uniform"), ``steps`` the most steps, ``objective`` "probability" or
    "log-probability". ``max_neighbors`` caps a step's neighborhood, by a uniform choice
    without replacement. Beyond the paper: ``beam`` tokenizations are kept from step to
    step; up to ``restarts`` uniform starts follow while the attack has not succeeded;
    ``search`` "random" scores uniform draws instead of climbing; ``max_scored`` bounds
    the tokenizations scored for an item.
    """

    distances: tuple[int, ...] = (2,)
    start: str = "canonical"
    steps: int = 10
    objective: str = "probability"
    max_neighbors: int | None = None
    beam: int = 1
    restarts: int = 0
    search: str = "greedy"
    max_scored: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "distances", tuple(int(d) for d in self.distances))
        if not self.distances or min(self.distances) < 1:
            raise RobustokError("distances must be whole numbers from 1 on, as in (2,) or (2, 4)")
        if self.objective not in OBJECTIVES:
            hint = nearest(self.objective, OBJECTIVES)
            raise RobustokError(f"unknown objective '{self.objective}': {hint}")
        if self.search not in ("greedy", "random"):
            hint = nearest(self.search, ("greedy", "random"))
            raise RobustokError(f"unknown search '{self.search}': {hint}")
        if self.search == "random" and self.max_scored is None:
            raise RobustokError("random search never ends by itself: give a max_scored")
        for name, least in (("steps", 0), ("beam", 1), ("restarts", 0)):
            if getattr(self, name) < least:
                raise RobustokError(f"{name} is {getattr(self, name)}: it must be at least {least}")
        for name in ("max_neighbors", "max_scored"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise RobustokError(f"{name} is {getattr(self, name)}: it must be at least 1")

    @property
    def spec(self) -> str:
        """The settings as one string; those left at their defaults are not named."""
        told = [f"distances={self.distances}", f"start={self.start}", f"steps={self.steps}"]
        for name, default in (
            ("objective", "probability"),
            ("max_neighbors", None),
            ("beam", 1),
            ("restarts", 0),
            ("max_scored", None),
        ):
            if getattr(self, name) != default:
                told.append(f"{name}={getattr(self, name)}")
        name = "adversarial" if self.search == "greedy" else "random-search"
        return f"{name}({', '.join(told)})".replace(",)", ")")


class Step(NamedTuple):
    """One tokenization on an attack's way: its ids (int32) and the options' log-probabilities."""

    ids: np.ndarray
    log_probs: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Attack:
    """The worst tokenization found for one question.

    >>> from robustok.evaluation import attack
    >>> found = attack(model, vocab, items[1].question, items[1].choices, items[1].label, seed=0)
    >>> vocab.decode(found.ids) == vocab.decode(found.start)
    True

    ``ids`` int32 is that tokenization and ``start`` where its climb began; ``margins``
    holds max wrong − right z at the start and after each step taken, ``n_scored_by_step`` the
    tokenizations scored by then and ``n_scored`` those of the whole attack. ``success``
    says that the prediction at the end is wrong; ``flipped_at`` the number of
    tokenizations scored when it first was (None: never). ``log_probs`` are those of the options,
    before and after. ``steps`` holds ids and log-probabilities at the start and after each step
    taken, one for each margin.
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

    def as_row(self) -> dict[str, Any]:
        """Plain lists and numbers, ready for JSON."""
        row = {**asdict(self), "ids": self.ids.tolist(), "start": self.start.tolist()}
        row["steps"] = [{"ids": s.ids.tolist(), "log_probs": s.log_probs} for s in self.steps]
        return row

    def tokens(self, vocab: Vocabulary) -> list[bytes]:
        """The bytes of each token, for printing them apart."""
        return [vocab.tokens[i] for i in self.ids.tolist()]


@dataclass(frozen=True, eq=False)
class Problem:
    """One text to attack: its options (ids), and the ids that stay around it."""

    key: str
    text: str
    options: list[np.ndarray]
    label: int
    prefix: Ids | None
    suffix: Ids | None
    vocab: Vocabulary
    number: int  # what the item's random draws are keyed by

    def request(self, tokenizations: Ragged) -> Request:
        """These tokenizations between what comes before and what comes after."""
        return Request(append(tokenizations, self.suffix), self.options, self.prefix)

    def draw(self, spec: str, seed: int, draws: int, epoch: int = 0) -> Ragged:
        """Sampled tokenizations of the text."""
        from robustok.samplers import sampler

        keys = np.array([self.number], np.int64)
        drawn = sampler(spec, self.vocab)
        return drawn.sample_batch([self.text], seed=seed, draws=draws, keys=keys, epoch=epoch)

    def start(self, spec: str, seed: int) -> np.ndarray:
        """Where a climb begins."""
        if spec == "canonical":
            return np.asarray(self.vocab.encode(self.text), np.int32)
        return self.draw(spec, seed, 1)[0]


def append(rows: Ragged, suffix: Ids | None) -> Ragged:
    """The same rows, each followed by ``suffix``."""
    if suffix is None or not len(suffix):
        return rows
    count, extra = len(rows), len(suffix)
    values = np.empty(len(rows.values) + count * extra, np.int32)
    offsets = rows.offsets + extra * np.arange(count + 1)
    ends = (offsets[1:, None] - extra + np.arange(extra)).ravel()
    own = np.ones(len(values), bool)
    own[ends] = False
    values[own], values[ends] = rows.values, np.tile(np.asarray(suffix, np.int32), count)
    return Ragged(values, offsets)


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
            started = search(problem)
            active.append((problem, started, next(started)))
        if not active:
            return
        requests = [problem.request(asked) for problem, _, asked in active]
        answers = score_many(
            model, requests, max_batch_tokens=max_batch_tokens, prefix_cache=prefix_cache
        )
        computed += sum(a.tokens_computed for a in answers)
        naive += sum(a.tokens_naive for a in answers)
        going = []
        for (problem, searching, _), answer in zip(active, answers, strict=True):
            try:
                going.append((problem, searching, searching.send(answer.log_probs)))
            except StopIteration as stop:
                finished(stop.value, computed, naive, answer.mode)
                computed, naive = 0, 0
        active = going


class _Found:
    """The best tokenization so far, and when."""

    def __init__(
        self,
        problem: Problem,
        objective: str,
        start: np.ndarray,
        log_probs: np.ndarray,
        n_scored: int,
    ) -> None:
        self.problem, self.objective = problem, objective
        self.start, self.log_probs_start = start, log_probs
        self.margins: list[float] = []
        self.n_scored_by_step: list[int] = []
        self.steps: list[Step] = []
        self.move(start, log_probs, n_scored)

    def move(self, ids: np.ndarray, log_probs: np.ndarray, n_scored: int) -> None:
        """Go on from ``ids``, found after ``n_scored`` scored tokenizations."""
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


def climb(problem: Problem, settings: Settings, seed: int) -> Search:
    """Greedy ascent of the margin over neighborhoods (paper, algorithm 2), and its variants."""
    lattice = problem.vocab.lattice(problem.text)
    best: _Found | None = None
    n_scored, flipped = 0, None
    for restart in range(settings.restarts + 1):
        if restart == 0:
            start = problem.start(settings.start, seed)
        else:
            start = problem.draw("uniform", seed, 1, epoch=restart)[0]
        if settings.max_scored is not None and n_scored >= settings.max_scored:
            break
        log_probs = yield Ragged.from_rows([start])
        n_scored += 1
        found = _Found(problem, settings.objective, start, log_probs[0], n_scored)
        flipped = n_scored if flipped is None and found.wrong else flipped
        beam = [(found.margin, start, log_probs[0])]
        for step in range(settings.steps):
            around = [
                lattice.neighbors(ids, distance=d) for _, ids, _ in beam for d in settings.distances
            ]
            left = None if settings.max_scored is None else settings.max_scored - n_scored
            rng = np.random.default_rng([seed, problem.number, restart, step])
            asked = _choose(around, [b for _, b, _ in beam], settings.max_neighbors, left, rng)
            if not len(asked):
                break
            log_probs = yield asked
            n_scored += len(asked)
            gained = margins(log_probs, problem.label, settings.objective)
            top = np.argsort(-gained, kind="stable")[: settings.beam]
            beam += [(float(gained[i]), asked[i], log_probs[i]) for i in top.tolist()]
            beam = sorted(beam, key=lambda b: -b[0])[: settings.beam]
            if beam[0][0] <= found.margins[-1]:
                break
            found.move(beam[0][1], beam[0][2], n_scored)
            flipped = n_scored if flipped is None and found.wrong else flipped
        if best is None or found.margin > best.margin:
            best = found
        if best.wrong:
            break
    assert best is not None
    return _attack(best, n_scored, flipped)


def draw_at_random(problem: Problem, settings: Settings, seed: int) -> Search:
    """The control: as many uniform draws as the max_batch_tokens allows, the worst one kept."""
    assert settings.max_scored is not None
    start = problem.start(settings.start, seed)
    log_probs = yield Ragged.from_rows([start])
    found = _Found(problem, settings.objective, start, log_probs[0], 1)
    n_scored = 1
    flipped = 1 if found.wrong else None
    drawn = problem.draw("uniform", seed, max(1, settings.max_scored - 1), epoch=1)
    while n_scored < settings.max_scored:
        rows = [drawn[i] for i in range(n_scored - 1, min(n_scored + 255, settings.max_scored - 1))]
        log_probs = yield Ragged.from_rows(rows)
        if flipped is None and (log_probs.argmax(axis=1) != problem.label).any():
            flipped = n_scored + 1 + int((log_probs.argmax(axis=1) != problem.label).argmax())
        gained = margins(log_probs, problem.label, settings.objective)
        n_scored += len(rows)
        if gained.max() > found.margins[-1]:
            best = int(gained.argmax())
            found.move(rows[best], log_probs[best], n_scored)
    return _attack(found, n_scored, flipped)


def _choose(
    around: list[Ragged],
    known: list[np.ndarray],
    cap: int | None,
    left: int | None,
    rng: np.random.Generator,
) -> Ragged:
    """The neighbors to score: each once, none of the beam, at most ``cap`` and ``left``."""
    rows = [row for rows in around for row in rows]
    if len(around) > 1:
        seen = {ids.tobytes() for ids in known}
        rows = list({row.tobytes(): row for row in rows if row.tobytes() not in seen}.values())
    limit = min(len(rows) if cap is None else cap, len(rows) if left is None else left)
    if len(rows) > limit:
        rows = [rows[i] for i in np.sort(rng.choice(len(rows), limit, replace=False)).tolist()]
    return Ragged.from_rows(rows)


def _attack(found: _Found, n_scored: int, flipped: int | None) -> Attack:
    return Attack(
        key=found.problem.key,
        label=found.problem.label,
        ids=np.asarray(found.ids, np.int32),
        start=np.asarray(found.start, np.int32),
        margins=found.margins,
        n_scored_by_step=found.n_scored_by_step,
        n_scored=n_scored,
        success=found.wrong,
        flipped_at=flipped,
        log_probs_start=tuple(found.log_probs_start.tolist()),
        log_probs=tuple(found.log_probs.tolist()),
        steps=tuple(found.steps),
    )
