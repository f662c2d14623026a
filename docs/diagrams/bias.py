"""Why StochasTok is biased: how two splits reach the ways to cut `abcd` in three.

    python docs/diagrams/bias.py

Boxes are tokenizations, arrows splits with their probability (a pick that cannot split changes
nothing: no arrow). What arrives at each end is the sum over the ways that lead there.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from robustok.report.style import INK, MUTED, figure_style, new_figure, save_figure

SPLITS = {"abcd": ("ab cd", "a bcd"), "ab": ("a b",), "cd": ("c d",), "bcd": ("b cd",)}
PLACES = {
    "abcd": (0, 1), "ab cd": (1, 1.6), "a bcd": (1, 0.4), "a b cd": (2, 1.6), "ab c d": (2, 0.4),
}  # fmt: skip
IMAGES = Path(__file__).parents[1] / "images"


def steps(tokens: str) -> dict[str, Fraction]:
    """Where one pick leads from a tokenization, with what probability."""
    segments, shares = tokens.split(), dict[str, Fraction]()
    for i, segment in enumerate(segments):
        ways = SPLITS.get(segment, (segment,))
        for way in ways:
            after = " ".join([*segments[:i], way, *segments[i + 1 :]])
            share = Fraction(1, len(segments) * len(ways))
            shares[after] = shares.get(after, Fraction(0)) + share
    return shares


def reached(picks: int) -> dict[str, Fraction]:
    """The distribution after so many picks."""
    shares = {"abcd": Fraction(1)}
    for _ in range(picks):
        after: dict[str, Fraction] = {}
        for tokens, p in shares.items():
            for other, q in steps(tokens).items():
                after[other] = after.get(other, Fraction(0)) + p * q
        shares = after
    return shares


def draw(path: Path) -> None:
    shares = reached(2)
    with figure_style():
        figure, (axes,) = new_figure((8.0, 3.0))
        axes.set_axis_off()
        for tokens, (x, y) in PLACES.items():
            shown = tokens.replace(" ", "·")
            text = f"{shown}\n{shares[tokens]}" if x == 2 else shown
            axes.text(
                x, y, text, ha="center", va="center", fontsize=12, color=INK, linespacing=1.5,
                bbox={"boxstyle": "round,pad=0.45", "facecolor": "white", "edgecolor": "#b8c2cc"},
            )  # fmt: skip
            for other, p in steps(tokens).items():
                if x == 2 or other == tokens:
                    continue
                to_x, to_y = PLACES[other]
                axes.annotate(
                    "", (to_x - 0.2, to_y), (x + 0.2, y),
                    arrowprops={"arrowstyle": "-|>", "color": "#8a96a3", "linewidth": 1.3},
                )  # fmt: skip
                middle = x + 0.34 * (to_x - x), y + 0.34 * (to_y - y)
                axes.text(
                    *middle, str(p), fontsize=10, color=MUTED, ha="center", va="center",
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
                )  # fmt: skip
        axes.set_xlim(-0.3, 2.35)
        axes.set_ylim(0, 2)
        save_figure(figure, path)


if __name__ == "__main__":
    draw(IMAGES / "stochastok-bias.svg")
