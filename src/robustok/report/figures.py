"""The figures of a study, drawn from its rows and written as PNG, SVG and CSV."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustok.attack_settings import AttackSettings
from robustok.errors import RobustokError
from robustok.files import write_csv, write_whole
from robustok.report.style import GRID, INK, MUTED, family, house_style
from robustok.report.table import Results, Row, splits_of
from robustok.samplers.parameters import Number, show
from robustok.samplers.registry import find_scheme
from robustok.samplers.spec import Spec, read_call
from robustok.study.equal_strength import splits_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE, NARROW = (8.2, 4.3), (4.4, 5.4)
_LONGEST = 16  # characters of a name on one line
ACROSS = 3  # panels in a row
_AXES = {
    True: "measured splits per canonical token of the questions  →",
    False: "α of the scheme of the questions  →",
}
CSV_FIELDS = (
    "train", "query", "accuracy", "low", "high", "n", "draws", "splits", "distance",
    "length_ratio", "seed", "seconds",
)  # fmt: skip


def draw_figures(results: Results, folder: Path) -> dict[str, dict[str, str]]:
    """Write every figure the rows allow; returns each one's SVG text, wide and narrow."""
    drawn: dict[str, dict[str, str]] = {}
    if len(results.splits()) > 1:
        drawn["teaser"] = _write(folder, "teaser", _draw_splits, results)
        write_csv(folder / "teaser.csv", _split_rows(results), CSV_FIELDS)
    drawn["heatmap"] = _write(folder, "heatmap", _draw_heatmap, results)
    write_csv(folder / "heatmap.csv", results.rows, CSV_FIELDS)
    return drawn


def _write(
    folder: Path, name: str, draw: Callable[[Results, bool], Figure], results: Results
) -> dict[str, str]:
    texts = {}
    with house_style():
        for width, narrow in (("wide", False), ("narrow", True)):
            figure = draw(results, narrow)
            texts[width] = _saved(figure, "svg").decode()
            if not narrow:
                write_whole(folder / f"{name}.svg", texts[width])
                write_whole(folder / f"{name}.png", _saved(figure, "png"))
    return texts


def _saved(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {"Software": None}
    figure.savefig(buffer, format=kind, bbox_inches="tight", pad_inches=0.1, metadata=metadata)
    return buffer.getvalue()


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure whole, as PNG or SVG by the file's ending."""
    kind = path.suffix.removeprefix(".").lower()
    if kind not in ("png", "svg"):
        raise RobustokError(f"{path}: a figure is written as .png or .svg")
    write_whole(path, _saved(figure, kind))


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


def _split_rows(results: Results) -> list[Row]:
    rows = (results.get(train, q) for train in results.trains for _, q in results.splits())
    return [row for row in rows if row]


def _draw_splits(results: Results, narrow: bool) -> Figure:
    """The teaser: a group of bars for each strength, a bar for each model, with 95% intervals.

    Models with different pre-training have panels of their own, as in the paper.
    """
    panels = results.panels
    columns = 1 if narrow else min(len(panels), ACROSS)
    rows = -(-len(panels) // columns)
    width, height = NARROW if narrow else WIDE
    size = width, height if rows == 1 else 1.0 + (0.6 if narrow else 0.55) * height * rows
    figure, axes = new_figure(size, rows, columns)
    widest = max(len(results.inside(panel)) for panel in panels)
    for place in axes[len(panels) :]:
        place.set_axis_off()
    axes = axes[: len(panels)]
    for number, (panel, place) in enumerate(zip(panels, axes, strict=True)):
        _draw_panel(place, results, results.inside(panel), widest)
        if panel:
            place.set_title(_panel_title(panel), fontsize=9.5)
        if number % columns == 0:
            place.set_ylabel("accuracy" if rows > 1 else "accuracy on held-out questions")
        if number + columns >= len(panels):
            place.set_xlabel(_AXES[all(x is not None for x in measured_splits(results))])
    drawn: dict[str, Any] = {}
    for place in axes:
        handles, labels = place.get_legend_handles_labels()
        drawn |= dict(zip(labels, handles, strict=True))
    figure.legend(
        drawn.values(), drawn.keys(), loc="outside upper left",
        ncols=1 if narrow else min(4, len(drawn)),
        handlelength=1, handleheight=1, columnspacing=1.6, fontsize=9,
    )  # fmt: skip
    return figure


def _panel_title(panel: str) -> str:
    """Schemes are how models were pre-trained; anything else, such as a task, names itself."""
    parts = [part.strip() for part in re.split(r",(?![^(]*\))", panel)]
    names = [short(part).replace("\n", " ") for part in parts]
    return (
        f"{names[0]} pre-training"
        if len(parts) == 1 and find_scheme(family(parts[0]))
        else ", ".join(names)
    )


def _draw_panel(axes: Axes, results: Results, trains: list[str], widest: int) -> None:
    places = results.splits()
    width = 0.8 / widest
    for i, train in enumerate(trains):
        rows = [(at, results.get(train, eval_scheme)) for at, (_, eval_scheme) in enumerate(places)]
        bars = [(at + (i - (len(trains) - 1) / 2) * width, row) for at, row in rows if row]
        heights = [100 * row["accuracy"] for _, row in bars]
        errors = [
            [100 * (row["accuracy"] - row["low"]) for _, row in bars],
            [100 * (row["high"] - row["accuracy"]) for _, row in bars],
        ]
        axes.bar(
            [x for x, _ in bars], heights, width * 0.88, color=results.colors[train],
            label=results.bars[train], yerr=errors,
            error_kw={"ecolor": INK, "elinewidth": 0.9, "capsize": 0, "alpha": 0.75},
        )  # fmt: skip
    _draw_chance(axes, [row for row in results.rows if row["train"] in trains])
    measured = measured_splits(results)
    labels = [
        f"{x:g}" if splits is None else f"{splits:.2f}\nα = {x:g}"
        for (x, _), splits in zip(places, measured, strict=True)
    ]
    axes.set_xticks(range(len(places)), labels)
    _percent_axis(axes)


def measured_splits(results: Results) -> list[float | None]:
    """The mean splits per canonical token of the questions, for each scheme on the axis.

    >>> rows = [{"train": "canonical", "query": "stochastok(alpha=3)", "splits": 1.28}]
    >>> measured_splits(Results(rows))
    [1.28]

    None for a scheme that a release before measured splits evaluated. Alpha is not this number:
    picks that cannot split are spent.
    """
    means: list[float | None] = []
    for _, eval_scheme in results.splits():
        rows = [row for row in results.rows if row["query"] == eval_scheme]
        known = all("splits" in row for row in rows)
        means.append(sum(row["splits"] for row in rows) / len(rows) if known else None)
    return means


def _draw_chance(axes: Axes, rows: list[Row]) -> None:
    chances = {row["chance"] for row in rows if "chance" in row}
    if len(chances) != 1:
        return
    chance = 100 * chances.pop()
    axes.axhline(chance, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=3)
    axes.annotate(
        "chance", (1, chance), xycoords=("axes fraction", "data"), xytext=(4, 0),
        textcoords="offset points", va="center", fontsize=8.5, color=MUTED, annotation_clip=False,
    )  # fmt: skip


def _percent_axis(axes: Axes) -> None:
    axes.set_ylim(0, 100)
    axes.set_yticks(range(0, 101, 20), [f"{y}%" for y in range(0, 101, 20)])
    axes.grid(True, axis="y")
    axes.spines["bottom"].set_color(GRID)


def _draw_heatmap(results: Results, narrow: bool) -> Figure:
    """Accuracy of every model under every evaluation scheme; attacks are on the right."""
    # A strength of 0 is the canonical scheme under another name: one column is enough.
    plain = [s for s in results.eval_schemes if s == "canonical" or splits_of(s) != 0]
    columns = [q for q in plain if q not in results.attacks] + results.attacks
    rows = results.trains
    if narrow:
        rows, columns = columns, rows
    size = (4.4, 1.6 + 0.46 * len(rows)) if narrow else (8.2, 1.7 + 0.5 * len(rows))
    figure, (axes,) = new_figure(size)
    values = [[_accuracy(results, r, c, narrow) for c in columns] for r in rows]
    axes.imshow(values, cmap="cividis", vmin=0, vmax=100, aspect="auto")
    for y, line in enumerate(values):
        for x, value in enumerate(line):
            if value == value:
                color = "black" if value > 55 else "white"
                axes.text(x, y, f"{value:.1f}", ha="center", va="center", color=color, fontsize=9.5)
    for edge in range(1, max(len(rows), len(columns))):
        axes.axhline(edge - 0.5, color="white", linewidth=2)
        axes.axvline(edge - 0.5, color="white", linewidth=2)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks(range(len(columns)), [short(c) for c in columns])
    axes.set_yticks(range(len(rows)), [_one_line(short(r)) for r in rows])
    axes.xaxis.tick_top()
    axes.tick_params(axis="x", labelsize=8.5)
    axes.spines[:].set_visible(False)
    return figure


def _accuracy(results: Results, row: str, column: str, turned: bool) -> float:
    match = results.get(column, row) if turned else results.get(row, column)
    return 100 * match["accuracy"] if match else float("nan")


def short(spec: str) -> str:
    """A spec in a few short lines, for the head of a column.

    >>> short("stochastok(alpha=0.5)")
    'stochastok\\n0.5'
    >>> short('bpe-dropout(p=0.1, rule="sentencepiece")')
    'bpe-dropout\\n0.1\\nsentencepiece'
    >>> short("adversarial(distances=(2), start=canonical, steps=10)")
    'adversarial\\nd = 2'
    >>> short("stochastok(ways=3, splits=0.5)")  # at a measured strength
    'stochastok\\n3 ways\\n0.5 splits'
    >>> short("ensemble(uniform, draws=8)")
    'uniform\\n8 draws at once'
    >>> short("stochastok(alpha=0.1) → canonical")  # fine-tuned after pre-training
    'stochastok\\n0.1 →\\ncanonical'
    """
    if " → " in spec:
        return " →\n".join(short(part) for part in spec.split(" → "))
    name = family(spec)
    if name == "ensemble":
        scheme, _, draws = spec[len("ensemble(") : -1].rpartition(", draws=")
        return f"{short(scheme)}\n{draws} draws at once"
    if name == "adversarial":
        attack = AttackSettings.parse(spec)
        start = "" if attack.start == "canonical" else f", {attack.start}"
        return f"adversarial\nd = {', '.join(map(str, attack.distances))}{start}"
    title = name if len(name) <= _LONGEST else name.replace("-", "-\n", 1)
    return "\n".join([title, *_settings(spec)])


def _settings(spec: str) -> list[str]:
    """The numbers and words of a spec: the strength first, any other number with its name."""
    scheme = find_scheme(family(spec))
    if scheme is None:
        return []
    named = splits_in(spec) is not None  # by its measured strength, which is no parameter
    params = read_call(spec).params if named else Spec.parse(spec).params
    values = []
    for name, value in params.items():
        if isinstance(value, str):
            values.append(value)
        elif named and name == "splits":
            values.append(f"{show(value)} splits")
        elif isinstance(scheme.parameters[name], Number):
            plain = name == scheme.strength or len(params) == 1
            values.append(show(value) if plain else f"{show(value)} {name}")
    return values


def _one_line(text: str) -> str:
    return text.replace("-\n", "-").replace("\n", " ")
