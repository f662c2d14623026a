"""The tokenizations that a certificate scores: all within a distance, or uniform draws of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from robustok.errors import RobustokError
from robustok.evaluation.adversarial.problem import Problem
from robustok.lattice import Lattice
from robustok.ragged import Ragged


@dataclass(frozen=True)
class Plan:
    """How to certify: the distances, and the most tokenizations of a question to score one by one.

    ``draws`` uniform draws where there are more than ``limit``; ``attack`` runs the search too.
    """

    distances: tuple[int | None, ...]
    limit: int
    draws: int
    confidence: float
    seed: int
    attack: bool

    def __post_init__(self) -> None:
        if not self.distances or len(set(self.distances)) < len(self.distances):
            raise RobustokError("give each distance once, and at least one, as in 2, 4")
        if any(d is not None and d < 1 for d in self.distances):
            raise RobustokError("a distance to certify is a whole number from 1 on")
        if self.draws < 1 or self.limit < 1:
            raise RobustokError("draws and limit must be at least 1")
        if not 0 < self.confidence < 1:
            raise RobustokError(f"confidence {self.confidence} is not between 0 and 1")
        known = sorted(d for d in self.distances if d is not None)
        every = (None,) if None in self.distances else ()
        object.__setattr__(self, "distances", (*known, *every))


class TokenizationSet(NamedTuple):
    """The tokenizations scored for one distance: ``members`` are their rows."""

    distance: int | None
    size: int
    exact: bool
    members: np.ndarray


def tokenizations_to_score(problem: Problem, plan: Plan) -> tuple[Ragged, list[TokenizationSet]]:
    """The tokenizations to score, nearest levels first, and which belong to which distance."""
    canonical = problem.canonical
    lattice = Lattice(problem.vocab, canonical)
    farthest = lattice.farthest
    rows: list[np.ndarray] = []
    level, sets = -1, []
    for wanted in plan.distances:
        most = farthest if wanted is None else min(wanted, farthest)
        # All of them are counted without a polynomial of the text's length.
        counts = [] if most == farthest else lattice.counts(most=most)
        size = sum(counts) or lattice.count()
        exact = size <= plan.limit
        if exact:
            while level < most:
                level += 1
                rows += list(lattice.neighbors(canonical, distance=level))
            members = np.arange(size)
        else:
            rows = rows or [canonical]
            level = max(level, 0)
            drawn = _draw_within(problem, canonical, counts, plan)
            members = np.arange(len(rows), len(rows) + len(drawn))
            rows += drawn
        sets.append(TokenizationSet(wanted, size, exact, members))
    return Ragged.from_rows(rows), sets


def _draw_within(
    problem: Problem, canonical: np.ndarray, counts: list[int], plan: Plan
) -> list[np.ndarray]:
    """Uniform draws from the tokenizations of the counted distances (none: of all)."""
    from robustok.samplers import UniformK, sampler

    keys, text = np.array([problem.draw_key], np.int64), Ragged.from_rows([canonical])
    if not counts:
        uniform = sampler("uniform", problem.vocab)
        return list(uniform.sample_batch(text, seed=plan.seed, draws=plan.draws, keys=keys))
    total = sum(counts)
    rng = np.random.default_rng([plan.seed, problem.draw_key, len(counts)])
    shares = rng.multinomial(plan.draws, [count / total for count in counts])
    rows: list[np.ndarray] = []
    for k, share in enumerate(shares.tolist()):
        if share:
            drawn = UniformK(problem.vocab, k=k).sample_batch(
                text, seed=plan.seed, draws=share, keys=keys, epoch=len(counts)
            )
            rows += list(drawn)
    return rows
