"""How `uniform-k` aims: the distance of a weighted draw, for a weight too small, right, too large.

    python docs/diagrams/boltzmann.py

A text of 120 words, each with the numbers of tokenizations by distance in WAYS. The distribution of
all is the product of their polynomials, weighted with z to the power of the distance.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from robustok.report.style import INK, MUTED, figure_style, new_figure, save_figure

WAYS = ([1, 0, 2, 1], [1, 0, 1, 2, 1], [1], [1, 0, 3, 4, 1])  # by distance, of a kind of word
WORDS, K = 120, 100
IMAGES = Path(__file__).parents[1] / "images"


def distribution(z: float) -> np.ndarray:
    """The probability of every distance of the whole text under weights z ** distance."""
    whole = np.ones(1)
    for word in range(WORDS):
        ways = np.array(WAYS[word % len(WAYS)]) * z ** np.arange(len(WAYS[word % len(WAYS)]))
        whole = np.convolve(whole, ways / ways.sum())
    return whole


def mean(z: float) -> float:
    shares = distribution(z)
    return float(shares @ np.arange(len(shares)))


def aimed(k: int) -> float:
    """The weight under which the expected distance is k, by halving."""
    low, high = 1e-6, 1e6
    for _ in range(100):
        z = (low * high) ** 0.5
        low, high = (z, high) if mean(z) < k else (low, z)
    return z


def draw(path: Path) -> None:
    right = aimed(K)
    with figure_style():
        figure, (axes,) = new_figure((8.0, 2.8))
        for z, color, named in (
            (right / 1.6, "#b8c2cc", "z too small"),
            (right, INK, f"z = {right:.2f}: expected distance {K}"),
            (right * 1.6, "#b8c2cc", "z too large"),
        ):
            shares = distribution(z)
            axes.plot(shares, color=color, linewidth=2)
            top = int(shares.argmax())
            axes.text(top, shares[top] + 0.004, named, ha="center", fontsize=9.5, color=color)
        kept = distribution(right)[K]
        axes.bar([K], [kept], width=1, color="#d9822b")
        axes.text(K + 2, kept / 2, f"kept:\n{kept:.1%}", va="center", fontsize=9.5, color="#d9822b")
        axes.set_xlabel("distance of a draw", color=MUTED)
        axes.set_ylabel("probability", color=MUTED)
        axes.set_ylim(0, 1.3 * distribution(right / 1.6).max())
        axes.set_xlim(0, 200)
        save_figure(figure, path)


if __name__ == "__main__":
    draw(IMAGES / "boltzmann.svg")
