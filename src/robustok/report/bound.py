"""The section of the bound from the weights, beside the measured changes."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10
from pathlib import Path
from typing import TYPE_CHECKING

from robustok.report.frame import DataFrame, Results, entries_of
from robustok.report.page import Section, Table
from robustok.report.style import (
    ATTACKED,
    DASHES,
    INK,
    MUTED,
    SAMPLED,
    Row,
    figure_style,
    grouped,
    legend_above,
    legend_key,
    new_figure,
    save_all,
)
from robustok.study.measurements.bound import power_of_ten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_KINDS = {  # of rows of a bound: how each is drawn in the legend
    "proof": {"color": INK, "linestyle": DASHES[1], "label": "bound, as in the proof (factor n)"},
    "theorem": {"color": INK, "label": "bound, as in the theorem"},
    "adversarial": {
        "color": ATTACKED,
        "marker": "D",
        "label": "attacked: greatest, and mean to greatest",
    },
    "sampled": {"color": SAMPLED, "marker": "o", "label": "drawn: greatest, and mean to greatest"},
}
_GAMMAS = {"log10_gamma_theorem": "γ theorem", "log10_gamma_proof": "γ proof"}
_MEASURED = {"sampled": "change, drawn", "adversarial": "change, attacked"}


def bound_section(results: Results, folder: Path) -> Section | None:
    """The bound of each model by layer, and the measured changes below it; and their figure."""
    changes = entries_of(results.all_rows, "changes")
    if changes.empty:
        return None
    groups = changes.groupby(["model", "kind", "depth"], sort=False)
    merged: DataFrame = groups.agg({"mean": "mean", "p95": "max", "max": "max"}).reset_index()
    draw_bound(merged.to_dict("records"), folder / "bound")
    layers = entries_of(results.all_rows, "bound").reindex(columns=["model", "layer", *_GAMMAS])
    lines = [
        _bound_line(model, own, merged[merged["model"] == model])
        for model, own in layers.groupby("model", sort=False)
    ]
    head = ["model", *_GAMMAS.values(), "γ theorem, single layers", *_MEASURED.values()]
    caption = (
        "γ bounds the change of the output at a distance, as in the theorem and as in its proof, "
        "for the whole model, and for each layer as a model of one layer. The figure has the bound "
        "up to 10³⁰⁰ and the measured changes, both per square root of a distance; the table has "
        "those of the logits."
    )
    title = "Bound from the weights"
    return Section("bound", title, caption, [Table(head, lines)], folder / "bound")


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
def draw_bound(rows: Sequence[Row], stem: Path) -> None:
    """Both readings of the bound and the measured ratios, per √distance: one panel per model.

    ``rows`` hold ``model``, ``depth`` (0 the embedding, then the layers, last the logits),
    ``kind`` ("theorem", "proof", "sampled" or "adversarial"), ``mean`` and ``max``.
    """
    kinds, models = {row["kind"] for row in rows}, grouped(rows, "model")
    count = len(models)
    figure, panels = new_figure((4.4 * (count if count > 1 else 1.35), 3.9), 1, count)
    for axes, (model, own) in zip(panels, models.items(), strict=True):
        axes.set_title(model, pad=9)
        _draw_bound_panel(axes, own)
    panels[0].set_ylabel("change per √distance")
    keys = [legend_key(**look) for kind, look in _KINDS.items() if kind in kinds]
    legend_above(figure, more=keys)
    save_all(figure, stem, rows)


def _draw_bound_panel(axes: Axes, rows: list[Row]) -> None:
    # The vertical axis has powers of ten: a scale of matplotlib overflows near the largest float.
    top: dict[str, float] = {}
    for kind, dash in (("proof", DASHES[1]), ("theorem", DASHES[0])):
        points = sorted((row["depth"], log10(row["max"])) for row in rows if row["kind"] == kind)
        if points:
            axes.plot(*zip(*points, strict=True), color=INK, linestyle=dash)
            top[kind] = points[-1][1]
    measured: list[float] = []
    for kind, color, mark in (("sampled", SAMPLED, "o"), ("adversarial", ATTACKED, "D")):
        # Nothing moves in the embedding of a last token that no tokenization splits: no logarithm.
        own = [row for row in rows if row["kind"] == kind and row["mean"] > 0]
        points = sorted((row["depth"], log10(row["max"]), log10(row["mean"])) for row in own)
        if not points:
            continue
        at, high, mean = zip(*points, strict=True)
        axes.fill_between(at, mean, high, color=color, alpha=0.18, linewidth=0)
        axes.plot(at, high, color=color, marker=mark)
        measured.append(high[-1])
    depth = max(row["depth"] for row in rows)
    if measured and "theorem" in top:
        _mark_slack(axes, depth, max(measured), top["theorem"])
    step = max(1, depth // 6)
    layers = range(step, depth - step // 2, step)
    axes.set_xticks([0, *layers, depth], ["embedding", *map(str, layers), "logits"])
    axes.set_xlabel("after layer")
    axes.locator_params(axis="y", integer=True)
    axes.yaxis.set_major_formatter("$10^{{{x:.0f}}}$")
    axes.grid(axis="y")


def _mark_slack(axes: Axes, depth: int, measured: float, bound: float) -> None:
    """Label of the factor between the bound and the measured ratio, both as powers of ten."""
    at = depth + 0.12
    axes.plot([at, at], [measured, bound], color=MUTED, linewidth=1, clip_on=False)
    power = floor(bound - measured)
    shown = f"{10 ** (bound - measured):,.0f}×"
    if power >= 4:
        shown = f"{10 ** (bound - measured - power):.1f}·10$^{{{power}}}$×"
    axes.annotate(
        shown,
        (at, (measured + bound) / 2),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
        color=MUTED,
        annotation_clip=False,
    )
