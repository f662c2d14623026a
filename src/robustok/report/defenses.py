"""Figures of defenses: accuracy with each, and the curves of detectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from robustok.report.drawing import new_figure, save_both
from robustok.report.style import GRID, INK, OTHERS, house_style

if TYPE_CHECKING:
    from robustok.redteam import DefenseTable

_CLEAN, _ATTACKED = "#cbd2d9", "#0072b2"


def draw_defenses(table: DefenseTable, stem: Path) -> None:
    """Accuracy on canonical and on attacked ids with each defense, with 95% intervals.

    Args:
        table: what was measured.
        stem: the figure's path without its ending; written as PNG and SVG.
    """
    rows = table.rows[::-1]
    with house_style():
        figure, (axes,) = new_figure((7.2, 1.2 + 0.44 * len(rows)))
        for at, row in enumerate(rows):
            axes.barh(at + 0.19, 100 * row.accuracy, 0.36, color=_CLEAN,
                      label="canonical ids" if not at else None)  # fmt: skip
            axes.barh(at - 0.19, 100 * row.attacked, 0.36, color=_ATTACKED,
                      label="attacked ids" if not at else None)  # fmt: skip
            axes.hlines(at - 0.19, 100 * row.low, 100 * row.high, color=INK, linewidth=1.2)
        axes.set_yticks(range(len(rows)), [f"{r.defense} ({r.tokens:.1f}x tokens)" for r in rows])
        axes.set_xlim(0, 100)
        axes.set_xlabel(f"accuracy of {table.n} questions, %")
        axes.grid(visible=False)
        axes.grid(axis="x")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
        save_both(figure, stem)


def draw_roc(table: DefenseTable, stem: Path) -> None:
    """Share of attacks flagged by each detector, against the share of benign inputs flagged.

    A dot marks the threshold of the table. The first axis is logarithmic from the share of one
    benign input on.

    Args:
        table: what was measured.
        stem: the figure's path without its ending; written as PNG and SVG.
    """
    with house_style():
        figure, (axes,) = new_figure((6.4, 4.4))
        smallest = min(
            (r for c in table.curves.values() for r in c.false_positive_rates if r), default=1.0
        )
        for (name, curve), color in zip(table.curves.items(), (INK, *OTHERS), strict=False):
            axes.plot(
                [100 * r for r in curve.false_positive_rates],
                [100 * r for r in curve.true_positive_rates],
                color=color, linewidth=1.8, label=f"{name}, AUC {curve.auc:.3f}",
            )  # fmt: skip
            axes.plot(
                100 * curve.flagged_benign, 100 * curve.detected, "o", color=color, markersize=7,
                clip_on=False, zorder=3,
            )  # fmt: skip
        allowed = 100 * table.false_positives
        axes.axvline(allowed, color=GRID, linewidth=1.4, zorder=0)
        axes.set_xscale("symlog", linthresh=100 * smallest, linscale=0.5)
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 100)
        ticks = [tick for tick in (0.1, 1, 10, 100) if tick >= 100 * smallest]
        axes.set_xticks([0, *ticks], [f"{tick:g}" for tick in (0, *ticks)])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("benign inputs flagged, %")
        axes.set_ylabel("attacks flagged, %")
        axes.grid(axis="y")
        axes.legend(loc="upper left", title=f"dots: thresholds at {allowed:g}% of benign inputs")
        save_both(figure, stem)
