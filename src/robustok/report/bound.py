"""The section of the bound from the weights, beside the measured changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robustok.report.frame import DataFrame, Results, entries_of
from robustok.report.page import Section, Table
from robustok.report.style import (
    DASHES,
    WIDTH,
    Row,
    colors,
    figure_style,
    grouped,
    legend_above,
    new_figure,
    note_below,
    save_all,
)
from robustok.study.measurements.bound import power_of_ten

_DASHES = {"sampled": DASHES[0], "adversarial": DASHES[1]}  # of measured changes, by their kind
_NAMES = {"sampled": "solid: drawn", "adversarial": "dashed: attacked"}
_GAMMAS = {"log10_gamma_theorem": "γ theorem", "log10_gamma_proof": "γ proof"}
_MEASURED = {"sampled": "change, drawn", "adversarial": "change, attacked"}


def bound_section(results: Results, folder: Path) -> Section | None:
    """The bound of each model by layer, and the measured changes below it; and their figure."""
    changes = entries_of(results.all_rows, "changes")
    if changes.empty:
        return None
    groups = changes.groupby(["model", "kind", "depth"], sort=False)
    merged: DataFrame = groups.agg({"mean": "mean", "p95": "max", "max": "max"}).reset_index()
    is_measured = merged["kind"].isin([*_DASHES]).any()
    if is_measured:
        draw_bound(merged.to_dict("records"), folder / "bound")
    layers = entries_of(results.all_rows, "bound").reindex(columns=["model", "layer", *_GAMMAS])
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
        "bound", title, caption, [Table(head, lines)], folder / "bound" if is_measured else None
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
def draw_bound(rows: Sequence[Row], stem: Path) -> None:
    """The measured changes per √distance by layer, on a logarithmic axis: a color a model.

    ``rows`` hold ``model``, ``depth`` (0 the embedding, then the layers, last the logits),
    ``kind`` (drawn as "sampled" or "adversarial"; others are bounds, far above the axis) and
    ``mean``.
    """
    measured = [row for row in rows if row["kind"] in _DASHES]
    models = grouped(measured, "model")
    figure, (axes,) = new_figure((WIDTH, 3.6))
    for (model, own), color in zip(models.items(), colors([*models]), strict=True):
        for kind, points in grouped(own, "kind").items():
            # The embedding of a last token that is never split stays: no logarithm.
            line = [(row["depth"], row["mean"]) for row in points if row["mean"] > 0]
            label = model if kind == own[0]["kind"] else "_"
            axes.plot(*zip(*line, strict=True), color=color, linestyle=_DASHES[kind], label=label)
    depth = max(row["depth"] for row in measured)
    step = max(1, depth // 6)
    layers = range(step, depth - step // 2, step)
    axes.set_xticks([0, *layers, depth], ["embedding", *map(str, layers), "logits"])
    axes.set(yscale="log", xlabel="after layer", ylabel="mean change per √distance")
    axes.minorticks_off()
    axes.grid(axis="y")
    kinds = [name for kind, name in _NAMES.items() if any(row["kind"] == kind for row in measured)]
    legend_above(figure, axes)
    note_below(figure, f"{', '.join(kinds)}; the bound γ is far above the axis, see the table")
    save_all(figure, stem, rows)
