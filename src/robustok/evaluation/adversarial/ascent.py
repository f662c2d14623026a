"""Greedy ascent over the neighborhoods of a text's tokenizations (paper, algorithm 2).

The ascent is a generator: it yields tokenizations and receives their scores, whatever a score is.
The attack on questions and the red team's objectives both use it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence

import numpy as np

from robustok.attack_settings import AttackSettings
from robustok.ragged import Ragged


def ascend(
    neighborhood: Callable[[np.ndarray, int], Iterable[np.ndarray]],
    start: np.ndarray,
    settings: AttackSettings,
    seeds: Sequence[int],
    left: Callable[[], int | None],
) -> Generator[Ragged, np.ndarray, None]:
    """Yield ``start``, then the neighbors of the best ``settings.beam``, while the best improves.

    Each yield receives the scores of its rows, float64 [n].

    Args:
        neighborhood: tokenizations at a distance from ids that may be scored.
        start: ids where the ascent begins, int32 [n].
        settings: distances, number of steps, beam and ``max_neighbors``.
        seeds: integers that seed the choice among too many neighbors, with the step's number.
        left: number of tokenizations that may still be scored, None without a limit.
    """
    scores = yield Ragged.from_rows([start])
    beam = [(float(scores[0]), start)]
    for step in range(settings.steps):
        highest, known = beam[0][0], [ids for _, ids in beam]
        groups = [neighborhood(ids, d) for ids in known for d in settings.distances]
        rng = np.random.default_rng([*seeds, step])
        rows = choose(groups, known, settings.max_neighbors, left(), rng)
        if not len(rows):
            return
        scores = yield rows
        top = np.argsort(-scores, kind="stable")[: settings.beam].tolist()
        beam += [(float(scores[i]), rows[i]) for i in top]
        beam = sorted(beam, key=lambda entry: -entry[0])[: settings.beam]
        if beam[0][0] <= highest:
            return


def next_rows(ascent: Generator[Ragged, np.ndarray, None], scores: np.ndarray) -> Ragged | None:
    """The next tokenizations to score, None at the end of the ascent.

    Args:
        ascent: a generator of `ascend` that waits for the scores of its rows.
        scores: these scores, float64 [n].
    """
    try:
        return ascent.send(scores)
    except StopIteration:
        return None


def choose(
    groups: Sequence[Iterable[np.ndarray]],
    known: list[np.ndarray],
    cap: int | None,
    left: int | None,
    rng: np.random.Generator,
) -> Ragged:
    """The neighbors to score: each once, none of ``known``, at most ``cap`` and ``left``."""
    rows = [row for group in groups for row in group]
    if len(groups) > 1:
        seen = {ids.tobytes() for ids in known}
        rows = list({row.tobytes(): row for row in rows if row.tobytes() not in seen}.values())
    limit = min(len(rows) if cap is None else cap, len(rows) if left is None else left)
    if len(rows) > limit:
        rows = [rows[i] for i in np.sort(rng.choice(len(rows), limit, replace=False)).tolist()]
    return Ragged.from_rows(rows)
