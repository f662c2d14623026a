"""Figures without a screen, and how they are written whole."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustok.errors import RobustokError
from robustok.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def new_figure(
    size: tuple[float, float], rows: int = 1, columns: int = 1
) -> tuple[Figure, list[Axes]]:
    """A figure of this many inches and its axes, row by row, drawn without a screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
    return figure, list(axes.flat)


def saved(figure: Figure, kind: str) -> bytes:
    """The bytes of a figure as "png" or "svg", without the time of writing."""
    buffer = io.BytesIO()
    metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {"Software": None}
    figure.savefig(buffer, format=kind, bbox_inches="tight", pad_inches=0.1, metadata=metadata)
    return buffer.getvalue()


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure whole, as PNG or SVG by the file's ending."""
    kind = path.suffix.removeprefix(".").lower()
    if kind not in ("png", "svg"):
        raise RobustokError(f"{path}: a figure is written as .png or .svg")
    write_whole(path, saved(figure, kind))


def save_both(figure: Figure, stem: Path) -> None:
    """Write a figure as PNG and as SVG; ``stem`` is the path without the ending."""
    for ending in (".png", ".svg"):
        save_figure(figure, stem.with_name(stem.name + ending))
