"""Heat maps of accuracy: schemes by training strength where a study has such a grid, as the paper
draws them; else models by evaluation scheme. A panel for each task or pre-training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from robustok.report.drawing import new_figure
from robustok.report.names import Place, one_line, panel_title, place_of, short
from robustok.report.table import Results, splits_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTHS = {False: 8.2, True: 4.4}  # inches
_CELL = 0.62, 0.34  # inches
_NOT_RUN = "#f1f3f5"


class Panel(NamedTuple):
    """One heat map: accuracies in percent [rows, columns], not a number where not measured.

    `empty` are the cells that are no model, such as canonical training at a strength.
    """

    title: str
    rows: list[str]
    columns: list[str]
    values: list[list[float]]
    empty: set[tuple[int, int]]


def draw_heatmap(results: Results, narrow: bool) -> Figure:
    """Accuracy of every model under every evaluation scheme, in one panel or several."""
    grid = grid_of(results)
    panels = _by_strength(results, grid) if grid else _by_query(results, narrow)
    labels = 0.085 * max(len(name) for name in panels[0].rows) + 0.3
    one = max(len(panels[0].columns) * _CELL[0], 1.2)
    fitting = int((_WIDTHS[narrow] - labels) // (one + 0.15))
    # The evaluation schemes of one task or pre-training start a line of panels.
    chunk = len(panels) // len(results.panels)
    chunk = chunk if chunk > 1 else len(panels)
    columns = max(1, min(chunk, fitting))
    columns = -(-chunk // -(-chunk // columns))  # lines of equal length
    chunks = [panels[at : at + chunk] for at in range(0, len(panels), chunk)]
    lines = [part[at : at + columns] for part in chunks for at in range(0, len(part), columns)]
    heads = max(name.count("\n") + 1 for name in panels[0].columns)
    heads_and_title = 0.17 * heads + (0.3 if any(panel.title for panel in panels) else 0.1)
    height = len(panels[0].rows) * _CELL[1] + heads_and_title + 0.15
    width = _WIDTHS[narrow] if columns > 1 else min(_WIDTHS[narrow], labels + max(one, 3.2) + 0.4)
    figure, axes = new_figure((width, 0.2 + height * len(lines)), len(lines), columns)
    for number, line in enumerate(lines):
        row = axes[number * columns : (number + 1) * columns]
        for panel, place in zip(line, row, strict=False):
            _draw(place, panel)
        for place in row[len(line) :]:
            place.set_visible(False)
    return figure


class Grid(NamedTuple):
    """The schemes and training strengths of a study that crosses them; None for no strength."""

    schemes: list[str]
    strengths: list[float | None]


def grid_of(results: Results) -> Grid | None:
    """The grid of a study; None where fewer than two schemes were trained at several strengths."""
    places = list(dict.fromkeys(map(place_of, results.bars.values())))
    crossed = Counter(place.scheme for place in places if place.strength is not None)
    if sum(strengths > 1 for strengths in crossed.values()) < 2:
        return None
    values = {place.strength for place in places}
    numbers = sorted(value for value in values if value is not None)
    schemes = list(dict.fromkeys(place.scheme for place in places))
    return Grid(schemes, [*([None] if None in values else []), *numbers])


def columns_of(results: Results) -> list[str]:
    """The evaluation schemes, attacks last; a strength of 0 is the canonical one."""
    plain = [q for q in results.eval_schemes if q == "canonical" or splits_of(q) != 0]
    return [q for q in plain if q not in results.attacks] + results.attacks


def _by_strength(results: Results, grid: Grid) -> list[Panel]:
    """A panel for each task or pre-training and evaluation scheme."""
    schemes, strengths = grid
    heads = ["–" if strength is None else f"{strength:g}" for strength in strengths]
    panels = []
    for panel in results.panels:
        bars = {place_of(results.bars[train]): train for train in results.inside(panel)}
        for query in columns_of(results):
            values = [
                [_accuracy(results, bars.get(Place(scheme, s)), query) for s in strengths]
                for scheme in schemes
            ]
            empty = {
                (y, x)
                for y, scheme in enumerate(schemes)
                for x, s in enumerate(strengths)
                if Place(scheme, s) not in bars
            }
            title = panel_title(panel, one_line(short(query)))
            panels.append(Panel(title, schemes, heads, values, empty))
    return panels


def _by_query(results: Results, narrow: bool) -> list[Panel]:
    """A panel for each task or pre-training: a row a model, a column an evaluation scheme."""
    queries, bars = columns_of(results), list(dict.fromkeys(results.bars.values()))
    rows = [one_line(short(bar)) for bar in bars]
    heads = [short(query) for query in queries]
    panels = []
    for panel in results.panels:
        trains = {results.bars[train]: train for train in results.inside(panel)}
        values = [[_accuracy(results, trains.get(bar), query) for query in queries] for bar in bars]
        empty = {(y, x) for y, bar in enumerate(bars) for x in range(len(queries))
                 if bar not in trains}  # fmt: skip
        title = panel_title(panel)
        if narrow and len(queries) > 4:
            turned = [list(column) for column in zip(*values, strict=True)]
            swapped = {(x, y) for y, x in empty}
            panels.append(
                Panel(
                    title, [one_line(h) for h in heads], [short(b) for b in bars], turned, swapped
                )
            )
        else:
            panels.append(Panel(title, rows, heads, values, empty))
    return panels


def _accuracy(results: Results, train: str | None, query: str) -> float:
    row = results.get(train, query)
    return 100 * row["accuracy"] if row else float("nan")


def _draw(axes: Axes, panel: Panel) -> None:
    axes.set_facecolor("white")
    axes.imshow(panel.values, cmap="cividis", vmin=0, vmax=100, aspect="auto")
    for y, line in enumerate(panel.values):
        for x, value in enumerate(line):
            if value == value:
                color = "black" if value > 55 else "white"
                axes.text(x, y, f"{value:.1f}", ha="center", va="center", color=color, fontsize=9)
            elif (y, x) not in panel.empty:
                axes.axhspan(y - 0.5, y + 0.5, *_span(x, panel), color=_NOT_RUN, linewidth=0)
                axes.text(x, y, "not run", ha="center", va="center", color="#52606d", fontsize=7)
    _separate(axes, panel.rows, panel.columns)
    axes.set_xticks(range(len(panel.columns)), panel.columns)
    axes.set_yticks(range(len(panel.rows)), panel.rows)
    axes.xaxis.tick_top()
    axes.tick_params(axis="x", labelsize=8.5)
    axes.tick_params(axis="y", labelsize=9)
    axes.spines[:].set_visible(False)
    if panel.title:
        axes.set_title(panel.title, fontsize=9.5)


def _span(x: int, panel: Panel) -> tuple[float, float]:
    return x / len(panel.columns), (x + 1) / len(panel.columns)


def _separate(axes: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    for edge in range(1, len(rows)):
        axes.axhline(edge - 0.5, color="white", linewidth=2)
    for edge in range(1, len(columns)):
        axes.axvline(edge - 0.5, color="white", linewidth=2)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
