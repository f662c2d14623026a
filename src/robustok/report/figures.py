"""The figures of a study: accuracies as bars and heat maps, and what was measured by layer or step.

Each is written as PNG, SVG and CSV, in one width that is legible on a phone and on a screen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice, pairwise, product
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.report.frame import (
    DataFrame,
    Results,
    entries_of,
    merged_layers,
    nominal_splits,
    rows_with,
)
from robustok.report.page import Section, Table
from robustok.report.style import (
    DASHES,
    GRID,
    INK,
    MARKERS,
    MUTED,
    WIDTH,
    Row,
    colors,
    draw_line,
    figure_style,
    grouped,
    legend_above,
    legend_key,
    new_figure,
    note_below,
    one_line,
    panel_title,
    percent_axis,
    plain,
    save_all,
    short,
)
from robustok.report.tables import compared, pivot
from robustok.runtime.display import counted
from robustok.runtime.files import JsonObject
from robustok.study.measurements.bound import power_of_ten
from robustok.study.run import measurement_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIELDS = (
    "name", "eval_scheme", "accuracy", "low", "high", "n", "draws", "splits", "distance",
    "length_ratio", "seeds", "seconds",
)  # fmt: skip
_ACROSS = 2  # panels beside each other
_CELL = 0.55, 0.34  # inches, of a heat map
_NAME = 30  # characters of a line of a name beside it
_LETTER = 0.072  # inches, of the name of a group
_HEAD_LETTER = 0.055  # inches, of the name of a column
_NOT_RUN = "#f1f3f5"
SPLITS_AXIS = "measured splits per canonical token of the questions  →"
_STRENGTH = "strength of training  →"
_CHANCE: Any = {"color": MUTED, "linewidth": 1, "linestyle": (0, (4, 3)), "label": "chance"}
_DASHES = {"sampled": DASHES[0], "adversarial": DASHES[1]}  # of measured changes, by their kind
_NAMES = {"sampled": "solid: drawn", "adversarial": "dashed: attacked"}
_GAMMAS = {"log10_gamma_theorem": "γ theorem", "log10_gamma_proof": "γ proof"}
_CHANGE = ["model", "kind", "depth", "mean", "p95", "max"]
_MEASURED = {"sampled": "change, drawn", "adversarial": "change, attacked"}
_MANY = 3  # panels of a heat map; of more, a row is a panel and each panel is of one model


def strength_section(results: Results, folder: Path) -> Section | None:
    """Bars by the strength of the perturbation; None with one strength alone."""
    strengths = [scheme for _, scheme in results.splits()]
    if len(strengths) < 2:
        return None
    panels = strength_panels(results)
    figure = _saved(draw_bars(panels), results, strengths, folder / "teaser")
    return Section(
        "teaser",
        "Accuracy by the strength of the perturbation",
        "One bar a model, one group of bars a strength, with 95% intervals. The axis is the number "
        "of splits per canonical token, where it was measured; α is the parameter of the scheme "
        "that gave them. At α = 0 the questions have their canonical tokenization.",
        figure=figure,
    )


def attack_section(results: Results, folder: Path) -> Section | None:
    """Bars under each attack; None without one."""
    if not results.attacks:
        return None
    schemes = ["canonical", *results.attacks]
    figure = _saved(draw_bars(attack_panels(results)), results, schemes, folder / "attacks")
    return Section(
        "attacks",
        "Accuracy under attack",
        "One bar a model or a training scheme, with 95% intervals. An attack searches the "
        "tokenizations of a question for one that the model answers wrongly; of several attacks "
        f"the worst of each question is counted, too.{_unsearched(results)}",
        figure=figure,
    )


def _unsearched(results: Results) -> str:
    """A sentence on second ids that no attack tried, or nothing."""
    counts = {row.get("unsearched_ids", 0) for row in results.all_rows} - {0}
    text = " or ".join(f"{count:,}" for count in sorted(counts))
    return f" {text} second ids of the vocabulary are not searched." if counts else ""


def heatmap_section(results: Results, folder: Path) -> Section | None:
    """Heat maps of every accuracy; None where a table has all."""
    in_table = len(results.names) == 1 and {*results.eval_schemes} <= {*compared(results)}
    if results.frame.empty or in_table:
        return None
    figure = _saved(draw_heatmap(results), results, results.eval_schemes, folder / "heatmap")
    return Section(
        "heatmap",
        "Accuracy of every model under every evaluation scheme",
        "In percent.",
        figure=figure,
    )


def _saved(figure: Figure, results: Results, eval_schemes: Sequence[str], stem: Path) -> Path:
    """The path of a figure's SVG without the ending, written with the rows that it shows."""
    shown = [row for row in results.rows if row["eval_scheme"] in eval_schemes]
    note_below(figure, facts(shown))
    save_all(figure, stem, shown, FIELDS)
    return stem


def facts(rows: Sequence[Row]) -> str:
    """What the rows of a figure are of: models, questions, seeds, and what marks fewer seeds."""
    seeds = sorted({len(row["seeds"]) for row in rows})
    parts = [_models_text(rows), f"{questions_asked(rows)} questions"]
    several = [count for count in seeds if count > 1]
    parts += [f"{' or '.join(map(str, several))} seeds"] if several else ["one seed"]
    if several and seeds[0] == 1:
        parts.append("hatched or *: one seed, whose interval covers the questions only")
    return " · ".join(parts)


def questions_asked(rows: Iterable[Row]) -> str:
    """The numbers of questions of rows: `150 or 300`, or of three and more `50 to 2,000`."""
    counts = [f"{count:,}" for count in sorted({row["n"] for row in rows if "n" in row})]
    return " or ".join(counts) if len(counts) < 3 else f"{counts[0]} to {counts[-1]}"


def _models_text(rows: Iterable[Row]) -> str:
    """The models of rows by name, as `smollm2-135m, 134.5M or 135.0M parameters`."""
    sizes: dict[str, dict[str, None]] = {}
    for row in rows:
        sizes.setdefault(row["model"] or "random weights", {})[row["size"]] = None
    unit = " parameters"
    known = {
        name: " or ".join(size.removesuffix(unit) for size in own if size)
        for name, own in sizes.items()
    }
    return "; ".join(f"{name}, {size}{unit}" if size else name for name, size in known.items())


def _is_alone(row: Row, panels: Iterable[Panel]) -> bool:
    """Whether a row has one seed, and another one of the figure several."""
    rows = [one for panel in panels for one in panel.cells.values() if one]
    return len(row["seeds"]) == 1 and any(len(one["seeds"]) > 1 for one in rows)


@dataclass(frozen=True)
class Panel:
    """One plot: bars in groups, or a heat map with lines of series and columns of groups.

    ``series`` and ``groups`` hold the names by their keys, ``cells`` the row of results of a series
    and a group: None where it was not run, and nothing where there is no such model. ``colors`` are
    those of the series. ``axis`` says what the groups are, ``lines`` what the series are.
    """

    title: str
    series: dict[str, str]
    groups: dict[str, str]
    cells: dict[tuple[str, str], Row | None]
    colors: dict[str, str]
    axis: str = ""
    lines: str = ""

    def parts(self) -> list[Panel]:
        """The panel with its columns in lines of as many as fit."""
        heads, most = [*self.groups], _columns(self)
        count = -(-len(heads) // most)
        most = -(-len(heads) // count)  # of about equal length
        cut = [heads[first : first + most] for first in range(0, len(heads), most)]
        return [replace(self, groups={head: self.groups[head] for head in part}) for part in cut]

    def without_empty_series(self) -> Panel:
        """The panel without the series of which it has no cell."""
        own = {key for key, _ in self.cells}
        return replace(self, series={key: self.series[key] for key in self.series if key in own})


def _panel_of(
    results: Results,
    title: str,
    rows: Iterable[Row],
    by: str,
    series: dict[str, str],
    groups: dict[str, str],
    axis: str = "",
) -> Panel:
    """Rows by a field, whose values ``series`` names, and by evaluation scheme (``groups``)."""
    measured = {(row[by], row["eval_scheme"]): row for row in rows}
    cells = {cell: measured.get(cell) for cell in product({key for key, _ in measured}, groups)}
    tints = results.colors if by == "spec" else dict.fromkeys(series, INK)
    return Panel(title, series, groups, cells, tints, axis)


def _crossed(results: Results) -> tuple[list[str], list[str]] | None:
    """The schemes and the strengths, "" for none, where two schemes were trained at several."""
    trained = results.frame.drop_duplicates("spec")
    crossed = trained[trained["strength"] != ""].groupby("scheme")["strength"].nunique()
    if (crossed > 1).sum() < 2:
        return None
    strengths = sorted(set(trained["strength"]), key=lambda strength: float(strength or "-inf"))
    return list(dict.fromkeys(trained["scheme"])), strengths


def _crossed_panels(results: Results, eval_schemes: Iterable[str], none: str) -> list[Panel]:
    """A panel for each task or pre-training and evaluation scheme, with a series for each scheme.

    A group is its strength, which ``none`` names where there is none.
    """
    schemes, strengths = _crossed(results) or ([], [])
    series, groups = {s: s for s in schemes}, {s: s or none for s in strengths}
    tints = colors(schemes)
    panels = []
    for (panel, rows), eval_scheme in product(
        results.panels.items(), eval_schemes if schemes else ()
    ):
        own = {(row["scheme"], row["strength"], row["eval_scheme"]): row for row in rows}
        cells = {key[:2]: own.get((*key[:2], eval_scheme)) for key in own}
        title = panel_title(panel, one_line(short(eval_scheme, results.attacks)))
        panels.append(Panel(title, series, groups, cells, tints, _STRENGTH, "training scheme"))
    return panels


def strength_panels(results: Results) -> list[Panel]:
    """A panel for each task or pre-training, with a group for each strength of the questions.

    Schemes that are crossed with strengths have a panel each, with the models of no strength.
    """
    schemes, _ = _crossed(results) or ([], [])
    panels = []
    for panel, own in results.panels.items():
        groups, axis = _strength_axis(results, panel)
        crossed = {row["scheme"] for row in own if row["strength"]}
        for scheme in [s for s in schemes if s in crossed] if schemes else [None]:
            rows = [r for r in own if scheme is None or not r["strength"] or r["scheme"] == scheme]
            bars = {row["spec"]: row["spec"] for row in rows}
            title = panel_title(panel, scheme or "")
            panels.append(_panel_of(results, title, rows, "spec", bars, groups, axis))
    return panels


def _strength_axis(results: Results, panel: tuple[str, ...]) -> tuple[dict[str, str], str]:
    """The names of the groups of a panel by evaluation scheme, and the label of its axis.

    A strength is the mean of the measured splits over the panel's models, else alpha.
    """
    own = results.frame[[one == panel for one in results.frame["panel"]]]
    means = own.groupby("eval_scheme")["splits"].agg(lambda splits: splits.mean(skipna=False))
    known = results.splits()
    strengths = [x for x, _ in known]
    tied = {scheme: short(scheme) for x, scheme in known if strengths.count(x) > 1}
    if any(np.isnan(means.get(scheme, np.nan)) for _, scheme in known):
        groups = {scheme: tied.get(scheme, f"{x:g}") for x, scheme in known}
        return groups, "α of the scheme of the questions  →"
    named = {scheme: tied.get(scheme, f"α {x:g}") for x, scheme in known}
    return {scheme: f"{means[scheme]:.2f}\n{name}" for scheme, name in named.items()}, SPLITS_AXIS


def attack_panels(results: Results) -> list[Panel]:
    """A panel for each attack, with a group for each training strength, where they are crossed.

    Otherwise a panel for each task or pre-training, with a group for each attack.
    """
    known = ("canonical", *results.attacks)
    groups = {one: short(one, known) for one in known if one in results.eval_schemes}
    bars = {bar: bar for bar in results.colors}
    return _crossed_panels(results, results.attacks, "no strength") or [
        _panel_of(results, panel_title(panel), own, "spec", bars, groups)
        for panel, own in results.panels.items()
    ]


@figure_style()
def draw_bars(panels: Sequence[Panel]) -> Figure:
    """The panels under one legend."""
    across = 1 if any(_crowded(panel, _ACROSS) for panel in panels) else _ACROSS
    figure, axes = panel_grid(len(panels), across)
    for panel, place in zip(panels, axes, strict=False):
        _draw_bar_panel(place, panel, panels)
    figure.supxlabel(panels[0].axis, color=MUTED)
    legend_above(figure, *axes)
    return figure


def panel_grid(count: int, across: int = _ACROSS) -> tuple[Figure, list[Axes]]:
    """A figure with places for as many panels, beside each other, whose values are shares."""
    rows = -(-count // across)
    height = 2.8 if rows == 1 else 0.3 + 2 * rows
    figure, axes = new_figure((WIDTH, height), rows, min(count, across))
    for place in axes[count:]:
        place.set_axis_off()
    for place in axes[::across]:
        place.set_ylabel("accuracy")
    return figure, axes


def _draw_bar_panel(axes: Axes, panel: Panel, panels: Sequence[Panel]) -> None:
    groups = [
        [(key, row) for key in panel.series if (row := panel.cells.get((key, group)))]
        for group in panel.groups
    ]
    # A group with fewer bars than another one stays centered.
    width = 0.8 / max(*map(len, groups), 1)
    labeled: set[str] = set()
    for at, group in enumerate(groups):
        if not group:
            axes.text(at, 2, "not run", ha="center", color=MUTED, fontsize=7)
        for i, (key, row) in enumerate(group):
            below, above = row["accuracy"] - row["low"], row["high"] - row["accuracy"]
            axes.bar(
                at + (i - (len(group) - 1) / 2) * width,
                100 * row["accuracy"],
                width * 0.88,
                color=panel.colors[key],
                yerr=[[100 * below], [100 * above]],
                label="_" if key in labeled else panel.series[key],
                error_kw={"ecolor": INK, "elinewidth": 0.9, "capsize": 0, "alpha": 0.75},
                hatch="/////" if _is_alone(row, panels) else None,
                edgecolor="white",
                linewidth=0,
            )
            labeled.add(key)
    _draw_chance(axes, groups)
    axes.set_xticks(range(len(groups)), [*panel.groups.values()])
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.set_title(panel.title)
    percent_axis(axes)
    axes.grid(True, axis="y")
    axes.spines["bottom"].set_color(GRID)


def _draw_chance(axes: Axes, groups: Sequence[Sequence[tuple[str, Row]]]) -> None:
    """A line at the accuracy of a guess; of each group where they differ by over three points."""
    chances = {
        at: np.mean(known)
        for at, group in enumerate(groups)
        if (known := [100 * row["chance"] for _, row in group if row["chance"] >= 0])
    }
    if chances and np.ptp([*chances.values()]) <= 3:
        axes.axhline(float(np.mean([*chances.values()])), **_CHANCE, zorder=3)
    else:
        for at, chance in chances.items():
            axes.hlines(chance, at - 0.5, at + 0.5, **_CHANCE, zorder=3)


def heat_panels(results: Results) -> list[Panel]:
    """The heat maps of a study: as the paper draws them where schemes are crossed with strengths.

    Otherwise a panel is a task or pre-training, a row a model and a column an evaluation scheme;
    of many tasks a panel is a model and a row a task.
    """
    schemes = [s for s in results.eval_schemes if s == "canonical" or nominal_splits(s) != 0]
    drawn = [s for s in schemes if s not in results.attacks]  # 0 splits are canonical
    heads = {scheme: short(scheme, results.attacks) for scheme in (*drawn, *results.attacks)}
    if panels := _crossed_panels(results, heads, "–"):
        return panels
    by, across, titles = "spec", "panel", {panel: panel_title(panel) for panel in results.panels}
    names, lines = _names_of_models(results)
    if len(results.panels) > _MANY:
        by, across, titles = "panel", "spec", names
        lines = ", ".join(results.varying).replace("pretrain_scheme", "pre-training")
        names = {panel: fill(one_line(panel_title(panel)), _NAME) for panel in results.panels}
    panels = [
        replace(_panel_of(results, titles[key], own, by, names, heads, "questions"), lines=lines)
        for key, own in grouped(results.rows, across).items()
    ]
    return [part for panel in panels for part in panel.parts()]


def _names_of_models(results: Results) -> tuple[dict[str, str], str]:
    """The models on one line each, by their spec, and what names them."""
    if results.exist:
        return {spec: fill(spec, _NAME) for spec in results.colors}, "model"
    names = {spec: one_line(short(spec)) for spec in results.colors}
    if (results.frame["few_shot_scheme"] != "").any():
        return {spec: f"examples {name}" for spec, name in names.items()}, "model, by its examples"
    return names, "model, by its training"


def _fitting(panel: Panel) -> int:
    """How many panels as wide as this one fit beside each other."""
    return int((WIDTH - _names_width(panel)) // (len(panel.groups) * _cell_width(panel) + 0.15))


def _crowded(panel: Panel, across: int) -> bool:
    """Whether the names of the groups touch, in panels beside each other."""
    return len(panel.groups) * _LETTER * _widest(panel.groups.values()) > (WIDTH - 0.6) / across


def _columns(panel: Panel) -> int:
    """How many columns fit beside the names of the rows."""
    return max(1, int((WIDTH - _names_width(panel) - 0.15) // _cell_width(panel)))


def _cell_width(panel: Panel) -> float:
    """Inches of a cell, so wide that the names of neighboring columns do not touch."""
    names = [_widest([name]) for name in panel.groups.values()]
    pairs = [(one + other) / 2 for one, other in pairwise(names)]
    return max(_CELL[0], _HEAD_LETTER * max(pairs, default=0) + 0.06)


def _names_width(panel: Panel) -> float:
    return 0.085 * _widest(panel.series.values()) + 0.5


def _names_height(names: Iterable[str]) -> float:
    """Inches of the name with most lines."""
    return 0.17 * max(name.count("\n") + 1 for name in names)


def _widest(names: Iterable[str]) -> int:
    """Characters of the longest line of some names."""
    return max(len(line) for name in names for line in name.split("\n"))


@figure_style()
def draw_heatmap(results: Results) -> Figure:
    """Accuracy of every model under every evaluation scheme, in one panel or several."""
    panels = heat_panels(results)
    columns = max(1, min(len(panels), _ACROSS, _fitting(panels[0])))
    if columns == 1:  # beside each other, panels have the same rows
        panels = [panel.without_empty_series() for panel in panels]
    titles = max(panel.title.count("\n") + bool(panel.title) for panel in panels)
    cell = max(_CELL[1], _names_height(panels[0].series.values()))
    more = _names_height(panels[0].groups.values()) + 0.2 * titles + 0.45
    cells = [len(panel.series) for panel in panels[::columns]]
    height = sum(cells) * cell + len(cells) * more + 0.2
    figure, axes = new_figure((WIDTH, height), len(cells), columns, sharey="row", heights=cells)
    for panel, place in zip(panels, axes, strict=False):
        _draw_heat_panel(place, panel, panels)
    for place in axes[len(panels) :]:
        place.set_visible(False)
    figure.supylabel(panels[0].lines, color=MUTED)
    return figure


def _draw_heat_panel(axes: Axes, panel: Panel, panels: Sequence[Panel]) -> None:
    rows, columns = len(panel.series), len(panel.groups)
    values = np.full((rows, columns), np.nan)
    for (y, key), (x, head) in product(enumerate(panel.series), enumerate(panel.groups)):
        if row := panel.cells.get((key, head)):
            value = values[y, x] = 100 * row["accuracy"]
            color = "black" if value < 55 else "white"
            text = f"{value:.1f}{'*' * _is_alone(row, panels)}"
            axes.text(x, y, text, ha="center", va="center", color=color, fontsize=9)
        elif (key, head) in panel.cells:
            span = x / columns, (x + 1) / columns
            axes.axhspan(y - 0.5, y + 0.5, *span, color=_NOT_RUN, linewidth=0)
            axes.text(x, y, "not run", ha="center", va="center", color=MUTED, fontsize=7)
    axes.set_facecolor("white")
    axes.imshow(values, cmap="YlGnBu", vmin=0, vmax=100, aspect="auto")
    for edge in range(1, rows):
        axes.axhline(edge - 0.5, color="white", linewidth=2)
    for edge in range(1, columns):
        axes.axvline(edge - 0.5, color="white", linewidth=2)
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    axes.set_xticks(range(columns), [*panel.groups.values()])
    axes.set_yticks(range(rows), [*panel.series.values()])
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel(panel.axis)
    axes.spines[:].set_visible(False)
    axes.set_title(panel.title)


def layer_section(results: Results, folder: Path) -> Section | None:
    """Distances between the tokenizations of a word: a line for each layer."""
    layers = merged_layers(results.all_rows)
    if layers.empty:
        return None
    models = _models_text(rows_with(results.all_rows, "layers").to_dict("records"))
    draw_embeddings(layers.to_dict("records"), folder / "embeddings", models)
    layers["text"] = [
        f"{row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}]" for _, row in layers.iterrows()
    ]
    layers["column"] = [
        f"{model} in “{sentence}”" if sentence else model
        for model, sentence in layers[["model", "sentence"]].itertuples(index=False)
    ]
    table = pivot(layers.sort_values("layer", kind="stable"), "layer", "column", "layer", "–")
    return Section(
        "embeddings",
        "Distance between the tokenizations of a word, by layer",
        "Mean distance between the unit-normalized last-token states of the canonical and of "
        "uniformly drawn tokenizations; bands are 95% intervals over words and seeds.",
        [table],
        folder / "embeddings",
    )


@figure_style()
def draw_embeddings(rows: Sequence[Row], stem: Path, about: str) -> None:
    """Mean distance of a word's tokenizations by layer: colors by training, dashes by sentence."""
    models, sentences = grouped(rows, "model"), [*grouped(rows, "sentence")]
    marks = zip(colors(models).items(), cycle(MARKERS), strict=False)
    looks: dict[str, JsonObject] = {
        model: {"color": color, "marker": mark} for (model, color), mark in marks
    }
    dashes = list(islice(cycle(DASHES), len(sentences)))
    figure, (axes,) = new_figure((WIDTH, 3.4))
    for model, own in models.items():
        by_sentence = grouped(own, "sentence")
        for sentence, dash in zip(sentences, dashes, strict=True):
            draw_line(
                axes, by_sentence.get(sentence, []), "layer", "mean", linestyle=dash, **looks[model]
            )
    last = max(row["layer"] for row in rows)
    step = max(1, last // 10)
    axes.set(xlabel="layer (0: the embedding)", ylabel="distance to the canonical tokenization")
    axes.set_xticks([0, *range(step, last, step), last] if last else [0])
    axes.grid(axis="y")
    axes.set_ylim(bottom=0)
    keys = [legend_key(label=model, **looks[model]) for model in models]
    if len(sentences) > 1 or sentences[0]:
        names = [fill(f"“{plain(s)}”", 34) if s else "the word alone" for s in sentences]
        keys += [
            legend_key(color=MUTED, linestyle=dash, label=name)
            for name, dash in zip(names, dashes, strict=True)
        ]
    legend_above(figure, more=keys)
    words, draws = rows[0].get("words"), rows[0].get("draws")
    seeds = counted(max(row.get("seeds", 1) for row in rows), "seed")
    note_below(figure, f"{about} · {words} words × {draws} draws · {seeds}")
    save_all(figure, stem, rows)


def bound_section(results: Results, folder: Path) -> Section | None:
    """The bound of each model by layer, and the measured changes below it; and their figure."""
    layers = entries_of(results.all_rows, "bound").reindex(columns=["model", "layer", *_GAMMAS])
    if layers.empty:
        return None
    changes = entries_of(results.all_rows, "changes").reindex(columns=_CHANGE)
    groups = changes[changes["kind"].isin([*_DASHES])].groupby([*_CHANGE[:3]], sort=False)
    merged: DataFrame = groups.agg({"mean": "mean", "p95": "max", "max": "max"}).reset_index()
    if not merged.empty:
        rows = rows_with(results.all_rows, "changes")
        counts = f"{rows['n'].iloc[0]} questions × {rows['draws'].iloc[0]} draws"
        about = [
            _models_text(rows.to_dict("records")),
            counts,
            counted(rows["seed"].nunique(), "seed"),
        ]
        draw_bound(merged.to_dict("records"), folder / "bound", " · ".join(about))
    lines = [
        _bound_line(model, own, merged[merged["model"] == model])
        for model, own in layers.groupby("model", sort=False)
    ]
    head = ["model", *_GAMMAS.values(), "γ theorem, single layers", *_MEASURED.values()]
    caption = (
        "γ bounds the change of the output at a distance, as in the theorem and as in its proof, "
        "for the whole model, and for each layer as a model of one layer. The figure has the "
        "measured changes per square root of a distance, the table those of the logits."
    )
    title = "Bound from the weights"
    return Section(
        "bound", title, caption, [Table(head, lines)], None if merged.empty else folder / "bound"
    )


def _bound_line(model: str, layers: DataFrame, changes: DataFrame) -> list[str]:
    """The line of a model: means over its seeds, and the greatest changes."""
    whole, single = layers[layers["layer"] == "whole"], layers[layers["layer"] != "whole"]
    powers = [whole[name].mean() for name in _GAMMAS]  # NaN: the proof needs a number of tokens
    gammas = ["" if power != power else power_of_ten(power) for power in powers]
    alone = [power_of_ten(power) for power in single["log10_gamma_theorem"].agg(["min", "max"])]
    last = changes.groupby("kind").last()  # the logits
    measured = [
        f"{last['mean'][kind]:.4g}, at most {last['max'][kind]:.4g}" if kind in last.index else ""
        for kind in _MEASURED
    ]
    return [model, *gammas, " to ".join(dict.fromkeys(alone)), *measured]


@figure_style()
def draw_bound(rows: Sequence[Row], stem: Path, about: str) -> None:
    """The measured changes per √distance by depth: the embedding, the layers, the logits."""
    models = grouped(rows, "model")
    figure, (axes,) = new_figure((WIDTH, 3.6))
    tints = colors(models)
    for model, own in models.items():
        for kind, points in grouped(own, "kind").items():
            # The embedding of a last token that is never split stays: no logarithm.
            line = [(row["depth"], row["mean"]) for row in points if row["mean"] > 0]
            label = model if kind == own[0]["kind"] else "_"
            axes.plot(
                *zip(*line, strict=True), color=tints[model], linestyle=_DASHES[kind], label=label
            )
    depth = max(row["depth"] for row in rows)
    step = max(1, depth // 6)
    layers = range(step, depth - step // 2, step)
    axes.set_xticks([0, *layers, depth], ["embedding", *map(str, layers), "logits"])
    axes.set(yscale="log", xlabel="after layer", ylabel="mean change per √distance")
    axes.minorticks_off()
    axes.grid(axis="y")
    kinds = [name for kind, name in _NAMES.items() if any(row["kind"] == kind for row in rows)]
    legend_above(figure, axes)
    note_below(
        figure, f"{about} · {', '.join(kinds)}; the bound γ is far above the axis, see the table"
    )
    save_all(figure, stem, rows)


def learning_curve(rows: Sequence[Row]) -> list[Row]:
    """Accuracies of models kept on the way and at the last step, seeds merged."""

    def curve(row: Row) -> tuple[Any, ...]:
        return measurement_of(row | {"step": None})

    curves = {curve(row) for row in rows if "step" in row}
    by_step: dict[int, list[Row]] = {}
    for row in rows:
        if "accuracy" in row and curve(row) in curves:
            model = row["configuration"]["inputs"]["model"]
            step = row["step"] if "step" in row else model["options"]["steps"]
            finished = {name: value for name, value in row.items() if name != "step"}
            by_step.setdefault(step, []).append(finished)
    return [row | {"step": step} for step in sorted(by_step) for row in Results(by_step[step]).rows]


@figure_style()
def learning_section(results: Results, folder: Path) -> Section | None:
    """Accuracy by step: a panel for each evaluation scheme, a line for each training scheme."""
    points = learning_curve(results.all_rows)
    if not points:
        return None
    panels = grouped(points, "eval_scheme")
    tints = colors(row["name"] for row in points)
    steps = sorted({row["step"] for row in points})
    figure, axes = panel_grid(len(panels))
    for panel, (scheme, own) in zip(axes, panels.items(), strict=False):
        for name, line in grouped(own, "name").items():
            look = {"color": tints[name], "marker": "o", "label": name}
            draw_line(panel, line, "step", "accuracy", scale=100, **look)
        panel.axhline(100 * own[0]["chance"], **_CHANCE)
        panel.set_title(f"{one_line(short(scheme, panels))} questions")
        percent_axis(panel)
        if len(steps) <= 5:
            panel.set_xticks(steps)
    figure.supxlabel("steps of fine-tuning", color=MUTED)
    legend_above(figure, axes[0])
    note_below(figure, facts(points))
    save_all(figure, folder / "learning", points, ("step", *FIELDS))
    return Section(
        "learning",
        "Accuracy by the steps of fine-tuning",
        "One line for each training scheme, with 95% intervals.",
        figure=folder / "learning",
    )
