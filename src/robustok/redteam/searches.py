"""Searches for the tokenization of one text with the highest score, under one limit of scored ones.

Greedy ascent with a beam and restarts (paper, algorithm 2), uniform draws, and simulated annealing.
All of them score candidates through a :class:`Scorer`, which counts each tokenization once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from robustok.attack_settings import AttackSettings
from robustok.errors import RobustokError
from robustok.evaluation.adversarial.ascent import ascend, next_rows
from robustok.evaluation.questions import item_key
from robustok.ragged import Ragged
from robustok.redteam.objective import Objective

if TYPE_CHECKING:
    from robustok.vocabulary import Vocabulary

_CHUNK = 256  # uniform draws scored between two looks at the limit
_IDLE = 20  # restarts in a row without a new tokenization that end the search
_COOLED = 0.01  # last temperature of annealing, as a share of the first


class Scorer:
    """Scores tokenizations of one text, each once, until ``max_scored`` are.

    ``best``, ``steps`` and ``reached_at`` are the highest score's ids, the improvements in order as
    (ids, score, number scored by then), and the number scored at the first success.
    """

    def __init__(
        self, vocab: Vocabulary, text: str, objective: Objective, max_scored: int | None
    ) -> None:
        self.vocab, self.text, self.objective = vocab, text, objective
        self.max_scored, self.draw_key = max_scored, item_key(text)
        self.scores: dict[bytes, float] = {}
        self.steps: list[tuple[np.ndarray, float, int]] = []
        self.reached_at: int | None = None
        self.overflowed = 0

    @cached_property
    def canonical(self) -> np.ndarray:
        """The canonical ids of the text, int32."""
        return np.asarray(self.vocab.encode(self.text), np.int32)

    @property
    def left(self) -> int | None:
        """Tokenizations that may still be scored; None without a limit."""
        return None if self.max_scored is None else self.max_scored - len(self.scores)

    @property
    def succeeded(self) -> bool:
        return self.reached_at is not None

    def draw(self, spec: str, seed: int, draws: int, epoch: int) -> list[np.ndarray]:
        """Sampled tokenizations of the text, those that fit."""
        from robustok.samplers import sampler

        keys = np.array([self.draw_key], np.int64)
        rows = sampler(spec, self.vocab).sample_batch(
            [self.text], seed=seed, draws=draws, keys=keys, epoch=epoch
        )
        return self.fitting(rows)

    def fitting(self, rows: Iterable[np.ndarray]) -> list[np.ndarray]:
        """The rows that the objective's model has positions for; the others are counted."""
        rows, limit = list(rows), self.objective.max_length
        if limit is None:
            return rows
        kept = [row for row in rows if len(row) <= limit]
        self.overflowed += len(rows) - len(kept)
        return kept

    def score(self, rows: Iterable[np.ndarray]) -> np.ndarray:
        """The score of each row, float64; minus infinity for new ones beyond the limit."""
        rows = list(rows)
        new = {row.tobytes(): row for row in rows}
        unknown = [row for key, row in new.items() if key not in self.scores]
        unknown = unknown if self.left is None else unknown[: self.left]
        if unknown:
            values = self.objective(Ragged.from_rows(unknown))
            for row, value in zip(unknown, np.asarray(values, np.float64).tolist(), strict=True):
                self._add(row, value)
        return np.array([self.scores.get(row.tobytes(), -math.inf) for row in rows])

    def _add(self, row: np.ndarray, value: float) -> None:
        self.scores[row.tobytes()] = value
        count = len(self.scores)
        threshold = self.objective.threshold
        if self.reached_at is None and threshold is not None and value > threshold:
            self.reached_at = count
        if not self.steps or value > self.steps[-1][1]:
            self.steps.append((np.asarray(row, np.int32), value, count))


def start_of(scorer: Scorer, settings: AttackSettings, seed: int) -> np.ndarray:
    """The tokenization at which a search begins; the canonical one for a start too long."""
    limit = scorer.objective.max_length
    if limit is not None and len(scorer.canonical) > limit:
        raise RobustokError(
            f"the prompt has {len(scorer.canonical)} tokens, and the model's longest input leaves "
            f"{limit} to it: shorten it"
        )
    if settings.start == "canonical":
        return scorer.canonical
    drawn = scorer.draw(settings.start, seed, 1, 0)
    return drawn[0] if drawn else scorer.canonical


def greedy(scorer: Scorer, settings: AttackSettings, seed: int) -> None:
    """Ascent over neighborhoods, with a beam, and from uniform draws while it has not succeeded.

    A short text runs out of tokenizations before it runs out of restarts, so restarts end after 20
    in a row that scored nothing new.
    """
    lattice = scorer.vocab.lattice(scorer.text)

    def neighborhood(ids: np.ndarray, distance: int) -> list[np.ndarray]:
        return scorer.fitting(lattice.neighbors(ids, distance=distance))

    idle = 0
    for restart in range(settings.restarts + 1):
        scored = len(scorer.scores)
        if restart == 0:
            start = start_of(scorer, settings, seed)
        else:
            drawn = scorer.draw("uniform", seed, 1, restart)
            if not drawn:
                continue
            start = drawn[0]
        if scorer.left is not None and scorer.left < 1:
            return
        seeds = (seed, scorer.draw_key, restart)
        ascent = ascend(neighborhood, start, settings, seeds, lambda: scorer.left)
        rows: Ragged | None = next(ascent)
        while rows is not None:
            rows = next_rows(ascent, scorer.score(rows))
        idle = idle + 1 if len(scorer.scores) == scored else 0
        if scorer.succeeded or idle == _IDLE:
            return


def draw_at_random(scorer: Scorer, settings: AttackSettings, seed: int) -> None:
    """The control: uniform draws until the limit."""
    assert settings.max_scored is not None
    scorer.score([start_of(scorer, settings, seed)])
    draws = scorer.draw("uniform", seed, settings.max_scored, 1)
    for begin in range(0, len(draws), _CHUNK):
        scorer.score(draws[begin : begin + _CHUNK])


def anneal(scorer: Scorer, settings: AttackSettings, seed: int) -> None:
    """Simulated annealing: ``beam`` chains, each with one proposal, a uniform neighbor, a round.

    A proposal that loses Δ is accepted with probability exp(−Δ / T). T falls geometrically to 1%
    of its first value, the standard deviation of the scores of the first proposals. Ends at the
    limit, or at a success.
    """
    assert settings.max_scored is not None
    lattice = scorer.vocab.lattice(scorer.text)
    rng = np.random.default_rng([seed, scorer.draw_key])
    start = start_of(scorer, settings, seed)
    chains = [start] * settings.beam
    current = np.repeat(scorer.score([start]), settings.beam)
    rounds = max(1, settings.max_scored // settings.beam)
    first: float | None = None
    for turn in range(rounds):
        if scorer.succeeded or (scorer.left is not None and scorer.left < 1):
            return
        proposals = [_proposal(scorer, lattice.neighbors, ids, settings, rng) for ids in chains]
        scores = scorer.score(proposals)
        if first is None:
            finite = np.append(scores[np.isfinite(scores)], current[np.isfinite(current)])
            first = float(finite.std()) if len(finite) else 0.0
        temperature = max(first, 1e-9) * _COOLED ** (turn / rounds)
        loss = np.where(np.isfinite(scores), np.maximum(current - scores, 0.0), 0.0)
        likely = rng.random(len(chains)) < np.exp(-np.minimum(loss / temperature, 700.0))
        accepted = np.isfinite(scores) & likely
        for i in np.flatnonzero(accepted).tolist():
            chains[i], current[i] = proposals[i], scores[i]


def _proposal(
    scorer: Scorer,
    neighbors: Callable[..., Iterable[np.ndarray]],
    ids: np.ndarray,
    settings: AttackSettings,
    rng: np.random.Generator,
) -> np.ndarray:
    """A uniform neighbor, or the tokenization itself where it has none."""
    rows = [row for d in settings.distances for row in neighbors(ids, distance=d)]
    rows = scorer.fitting(rows)
    return rows[int(rng.integers(len(rows)))] if rows else ids


SEARCH_FUNCTIONS = {"greedy": greedy, "random": draw_at_random, "annealing": anneal}
