"""The figures of a study, drawn from its rows and written as PNG, SVG and CSV."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from robustok.files import write_csv, write_whole
from robustok.report.bars import by_strength, draw_bars, under_attack
from robustok.report.drawing import saved
from robustok.report.heatmaps import draw_heatmap
from robustok.report.style import house_style
from robustok.report.table import Results, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CSV_FIELDS = (
    "train", "query", "accuracy", "low", "high", "n", "draws", "splits", "distance",
    "length_ratio", "seeds", "seconds",
)  # fmt: skip


def draw_figures(results: Results, folder: Path) -> dict[str, dict[str, str]]:
    """Write every figure the rows allow; returns each one's SVG text, wide and narrow."""
    drawn: dict[str, dict[str, str]] = {}
    if len(results.splits()) > 1:
        bars = by_strength(results)
        drawn["teaser"] = _write(folder, "teaser", lambda narrow: draw_bars(bars, narrow))
        write_csv(folder / "teaser.csv", _split_rows(results), CSV_FIELDS)
    if results.attacks:
        attacks = under_attack(results)
        drawn["attacks"] = _write(folder, "attacks", lambda narrow: draw_bars(attacks, narrow))
        rows = [row for row in results.rows if row["query"] in ("canonical", *results.attacks)]
        write_csv(folder / "attacks.csv", rows, CSV_FIELDS)
    drawn["heatmap"] = _write(folder, "heatmap", lambda narrow: draw_heatmap(results, narrow))
    write_csv(folder / "heatmap.csv", results.rows, CSV_FIELDS)
    return drawn


def _write(folder: Path, name: str, draw: Callable[[bool], Figure]) -> dict[str, str]:
    texts = {}
    with house_style():
        for width, narrow in (("wide", False), ("narrow", True)):
            figure = draw(narrow)
            texts[width] = saved(figure, "svg").decode()
            if not narrow:
                write_whole(folder / f"{name}.svg", texts[width])
                write_whole(folder / f"{name}.png", saved(figure, "png"))
    return texts


def _split_rows(results: Results) -> list[Row]:
    rows = (results.get(train, q) for train in results.trains for _, q in results.splits())
    return [row for row in rows if row]
