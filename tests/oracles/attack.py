"""Slow reference of the searches: one text, one loop, no generators and no batches."""

from collections.abc import Callable
from typing import Any

import numpy as np

from robustok import Vocabulary, sampler
from robustok.attack import AttackSettings
from robustok.evaluation.questions import item_key


def attack_slowly(
    vocab: Vocabulary,
    text: str,
    score: Callable[[np.ndarray], float],
    settings: AttackSettings,
    seed: int,
    threshold: float = np.inf,
) -> list[tuple[list[int], float, int]]:
    """Every improvement as (ids, score, tokenizations scored by then)."""
    known: dict[bytes, float] = {}
    steps: list[tuple[list[int], float, int]] = []
    lattice, key = vocab.lattice(text), item_key(text)

    def value(ids: np.ndarray) -> float:
        if ids.tobytes() not in known and len(known) < (settings.max_scored or np.inf):
            known[ids.tobytes()] = score(ids)
            if not steps or known[ids.tobytes()] > steps[-1][1]:
                steps.append((ids.tolist(), known[ids.tobytes()], len(known)))
        return known.get(ids.tobytes(), -np.inf)

    def draw(spec: str, count: int, epoch: int) -> list[np.ndarray]:
        keys = np.array([key], np.int64)
        rows = sampler(spec, vocab).sample_batch(
            [text], seed=seed, draws=count, keys=keys, epoch=epoch
        )
        return list(rows)

    def near(ids: np.ndarray) -> list[np.ndarray]:
        return [row for d in settings.distances for row in lattice.neighbors(ids, distance=d)]

    start = vocab.encode(text)
    if settings.start != "canonical":
        start = draw(settings.start, 1, 0)[0]
    if settings.search == "random":
        for ids in [start, *draw("uniform", settings.max_scored or 0, 1)]:
            value(ids)
    else:
        for restart in range(settings.restarts + 1):
            if restart:
                start = draw("uniform", 1, restart)[0]
            _climb(settings, start, value, near, [seed, key, restart], known)
            if steps[-1][1] > threshold:
                break
    return steps


def _climb(settings: AttackSettings, start: Any, value: Any, near: Any, seeds: Any,
           known: Any) -> None:  # fmt: skip
    if settings.max_scored is not None and len(known) >= settings.max_scored:
        return
    beam = [(value(start), start)]
    for step in range(settings.steps):
        groups = [near(ids) for _, ids in beam]
        rows = [row for group in groups for row in group]
        if len(settings.distances) * len(beam) > 1:
            seen = {ids.tobytes() for _, ids in beam}
            rows = list({r.tobytes(): r for r in rows if r.tobytes() not in seen}.values())
        room = len(rows) if settings.max_scored is None else settings.max_scored - len(known)
        limit = min(settings.max_neighbors or len(rows), room)
        if len(rows) > limit:
            rng = np.random.default_rng([*seeds, step])
            rows = [rows[i] for i in np.sort(rng.choice(len(rows), limit, replace=False))]
        if not rows:
            return
        highest = beam[0][0]
        scored = [(value(row), row) for row in rows]
        best = sorted(scored, key=lambda entry: -entry[0])[: settings.beam]
        beam = sorted(beam + best, key=lambda entry: -entry[0])[: settings.beam]
        if beam[0][0] <= highest:
            return
