"""Bar plots of accuracy with 95% intervals: by strength of the questions, and under attack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from robustok.report.drawing import new_figure
from robustok.report.heatmaps import grid_of
from robustok.report.names import Place, one_line, panel_title, place_of, short
from robustok.report.style import GRID, INK, MUTED, colors
from robustok.report.table import Results, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE, NARROW = (8.2, 4.3), (4.4, 5.4)
ACROSS = 3  # panels in a row
_AXES = {
    True: "measured splits per canonical token of the questions  →",
    False: "α of the scheme of the questions  →",
}


class Series(NamedTuple):
    """One bar in every group: its row of results, or None where there is none."""

    label: str
    color: str
    rows: list[Row | None]


class Panel(NamedTuple):
    """A plot of groups of bars."""

    title: str
    axis: str
    groups: list[str]
    series: list[Series]


def by_strength(results: Results) -> list[Panel]:
    """A group for each strength of the questions, a bar for each model.

    A panel for each task or pre-training. Where schemes are crossed with training strengths, each
    scheme has a panel too, with the models of no strength in all of them.
    """
    measured = measured_splits(results)
    axis = _AXES[all(splits is not None for splits in measured)]
    groups = [
        f"{x:g}" if splits is None else f"{splits:.2f}\nα = {x:g}"
        for (x, _), splits in zip(results.splits(), measured, strict=True)
    ]
    queries = [query for _, query in results.splits()]
    grid = grid_of(results)
    panels = []
    for panel in results.panels:
        trains = results.inside(panel)
        for scheme in _schemes(trains, results) if grid else [None]:
            shown = [t for t in trains if scheme is None or _belongs(results.bars[t], scheme)]
            series = [
                Series(results.bars[t], results.colors[t], [results.get(t, q) for q in queries])
                for t in shown
            ]
            panels.append(Panel(panel_title(panel, scheme or ""), axis, groups, series))
    return panels


def _schemes(trains: list[str], results: Results) -> list[str | None]:
    places = [place_of(results.bars[train]) for train in trains]
    return list(dict.fromkeys(place.scheme for place in places if place.strength is not None))


def _belongs(bar: str, scheme: str) -> bool:
    place = place_of(bar)
    return place.strength is None or place.scheme == scheme


def under_attack(results: Results) -> list[Panel]:
    """A panel for each attack: a group for each training strength, a bar for each scheme.

    Without such a grid one panel for each task or pre-training: a group for each attack, a bar for
    each model.
    """
    grid = grid_of(results)
    if grid is None:
        queries = ["canonical", *results.attacks]
        return [
            Panel(
                panel_title(panel),
                "",
                [short(query) for query in queries],
                [
                    Series(results.bars[t], results.colors[t], [results.get(t, q) for q in queries])
                    for t in results.inside(panel)
                ],
            )
            for panel in results.panels
        ]
    schemes, strengths = grid
    tints = dict(zip(schemes, colors(schemes), strict=True))
    groups = ["no strength" if s is None else f"{s:g}" for s in strengths]
    panels = []
    for panel in results.panels:
        trains = {place_of(results.bars[train]): train for train in results.inside(panel)}
        for query in results.attacks:
            series = [
                Series(
                    scheme,
                    tints[scheme],
                    [results.get(trains.get(Place(scheme, s)), query) for s in strengths],
                )
                for scheme in schemes
            ]
            title = panel_title(panel, one_line(short(query)))
            panels.append(Panel(title, "strength of training  →", groups, series))
    return panels


def draw_bars(panels: list[Panel], narrow: bool) -> Figure:
    """Draw the panels under one legend."""
    columns = 1 if narrow else min(len(panels), ACROSS)
    rows = -(-len(panels) // columns)
    width, height = NARROW if narrow else WIDE
    size = width, height if rows == 1 else 1.0 + (0.6 if narrow else 0.55) * height * rows
    figure, axes = new_figure(size, rows, columns)
    for place in axes[len(panels) :]:
        place.set_axis_off()
    drawn: dict[str, Any] = {}
    for number, (panel, place) in enumerate(zip(panels, axes, strict=False)):
        last = number % columns == columns - 1
        _draw_panel(place, panel, last)
        if number % columns == 0:
            place.set_ylabel("accuracy" if rows > 1 else "accuracy on held-out questions")
        handles, labels = place.get_legend_handles_labels()
        drawn |= {label: drawn.get(label, h) for label, h in zip(labels, handles, strict=True)}
    figure.supxlabel(panels[0].axis, fontsize=10, color=MUTED)
    figure.legend(
        drawn.values(), drawn.keys(), loc="outside upper left",
        ncols=1 if narrow else _legend_columns(list(drawn)),
        handlelength=1, handleheight=1, columnspacing=1.6, fontsize=9,
    )  # fmt: skip
    return figure


def _legend_columns(labels: list[str]) -> int:
    """As many columns as fit the width, about 100 characters."""
    longest = max(len(label) for label in labels) + 6
    return max(1, min(4, len(labels), 110 // longest))


def _draw_panel(axes: Axes, panel: Panel, last: bool) -> None:
    groups = [
        [(series, row) for series in panel.series if (row := series.rows[at]) is not None]
        for at in range(len(panel.groups))
    ]
    # A group with fewer bars than another one stays centered.
    width = 0.8 / max(*map(len, groups), 1)
    labeled: set[str] = set()
    for at, group in enumerate(groups):
        for i, (series, row) in enumerate(group):
            below, above = row["accuracy"] - row["low"], row["high"] - row["accuracy"]
            axes.bar(
                at + (i - (len(group) - 1) / 2) * width, 100 * row["accuracy"], width * 0.88,
                color=series.color, yerr=[[100 * below], [100 * above]],
                label="_" if series.label in labeled else series.label,
                error_kw={"ecolor": INK, "elinewidth": 0.9, "capsize": 0, "alpha": 0.75},
            )  # fmt: skip
            labeled.add(series.label)
    _draw_chance(axes, [row for group in groups for _, row in group], last)
    axes.set_xticks(range(len(panel.groups)), panel.groups, fontsize=9)
    axes.set_xlim(-0.6, len(panel.groups) - 0.4)
    if panel.title:
        axes.set_title(panel.title, fontsize=9.5)
    axes.set_ylim(0, 100)
    axes.set_yticks(range(0, 101, 20), [f"{y}%" for y in range(0, 101, 20)])
    axes.grid(True, axis="y")
    axes.spines["bottom"].set_color(GRID)


def _draw_chance(axes: Axes, rows: list[Row], labeled: bool) -> None:
    """A line at the accuracy of a guess, which differs a little between numbers of questions."""
    chances = [100 * row["chance"] for row in rows if "chance" in row]
    if not chances or max(chances) - min(chances) > 3:
        return
    chance = sum(chances) / len(chances)
    axes.axhline(chance, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=3)
    if labeled:
        axes.annotate(
            "chance", (1, chance), xycoords=("axes fraction", "data"), xytext=(4, 0),
            textcoords="offset points", va="center", fontsize=8.5, color=MUTED,
            annotation_clip=False,
        )  # fmt: skip


def measured_splits(results: Results) -> list[float | None]:
    """The mean splits per canonical token of the questions, for each scheme on the axis.

    >>> rows = [{"train": "canonical", "query": "stochastok(alpha=3)", "splits": 1.28}]
    >>> measured_splits(Results(rows))
    [1.28]

    None for a scheme that a release before measured splits evaluated. Alpha is not this number:
    picks that cannot split are spent.
    """
    means: list[float | None] = []
    for _, query in results.splits():
        rows = [row for row in results.rows if row["query"] == query]
        known = all("splits" in row for row in rows)
        means.append(sum(row["splits"] for row in rows) / len(rows) if known else None)
    return means
