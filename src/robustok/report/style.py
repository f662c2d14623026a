"""Style of figures and tables: colors of schemes, figures drawn without a screen.

One color for each scheme, safe for color-blind readers.
The colors are Okabe and Ito's; canonical training is dark gray, as the paper prints it black. A
scheme without a color takes one of those that are left.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustok.errors import RobustokError
from robustok.runtime.files import write_csv, write_whole
from robustok.samplers.spec import SCHEMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]  # what a figure draws; its fields are those of the CSV beside it

INK = "#1f2933"
MUTED = "#52606d"
GRID = "#e4e7eb"

OTHERS = ("#d55e00", "#b8a800", "#882255", "#44aa99")

MARKERS = ("o", "s", "D", "^", "v", "P", "X")
SAMPLED, ATTACKED = "#0072b2", "#d55e00"

DASHES = ("-", (0, (5, 2)), (0, (1.2, 1.6)), (0, (6, 2, 1.2, 2)))

# Inches. On a phone, where a figure is 340 pixels wide, 10 points are 9 pixels then.
WIDTH = 5.2
_PALETTE = 128  # colors of a PNG

RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid.axis": "y",
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "lines.linewidth": 1.7,
    "lines.markersize": 4.5,
    "figure.labelsize": 10,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.handlelength": 1.4,
    "legend.columnspacing": 1.6,
    "figure.facecolor": "white",  # a dark page inverts it
    "savefig.facecolor": "white",
    "savefig.dpi": 160,
    "svg.hashsalt": "robustok",
}


def family(spec: str) -> str:
    """The scheme's name without its settings.

    >>> family("uniform-k(alpha=1)")
    'uniform-k'
    """
    return spec.split("(", 1)[0]


def colors(specs: list[str]) -> list[str]:
    """A color for each spec: its family's, lightened in turn where a family comes twice.

    >>> colors(["canonical", "uniform"])
    ['#3e4c59', '#009e73']
    """
    spare = iter(OTHERS * len(specs))
    base = {
        name: getattr(SCHEMES.find(name), "color", "") or next(spare)
        for name in dict.fromkeys(map(family, specs))
    }
    members = {name: [s for s in specs if family(s) == name] for name in base}
    return [
        _lighter(base[family(s)], members[family(s)].index(s) / len(members[family(s)]) * 0.7)
        for s in specs
    ]


def _lighter(color: str, share: float) -> str:
    parts = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(p + (255 - p) * share):02x}" for p in parts)


@contextmanager
def figure_style() -> Iterator[None]:
    """Matplotlib in this style within the block."""
    import matplotlib as mpl

    with mpl.rc_context(RC):
        yield


def new_figure(
    size: tuple[float, float], rows: int = 1, columns: int = 1, *, sharey: bool = True
) -> tuple[Figure, list[Axes]]:
    """A figure of this many inches and its axes, row by row, drawn without a screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, sharey=sharey)
    return figure, list(axes.flat)


@figure_style()
def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure whole, as PNG or SVG by the file's ending, without the time of writing.

    A PNG has a palette, with which it is a third as large.
    """
    kind = path.suffix.removeprefix(".").lower()
    if kind not in ("png", "svg"):
        raise RobustokError(f"{path}: a figure is written as .png or .svg")
    buffer = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {}
    figure.savefig(buffer, format=kind, bbox_inches="tight", pad_inches=0.12, metadata=metadata)
    write_whole(path, _with_palette(buffer) if kind == "png" else buffer.getvalue())


def _with_palette(png: io.BytesIO) -> bytes:
    from PIL import Image

    reduced, buffer = Image.open(png).convert("RGB").quantize(_PALETTE), io.BytesIO()
    reduced.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def save_all(
    figure: Figure,
    stem: Path,
    rows: Sequence[Row] | None = None,
    fields: Sequence[str] | None = None,
) -> list[Path]:
    """Write a figure as PNG and SVG, and the rows that it shows as CSV; returns the paths.

    ``stem`` is the path without the ending; ``fields`` are the columns, by default all of ``rows``.
    """
    png, svg, csv = (stem.with_name(f"{stem.name}.{ending}") for ending in ("png", "svg", "csv"))
    save_figure(figure, svg)
    save_figure(figure, png)
    if rows is not None:
        write_csv(csv, rows, fields)
    return [png, svg, csv]


def draw_line(
    axes: Axes,
    rows: Sequence[Row],
    x: str,
    y: str,
    *,
    color: str,
    scale: float = 1.0,
    shade: float = 0.15,
    **style: Any,
) -> None:
    """A line through a field of the rows, in a band from their ``low`` to their ``high``.

    ``shade`` is the opacity of the band; ``style`` goes to matplotlib's ``plot``.
    """
    at = [row[x] for row in rows]
    low, high, mean = ([scale * row[name] for row in rows] for name in ("low", "high", y))
    step = "post" if style.get("drawstyle") == "steps-post" else None
    axes.fill_between(at, low, high, step=step, color=color, alpha=shade, linewidth=0)
    axes.plot(at, mean, color=color, **style)


def plain(text: str) -> str:
    """A text for a figure, where matplotlib would set what is between dollar signs as a formula.

    >>> plain("from $5 to $9")
    'from \\\\$5 to \\\\$9'
    """
    return text.replace("$", "\\$")


def grouped(rows: Iterable[Row], field: str) -> dict[Any, list[Row]]:
    """The rows by a field, in their order.

    >>> grouped([{"n": 1}, {"n": 2}, {"n": 1}], "n")
    {1: [{'n': 1}, {'n': 1}], 2: [{'n': 2}]}
    """
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[field], []).append(row)
    return groups


def label_axes(axes: Axes, x: str, y: str, **properties: object) -> None:
    """Name both axes over horizontal grid lines; ``properties`` goes to matplotlib's ``set``."""
    axes.set(xlabel=x, ylabel=y, **properties)
    axes.grid(axis="y")


def legend_above(figure: Figure, *axes: Axes, more: Sequence[Any] = ()) -> None:
    """One legend above a figure: each name in the panels once, or other keys."""
    named = {key.get_label(): key for key in more}
    for panel in axes:
        for key, name in zip(*panel.get_legend_handles_labels(), strict=True):
            named.setdefault(name, key)
    names = sorted(named, key=lambda name: name == "chance")  # last
    # About as many columns as fit; a column is as wide as its longest name.
    columns = int(figure.get_figwidth() // (0.07 * max(map(len, names)) + 0.45))
    columns = max(1, min(columns, len(names)))
    keys = [named[name] for name in names]
    figure.legend(keys, names, ncols=columns, loc="lower left", bbox_to_anchor=(0, 1), borderpad=0)


def percent_axis(axes: Axes) -> None:
    """The vertical axis of shares in percent, from 0 to 100."""
    axes.set_ylim(0, 100)
    axes.set_yticks(range(0, 101, 20), [f"{y}%" for y in range(0, 101, 20)])


def legend_key(**style: Any) -> Any:
    """A line for a legend; ``style`` goes to matplotlib's ``Line2D``."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **style)
