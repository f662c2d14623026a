"""The segmentations of one token under `stochastok`, as a Markov chain in continuous time."""

from __future__ import annotations

from math import exp, log

import numpy as np

from robustok.lattice import Lattice

Cut = tuple[int, ...]


def stochastok_distribution(
    lattice: Lattice, alpha: float, ways: int = 2, splits: int = 4
) -> dict[Cut, float]:
    """The distribution of `stochastok` on one token of a long text, up to ``splits`` splits.

    In a long text every segment is picked at rate one for a time of ln(1 + alpha), so the segments
    of a token are a Markov chain in continuous time. This is exact as the text grows if every pick
    takes effect; where some are spent, the time is a little longer.

    >>> shares = stochastok_distribution(vocab.lattice("the"), alpha=1)
    >>> round(shares[tuple(vocab.encode("the"))], 3), len(shares)
    (0.5, 3)
    """
    expanded: dict[int, list[Cut]] = {}

    def expansions(token: int) -> list[Cut]:
        if token not in expanded:
            own = Lattice(lattice.vocab, [token])
            expanded[token] = [
                tuple(row.tolist()) for s in range(2, ways + 1) for row in own.enumerate(segments=s)
            ]
        return expanded[token]

    states: dict[Cut, int] = {tuple(lattice.reference.tolist()): 0}
    moves: list[tuple[int, int, float]] = []  # from, to, rate; to -1 beyond the last split
    waiting = list(states)
    while waiting:
        state = waiting.pop()
        for at, token in enumerate(state):
            options = expansions(token)
            for cut in options:
                after = (*state[:at], *cut, *state[at + 1 :])
                if len(after) <= splits + 1 and after not in states:
                    states[after] = len(states)
                    waiting.append(after)
                moves.append((states[state], states.get(after, -1), 1 / len(options)))
    distribution = _after(len(states), moves, log(1 + alpha))
    return {state: float(distribution[i]) for state, i in states.items()}


def _after(size: int, moves: list[tuple[int, int, float]], time: float) -> np.ndarray:
    """The distribution of a chain that starts in state 0 after a time, by uniformization."""
    leave = np.zeros(size)
    rates = np.zeros((size, size))
    for a, b, rate in moves:
        leave[a] += rate
        if b >= 0:
            rates[a, b] += rate
    fastest = max(float(leave.max()), 1e-9)
    step = rates / fastest + np.diag(1 - leave / fastest)
    now = np.eye(1, size)[0]
    distribution, weight = np.zeros(size), exp(-fastest * time)
    for n in range(1, int(fastest * time + 12 * (fastest * time) ** 0.5) + 40):
        distribution += weight * now
        now = now @ step
        weight *= fastest * time / n
    return distribution
