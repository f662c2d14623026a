"""Figures with lines: distances by layer, and accuracy by the steps of training."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from textwrap import fill
from typing import Any

import pandas as pd

from robustok.report.figures import FIELDS, panel_grid
from robustok.report.frame import Results, Row, bounds, merged_layers, percent
from robustok.report.names import one_line, short
from robustok.report.page import Section, Table
from robustok.report.style import (
    DASHES,
    MARKERS,
    MUTED,
    WIDTH,
    colors,
    draw_line,
    figure_style,
    grouped,
    label_axes,
    legend_above,
    legend_key,
    new_figure,
    percent_axis,
    plain,
    save_all,
)
from robustok.report.tables import pivot
from robustok.runtime.files import JsonObject


def layer_section(results: Results, folder: Path) -> Section | None:
    """Distances between the tokenizations of a word: a line a layer, a column a model."""
    layers = merged_layers(results.all_rows)
    if layers.empty:
        return None
    draw_embeddings(layers.to_dict("records"), folder / "embeddings")
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
def draw_embeddings(rows: Sequence[Row], stem: Path) -> None:
    """Mean distance of a word's tokenizations by layer: a color a model, a dash a sentence.

    ``rows`` are those of ``EmbeddingDistances.table()`` with the name of the ``model``; ``stem`` is
    the figure's path without its ending. Bands are 95% over words.
    """
    models, sentences = grouped(rows, "model"), [*grouped(rows, "sentence")]
    looks: list[JsonObject] = [
        {"color": color, "marker": mark}
        for color, mark in zip(colors([*models]), cycle(MARKERS), strict=False)
    ]
    dashes = list(islice(cycle(DASHES), len(sentences)))
    figure, (axes,) = new_figure((WIDTH, 3.4))
    for own, look in zip(models.values(), looks, strict=True):
        by_sentence = grouped(own, "sentence")
        for sentence, dash in zip(sentences, dashes, strict=True):
            draw_line(
                axes,
                by_sentence.get(sentence, []),
                "layer",
                "mean",
                linestyle=dash,
                **look,
            )
    last = max(row["layer"] for row in rows)
    step = max(1, last // 10)
    label_axes(
        axes,
        "layer (0: the embedding)",
        "distance to the canonical tokenization",
        xticks=[0, *range(step, last, step), last] if last else [0],
    )
    axes.set_ylim(bottom=0)
    keys = [legend_key(label=model, **look) for model, look in zip(models, looks, strict=True)]
    if len(sentences) > 1 or sentences[0]:
        names = [fill(f"“{plain(s)}”", 34) if s else "the word alone" for s in sentences]
        keys += [
            legend_key(color=MUTED, linestyle=dash, label=name)
            for name, dash in zip(names, dashes, strict=True)
        ]
    legend_above(figure, more=keys)
    save_all(figure, stem, rows)


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


@figure_style()
def learning_section(results: Results, folder: Path) -> Section | None:
    """Accuracy by step, a panel and a table an evaluation scheme, a line a training scheme."""
    points = learning_curve(results.all_rows)
    if not points:
        return None
    panels = grouped(points, "eval_scheme")
    names = [*grouped(points, "name")]
    colored = dict(zip(names, colors(names), strict=True))
    steps = sorted({row["step"] for row in points})
    figure, axes = panel_grid(len(panels))
    for panel, (scheme, own) in zip(axes, panels.items(), strict=False):
        for name, line in grouped(own, "name").items():
            look = {"color": colored[name], "marker": "o", "label": name}
            draw_line(panel, line, "step", "accuracy", scale=100, **look)
        panel.axhline(100 * own[0]["chance"], color=MUTED, linewidth=0.8, label="chance")
        panel.set_title(f"{one_line(short(scheme))} questions")
        percent_axis(panel)
        if len(steps) <= 5:
            panel.set_xticks(steps)
    figure.supxlabel("steps of fine-tuning", color=MUTED)
    legend_above(figure, axes[0])
    save_all(figure, folder / "learning", points, ("step", *FIELDS))
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
