"""Figure of accuracy against the number of tokenizations that an attack may score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from robustok.report.drawing import new_figure, save_figure
from robustok.report.style import INK, OTHERS, house_style

Curve = Sequence[Mapping[str, float]]  # rows of {queries, accuracy, low, high}


def draw_curve(curves: Mapping[str, Curve], path: Path) -> None:
    """Write one line with its 95% band a search, as PNG or SVG by the file's ending.

    ``curves`` are what ``AttackEvaluation.curve()`` gives, by the name of the search. Raises
    RobustokError for another ending.
    """
    with house_style():
        figure, (axes,) = new_figure((6.4, 4.0))
        for (name, rows), color in zip(curves.items(), (INK, *OTHERS), strict=False):
            at = [row["n_scored"] for row in rows]
            axes.fill_between(
                at,
                [100 * row["low"] for row in rows],
                [100 * row["high"] for row in rows],
                step="post", color=color, alpha=0.15, linewidth=0,
            )  # fmt: skip
            heights = [100 * row["accuracy"] for row in rows]
            axes.step(at, heights, where="post", color=color, label=name, linewidth=1.8)
        axes.set_xscale("log")
        axes.set_ylim(0, 100)
        axes.set_xlabel("tokenizations scored for one question")
        axes.set_ylabel("accuracy, %")
        axes.grid(axis="y")
        axes.legend()
        save_figure(figure, path)
