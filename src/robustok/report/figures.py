"""The figures of a study: accuracy as bars by strength and under attack, and as heat maps.

Each is drawn from the results and written as PNG, SVG and CSV, once wide and, for the page on a
phone, once narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from robustok.report.frame import Results, Row, bounds, nominal_splits, percent
from robustok.report.page import Section, Table
from robustok.report.style import (
    GRID,
    INK,
    MUTED,
    colors,
    draw_line,
    figure_style,
    grouped,
    label_axes,
    new_figure,
    one_line,
    panel_title,
    percent_axis,
    save_all,
    saved,
    short,
)
from robustok.report.tables import pivot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CSV_FIELDS = (
    "name", "eval_scheme", "accuracy", "low", "high", "n", "draws", "splits", "distance",
    "length_ratio", "seeds", "seconds",
)  # fmt: skip
_WIDTHS = {False: 8.2, True: 4.4}  # inches, of a wide and of a narrow figure
_BAR_HEIGHTS = {False: 4.3, True: 5.4}
_ACROSS = 3  # panels of bars in a row
_CELL = 0.62, 0.34  # inches, of a heat map
_NOT_RUN = "#f1f3f5"
SPLITS_AXIS = "measured splits per canonical token of the questions  →"
_MANY = 3  # panels of a heat map; of more, a row is a panel and a panel a model
_TITLES = {  # and captions
    "teaser": (
        "Accuracy by the strength of the perturbation",
        "One bar a model, one group of bars a strength, with 95% intervals. The axis is the number "
        "of splits per canonical token, where it was measured; α is the parameter of the scheme "
        "that gave them. At α = 0 the questions have their canonical tokenization.",
    ),
    "attacks": (
        "Accuracy under attack",
        "One bar a model or a training scheme, with 95% intervals. An attack searches the "
        "tokenizations of a question for one that the model answers wrongly.",
    ),
    "heatmap": (
        "Accuracy of every model under every evaluation scheme",
        "In percent. Where schemes were trained at several strengths, a panel is an evaluation "
        "scheme, a row a training scheme and a column its strength; otherwise a row is a model. Of "
        "more than three tasks a panel is a model and a row a task.",
    ),
}


def accuracy_figures(results: Results, folder: Path) -> list[Section]:
    """Bars by the strength of the perturbation and under each attack, and heat maps of all."""
    if results.frame.empty:
        return []
    figures: list[tuple[str, list[str], Callable[[bool], Figure]]] = []
    strengths = [scheme for _, scheme in results.splits()]
    if len(strengths) > 1:
        figures.append(("teaser", strengths, partial(draw_bars, strength_panels(results))))
    if results.attacks:
        schemes = ["canonical", *results.attacks]
        figures.append(("attacks", schemes, partial(draw_bars, under_attack(results))))
    figures.append(("heatmap", results.eval_schemes, partial(draw_heatmap, results)))
    return [
        with_figure(
            Section(name, *_TITLES[name]), folder, draw,
            [row for row in results.rows if row["eval_scheme"] in schemes],
        )
        for name, schemes, draw in figures
    ]  # fmt: skip


def with_figure(
    section: Section,
    folder: Path,
    draw: Callable[[bool], Figure],
    rows: Sequence[Row] | None = None,
) -> Section:
    """The section with its figure: PNG and SVG, the rows as CSV, and the narrow one as text."""
    stem = folder / section.name
    with figure_style():
        wide, narrow = draw(False), draw(True)
        save_all(wide, stem, rows, CSV_FIELDS)
        return section._replace(figure=stem, narrow=saved(narrow, "svg").decode())


def learning_curve(rows: Sequence[Row]) -> list[Row]:
    """Accuracies by training scheme, evaluation scheme and step, seeds merged; the last step too.

    Without rows of models kept on the way there is no curve.
    """

    def curve(row: Row) -> tuple[Any, ...]:
        names = "study", "scale", "pretrain_scheme", "train_scheme", "eval_scheme", "task"
        return tuple(row.get(name) for name in names)

    curves = {curve(row) for row in rows if "step" in row}
    by_step: dict[int, list[Row]] = {}
    for row in rows:
        if "accuracy" in row and curve(row) in curves:
            model = row["configuration"]["inputs"]["model"]
            step = row["step"] if "step" in row else model["options"]["steps"]
            finished = {name: value for name, value in row.items() if name != "step"}
            by_step.setdefault(step, []).append(finished)
    return [row | {"step": step} for step in sorted(by_step) for row in Results(by_step[step]).rows]


def learning_section(rows: Sequence[Row], folder: Path) -> Section | None:
    """Accuracy by step, a panel and a table an evaluation scheme, a line a training scheme."""
    points = learning_curve(rows)
    if not points:
        return None
    panels = grouped(points, "eval_scheme")
    names = [*grouped(points, "name")]
    colored = dict(zip(names, colors(names), strict=True))
    steps = sorted({row["step"] for row in points})
    with figure_style():
        figure, axes = new_figure((4.1 * len(panels), 3.6), columns=len(panels))
        for panel, (scheme, own) in zip(axes, panels.items(), strict=True):
            for name, line in grouped(own, "name").items():
                draw_line(
                    panel, line, "step", "accuracy", scale=100, color=colored[name], shade=0.12,
                    marker="o", markersize=4, linewidth=1.7, label=name,
                )  # fmt: skip
            panel.axhline(100 * own[0]["chance"], color=MUTED, linewidth=0.8, label="chance")
            label_axes(panel, "steps of fine-tuning", "", title=f"{scheme} questions")
            percent_axis(panel)
            if len(steps) <= 10:
                panel.set_xticks(steps)
        axes[0].set_ylabel("accuracy")
        lines, labels = axes[0].get_legend_handles_labels()
        figure.legend(lines, labels, fontsize="small", loc="outside upper left", ncols=3)
        save_all(figure, folder / "learning", points, ("step", *CSV_FIELDS))
    return Section(
        "learning",
        "Accuracy by the steps of fine-tuning",
        "One line for each training scheme, with 95% intervals.",
        [_step_table(scheme, own) for scheme, own in panels.items()],
        folder / "learning",
    )


def _step_table(scheme: str, points: Sequence[Row]) -> Table:
    """Accuracy on one kind of questions: a line a training scheme, a column a step."""
    frame = pd.DataFrame(points)
    frame["after"] = [f"{step:,} steps" for step in frame["step"]]
    frame["text"] = [f"{percent(row['accuracy'])} {bounds(row)}" for row in points]
    return pivot(frame, "name", "after", f"{scheme} questions, after", "")


@dataclass(frozen=True)
class Panel:
    """One plot: bars in groups, or a heat map with a line a series and a column a group.

    ``series`` and ``groups`` hold the names by their keys, ``cells`` the row of results of a series
    and a group: None where it was not run, and nothing where there is no such model. ``colors`` are
    those of the series.
    """

    title: str
    series: dict[str, str]
    groups: dict[str, str]
    cells: dict[tuple[str, str], Row | None]
    colors: dict[str, str]
    axis: str = ""

    def transposed(self, series: dict[str, str], groups: dict[str, str]) -> Panel:
        """Lines and columns exchanged, with these names."""
        cells = {(head, key): row for (key, head), row in self.cells.items()}
        return Panel(self.title, series, groups, cells, self.colors)


def _panel_of(
    results: Results, title: str, rows: Iterable[Row], by: str, series: dict[str, str],
    groups: dict[str, str], axis: str = "",
) -> Panel:  # fmt: skip
    """Rows by a field, whose values ``series`` names, and by evaluation scheme (``groups``)."""
    measured = {(row[by], row["eval_scheme"]): row for row in rows}
    cells = {cell: measured.get(cell) for cell in product({key for key, _ in measured}, groups)}
    tints = results.colors if by == "bar" else dict.fromkeys(series, INK)
    return Panel(title, series, groups, cells, tints, axis)


def _grid_of(results: Results) -> tuple[list[str], list[str]] | None:
    """The schemes of a study that crosses them with training strengths, and the strengths.

    The first strength is empty where a scheme has none. None where fewer than two schemes were
    trained at several strengths.
    """
    trained = results.frame.drop_duplicates("bar")
    crossed = trained[trained["strength"] != ""].groupby("scheme")["strength"].nunique()
    if (crossed > 1).sum() < 2:
        return None
    strengths = sorted(set(trained["strength"]), key=lambda strength: float(strength or "-inf"))
    return list(dict.fromkeys(trained["scheme"])), strengths


def _grid_panels(results: Results, eval_schemes: Iterable[str], none: str) -> list[Panel]:
    """A panel for each task or pre-training and evaluation scheme; none without a grid.

    A series is a training scheme and a group its strength; ``none`` names that of no strength.
    """
    schemes, strengths = _grid_of(results) or ([], [])
    series, groups = {s: s for s in schemes}, {s: s or none for s in strengths}
    tints = dict(zip(schemes, colors(schemes), strict=True))
    panels = []
    for (panel, rows), eval_scheme in product(
        results.panels.items(), eval_schemes if schemes else ()
    ):
        own = {(row["scheme"], row["strength"], row["eval_scheme"]): row for row in rows}
        cells = {key[:2]: own.get((*key[:2], eval_scheme)) for key in own}
        title = panel_title(panel, one_line(short(eval_scheme)))
        panels.append(Panel(title, series, groups, cells, tints, "strength of training  →"))
    return panels


def strength_panels(results: Results) -> list[Panel]:
    """A group for each strength of the questions, a bar for each model.

    A panel for each task or pre-training. Where schemes are crossed with training strengths, each
    scheme has a panel too, with the models of no strength in all of them.
    """
    schemes, _ = _grid_of(results) or ([], [])
    panels = []
    for panel, own in results.panels.items():
        groups, axis = _strength_axis(results, panel)
        crossed = {row["scheme"] for row in own if row["strength"]}
        for scheme in [s for s in schemes if s in crossed] if schemes else [None]:
            rows = [r for r in own if scheme is None or not r["strength"] or r["scheme"] == scheme]
            bars = {row["bar"]: row["bar"] for row in rows}
            title = panel_title(panel, scheme or "")
            panels.append(_panel_of(results, title, rows, "bar", bars, groups, axis))
    return panels


def _strength_axis(results: Results, panel: str) -> tuple[dict[str, str], str]:
    """The names of the groups of a panel by evaluation scheme, and the label of its axis.

    A strength is the mean of the measured splits over the panel's models, where all were measured.
    Alpha is not this number: picks that cannot split are spent.
    """
    own = results.frame[results.frame["panel"] == panel]
    means = own.groupby("eval_scheme")["splits"].agg(lambda splits: splits.mean(skipna=False))
    strengths = {scheme: (x, float(means.get(scheme, np.nan))) for x, scheme in results.splits()}
    if any(np.isnan(mean) for _, mean in strengths.values()):
        groups = {scheme: f"{x:g}" for scheme, (x, _) in strengths.items()}
        return groups, "α of the scheme of the questions  →"
    groups = {scheme: f"{mean:.2f}\nα {x:g}" for scheme, (x, mean) in strengths.items()}
    return groups, SPLITS_AXIS


def under_attack(results: Results) -> list[Panel]:
    """A panel for each attack: a group for each training strength, a bar for each scheme.

    Without such a grid one panel for each task or pre-training: a group for each attack, a bar for
    each model.
    """
    groups = {scheme: short(scheme) for scheme in ("canonical", *results.attacks)}
    bars = {bar: bar for bar in results.colors}
    return _grid_panels(results, results.attacks, "no strength") or [
        _panel_of(results, panel_title(panel), own, "bar", bars, groups)
        for panel, own in results.panels.items()
    ]


def draw_bars(panels: list[Panel], narrow: bool) -> Figure:
    """Draw the panels under one legend."""
    columns = 1 if narrow else min(len(panels), _ACROSS)
    rows = -(-len(panels) // columns)
    height = _BAR_HEIGHTS[narrow]
    size = _WIDTHS[narrow], height if rows == 1 else 1.0 + (0.6 if narrow else 0.55) * height * rows
    figure, axes = new_figure(size, rows, columns)
    for place in axes[len(panels) :]:
        place.set_axis_off()
    drawn: dict[str, Any] = {}
    for number, (panel, place) in enumerate(zip(panels, axes, strict=False)):
        _draw_bar_panel(place, panel, number % columns == columns - 1 or number == len(panels) - 1)
        if number % columns == 0:
            place.set_ylabel("accuracy" if rows > 1 else "accuracy on held-out questions")
        handles, labels = place.get_legend_handles_labels()
        drawn |= {label: drawn.get(label, h) for label, h in zip(labels, handles, strict=True)}
    figure.supxlabel(panels[0].axis, fontsize=10, color=MUTED)
    longest = max(len(label) for label in drawn) + 6
    figure.legend(
        drawn.values(), drawn.keys(), loc="outside upper left",
        ncols=1 if narrow else max(1, min(4, len(drawn), 110 // longest)),
        handlelength=1, handleheight=1, columnspacing=1.6, fontsize=9,
    )  # fmt: skip
    return figure


def _draw_bar_panel(axes: Axes, panel: Panel, last: bool) -> None:
    groups = [
        [(key, row) for key in panel.series if (row := panel.cells.get((key, group)))]
        for group in panel.groups
    ]
    # A group with fewer bars than another one stays centered.
    width = 0.8 / max(*map(len, groups), 1)
    labeled: set[str] = set()
    for at, group in enumerate(groups):
        for i, (key, row) in enumerate(group):
            below, above = row["accuracy"] - row["low"], row["high"] - row["accuracy"]
            axes.bar(
                at + (i - (len(group) - 1) / 2) * width, 100 * row["accuracy"], width * 0.88,
                color=panel.colors[key], yerr=[[100 * below], [100 * above]],
                label="_" if key in labeled else panel.series[key],
                error_kw={"ecolor": INK, "elinewidth": 0.9, "capsize": 0, "alpha": 0.75},
            )  # fmt: skip
            labeled.add(key)
    _draw_chance(axes, groups, last)
    axes.set_xticks(range(len(groups)), [*panel.groups.values()], fontsize=9)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.set_title(panel.title, fontsize=9.5)
    percent_axis(axes)
    axes.grid(True, axis="y")
    axes.spines["bottom"].set_color(GRID)


def _draw_chance(axes: Axes, groups: Sequence[Sequence[tuple[str, Row]]], labeled: bool) -> None:
    """A line at the accuracy of a guess.

    It differs between numbers of questions. Where it does by more than three points, as between all
    questions of CUTE and the attacked ones, each group has the line of its own questions.
    """
    known = [(at, [100 * row["chance"] for _, row in group if row["chance"] >= 0])
             for at, group in enumerate(groups)]  # fmt: skip
    known = [(at, chances) for at, chances in known if chances]
    if not known:
        return
    every = np.concatenate([chances for _, chances in known])
    style: Any = {"color": MUTED, "linewidth": 1, "linestyle": (0, (4, 3)), "zorder": 3}
    if np.ptp(every) <= 3:
        last = every.mean()
        axes.axhline(last, **style)
    else:
        for at, chances in known:
            last = np.mean(chances)
            axes.hlines(last, at - 0.5, at + 0.5, **style)
    if labeled:
        axes.annotate(
            "chance", (1, last), xycoords=("axes fraction", "data"), xytext=(4, 0),
            textcoords="offset points", va="center", fontsize=8.5, color=MUTED,
            annotation_clip=False,
        )  # fmt: skip


def heat_panels(results: Results, narrow: bool) -> list[Panel]:
    """The heat maps of a study, in reading order.

    Where schemes are crossed with training strengths, as the paper draws them, a panel is a task or
    pre-training and an evaluation scheme, a row a scheme and a column its strength. Otherwise a
    panel is a task or pre-training, a row a model and a column an evaluation scheme. Of many tasks
    a panel is a model, and a row a task.
    """
    schemes = [s for s in results.eval_schemes if s == "canonical" or nominal_splits(s) != 0]
    drawn = [s for s in schemes if s not in results.attacks]  # 0 splits are canonical
    heads = {scheme: short(scheme) for scheme in (*drawn, *results.attacks)}
    if panels := _grid_panels(results, heads, "–"):
        return panels
    by, across, titles = "bar", "panel", {panel: panel_title(panel) for panel in results.panels}
    names = {bar: one_line(short(bar)) for bar in results.colors}
    if len(results.panels) > _MANY:
        by, across, titles = "panel", "bar", names
        names = {panel: one_line(panel_title(panel)) for panel in results.panels}
    panels = [
        _panel_of(results, titles[key], own, by, names, heads)
        for key, own in grouped(results.rows, across).items()
    ]
    if narrow and len(heads) > 4 and by == "bar":
        lines = {scheme: one_line(head) for scheme, head in heads.items()}
        bars = {bar: short(bar) for bar in results.colors}
        return [panel.transposed(lines, bars) for panel in panels]
    return panels


def draw_heatmap(results: Results, narrow: bool) -> Figure:
    """Accuracy of every model under every evaluation scheme, in one panel or several."""
    panels = heat_panels(results, narrow)
    rows, heads = [*panels[0].series.values()], [*panels[0].groups.values()]
    labels = 0.085 * max(map(len, rows)) + 0.3
    one = max(len(heads) * _CELL[0], 1.2)
    fitting = int((_WIDTHS[narrow] - labels) // (one + 0.15))
    # The evaluation schemes of one task or pre-training start a line of panels.
    chunk = len(panels) // len(results.panels) if _grid_of(results) else len(panels)
    columns = max(1, min(chunk, fitting))
    columns = -(-chunk // -(-chunk // columns))  # lines of equal length
    chunks = [panels[at : at + chunk] for at in range(0, len(panels), chunk)]
    lines = [part[at : at + columns] for part in chunks for at in range(0, len(part), columns)]
    head_lines = max(name.count("\n") + 1 for name in heads)
    title_lines = max(panel.title.count("\n") + 1 if panel.title else 0 for panel in panels)
    height = len(rows) * _CELL[1] + 0.17 * head_lines + 0.2 * title_lines + 0.25
    width = _WIDTHS[narrow] if columns > 1 else min(_WIDTHS[narrow], labels + max(one, 3.2) + 0.4)
    figure, axes = new_figure((width, 0.2 + height * len(lines)), len(lines), columns)
    for number, line in enumerate(lines):
        places = axes[number * columns : (number + 1) * columns]
        for panel, place in zip(line, places, strict=False):
            _draw_heat_panel(place, panel)
        for place in places[len(line) :]:
            place.set_visible(False)
    return figure


def _draw_heat_panel(axes: Axes, panel: Panel) -> None:
    rows, columns = len(panel.series), len(panel.groups)
    values = np.full((rows, columns), np.nan)
    for (y, key), (x, head) in product(enumerate(panel.series), enumerate(panel.groups)):
        if row := panel.cells.get((key, head)):
            value = values[y, x] = 100 * row["accuracy"]
            color = "black" if value > 55 else "white"
            axes.text(x, y, f"{value:.1f}", ha="center", va="center", color=color, fontsize=9)
        elif (key, head) in panel.cells:
            span = x / columns, (x + 1) / columns
            axes.axhspan(y - 0.5, y + 0.5, *span, color=_NOT_RUN, linewidth=0)
            axes.text(x, y, "not run", ha="center", va="center", color=MUTED, fontsize=7)
    axes.set_facecolor("white")
    axes.imshow(values, cmap="cividis", vmin=0, vmax=100, aspect="auto")
    for edge in range(1, rows):
        axes.axhline(edge - 0.5, color="white", linewidth=2)
    for edge in range(1, columns):
        axes.axvline(edge - 0.5, color="white", linewidth=2)
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    axes.set_xticks(range(columns), [*panel.groups.values()], fontsize=8.5)
    axes.set_yticks(range(rows), [*panel.series.values()], fontsize=9)
    axes.xaxis.tick_top()
    axes.spines[:].set_visible(False)
    axes.set_title(panel.title, fontsize=9.5)
