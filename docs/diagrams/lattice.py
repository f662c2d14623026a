"""The lattice of one word, as the page on concepts shows it.

    python docs/diagrams/lattice.py

A node is a place between two letters, an edge a token that stands there; a path from left to right
is a tokenization. The canonical one is drawn dark.
"""

from __future__ import annotations

from pathlib import Path

from robustok.report.style import INK, MUTED, figure_style, new_figure, save_figure

WORD = "tokens"
TOKENS = ("t", "o", "k", "e", "n", "s", "to", "ok", "en", "ken", "tok", "token", "ens")
CANONICAL = ("token", "s")
BEND = 0.5
IMAGES = Path(__file__).parents[1] / "images"


def edges() -> list[tuple[int, int, str]]:
    """Every token at every place where it stands in the word."""
    return [
        (at, at + len(token), token)
        for token in TOKENS
        for at in range(len(WORD) - len(token) + 1)
        if WORD.startswith(token, at)
    ]


def paths() -> int:
    """How many tokenizations the word has, counted from the right."""
    ways = [0] * len(WORD) + [1]
    for at in reversed(range(len(WORD))):
        ways[at] = sum(ways[end] for begin, end, _ in edges() if begin == at)
    return ways[0]


def draw(path: Path) -> None:
    places, at = set(), 0
    for token in CANONICAL:
        places.add((at, at + len(token)))
        at += len(token)
    with figure_style():
        figure, (axes,) = new_figure((8.0, 2.9))
        axes.set_axis_off()
        for begin, end, token in edges():
            chosen = (begin, end) in places
            # An arc is a curve whose top is at half the way to the point that bends it.
            long = end - begin > 1
            middle, height = (begin + end) / 2, BEND / 2 * (end - begin) if long else 0
            axes.annotate(
                "", (end - 0.06, 0), (begin + 0.06, 0),
                arrowprops={
                    "arrowstyle": "-|>", "color": INK if chosen else "#b8c2cc",
                    "linewidth": 2.2 if chosen else 1.2,
                    "connectionstyle": f"arc3,rad={-BEND if long else 0}",
                },
            )  # fmt: skip
            axes.text(
                middle, height + 0.06, token, ha="center", fontsize=10.5,
                color=INK if chosen else MUTED, weight="bold" if chosen else "normal",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2},
                zorder=5,  # also above the arcs that are drawn later
            )  # fmt: skip
        axes.plot(range(len(WORD) + 1), [0] * (len(WORD) + 1), "o", color=INK, markersize=6)
        axes.set_xlim(-0.3, len(WORD) + 0.3)
        axes.set_ylim(-0.2, 1.5)
        axes.set_aspect("equal")
        save_figure(figure, path)


if __name__ == "__main__":
    draw(IMAGES / "lattice.svg")
