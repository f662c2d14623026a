"""Figures of tokenizations inside a model: distances, the bound, attacks and certificates.

Each takes plain rows, as the results' ``table()`` or ``gap()`` give them, and writes a PNG, an SVG
and, beside them, its rows as CSV.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import floor, log10
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from robustok.report.style import (
    ATTACKED,
    DASHES,
    GRID,
    INK,
    MARKERS,
    MUTED,
    OTHERS,
    SAMPLED,
    Row,
    colors,
    cycled,
    draw_line,
    figure_style,
    new_figure,
    percent_axis,
    plain,
    save_all,
    save_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = Sequence[Mapping[str, float]]  # rows of {n_scored, accuracy, low, high}

_KINDS = {  # of rows of a bound: how each is drawn in the legend
    "proof": {"color": INK, "linestyle": DASHES[1], "label": "bound, as in the proof (factor n)"},
    "theorem": {"color": INK, "label": "bound, as in the theorem"},
    "adversarial": {"color": ATTACKED, "marker": "D",
                    "label": "attacked: greatest, and mean to greatest"},
    "sampled": {"color": SAMPLED, "marker": "o", "label": "drawn: greatest, and mean to greatest"},
}  # fmt: skip
_VERDICTS = {  # bottom to top: proven, then what only a search says, then broken
    "same": ("certified: the same answer under all", "#009e73", "white"),
    "open": ("open: none found, the share is bounded", "#cdeedd", "black"),
    "flips": ("broken, and the attack missed it", "#f0b429", "black"),
    "attacked": ("broken by the attack", "#8a3b12", "white"),
}


def draw_embeddings(rows: Sequence[Row], stem: Path) -> None:
    """Mean distance of a word's tokenizations by layer: a color a model, a dash a sentence.

    ``rows`` are those of ``EmbeddingDistances.table()``, of as many models and sentences as
    there are; ``stem`` is the figure's path without its ending. Bands are 95% over words.
    """
    models = list(dict.fromkeys(row["model"] for row in rows))
    sentences = list(dict.fromkeys(row["sentence"] for row in rows))
    looks = [{"color": color, "marker": mark} for color, mark in
             zip(colors(models), cycled(MARKERS, models), strict=True)]  # fmt: skip
    dashes = cycled(DASHES, sentences)
    with figure_style():
        figure, (axes,) = new_figure((7.2, 4.2))
        for model, look in zip(models, looks, strict=True):
            for sentence, dash in zip(sentences, dashes, strict=True):
                own = [r for r in rows if (r["model"], r["sentence"]) == (model, sentence)]
                draw_line(axes, own, "layer", "mean", linestyle=dash, markersize=4.5,
                          linewidth=1.7, **look)  # fmt: skip
        last = max(row["layer"] for row in rows)
        step = max(1, last // 10)
        axes.set_xticks([0, *range(step, last, step), last] if last else [0])
        axes.set_xlabel("layer (0: the embedding)")
        axes.set_ylim(bottom=0)
        axes.set_ylabel("distance to the canonical tokenization")
        axes.grid(True, axis="y")
        keys = [_key(label=model, **look) for model, look in zip(models, looks, strict=True)]
        if len(sentences) > 1 or sentences[0]:
            names = [fill(f"“{plain(s)}”", 34) if s else "the word alone" for s in sentences]
            keys += [_key(color=MUTED, linestyle=dash, label=name)
                     for name, dash in zip(names, dashes, strict=True)]  # fmt: skip
        axes.legend(handles=keys, loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
        save_all(figure, stem, rows)


def draw_bound(rows: Sequence[Row], stem: Path) -> None:
    """Both readings of the bound and the measured ratios, per √distance: one panel per model.

    ``rows`` hold ``model``, ``depth`` (0 the embedding, then the layers, last the logits),
    ``kind`` ("theorem", "proof", "sampled" or "adversarial"), ``mean`` and ``max``.
    """
    kinds = {row["kind"] for row in rows}
    keys = [_key(**look) for kind, look in _KINDS.items() if kind in kinds]
    with _panels(rows, (4.4, 3.9), keys, stem) as panels:
        for axes, own in panels:
            _draw_bound_panel(axes, own)
        panels[0][0].set_ylabel("change per √distance")


def draw_gap(rows: Sequence[Row], stem: Path) -> None:
    """Shares of certified, open and broken items: one bar per distance.

    ``rows`` are those of ``Certification.gap()`` with a ``model`` each; a panel a model.
    """
    from matplotlib.patches import Patch

    keys = [Patch(color=color, label=label) for label, color, _ in reversed(_VERDICTS.values())]
    with _panels(rows, (4.2, 3.7), keys, stem) as panels:
        for axes, own in panels:
            _draw_gap_panel(axes, own)
        panels[0][0].set_ylabel("questions")
        percent_axis(panels[0][0])


@contextmanager
def _panels(
    rows: Sequence[Row], size: tuple[float, float], keys: list[Any], stem: Path
) -> Iterator[list[tuple[Axes, list[Row]]]]:
    """A panel and the rows of each model, side by side below one legend; saved at the end."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    count = len(models)
    with figure_style():
        figure, panels = new_figure((size[0] * (count if count > 1 else 1.35), size[1]), 1, count)
        for axes, model in zip(panels, models, strict=True):
            axes.set_title(model, pad=9)
        own = [[row for row in rows if row["model"] == model] for model in models]
        yield list(zip(panels, own, strict=True))
        figure.legend(handles=keys, loc="outside upper left", ncols=min(count, 2))
        save_all(figure, stem, rows)


def _draw_bound_panel(axes: Axes, rows: list[Row]) -> None:
    top: dict[str, float] = {}
    for kind, dash in (("proof", DASHES[1]), ("theorem", DASHES[0])):
        points = sorted((row["depth"], row["max"]) for row in rows if row["kind"] == kind)
        if points:
            axes.plot(*zip(*points, strict=True), color=INK, linestyle=dash, linewidth=1.7)
            top[kind] = points[-1][1]
    measured = 0.0
    for kind, color, mark in (("sampled", SAMPLED, "o"), ("adversarial", ATTACKED, "D")):
        # Nothing moves in the embedding of a last token that no tokenization splits: no logarithm.
        points = sorted((r["depth"], r["max"], r["mean"]) for r in rows if r["kind"] == kind)
        points = [entry for entry in points if entry[2] > 0]
        if not points:
            continue
        at, high, mean = zip(*points, strict=True)
        axes.fill_between(at, mean, high, color=color, alpha=0.18, linewidth=0)
        axes.plot(at, high, color=color, marker=mark, markersize=4.5, linewidth=1.7)
        measured = max(measured, high[-1])
    depth = max(row["depth"] for row in rows)
    if measured and "theorem" in top:
        _mark_slack(axes, depth, measured, top["theorem"])
    axes.set_yscale("log")
    step = max(1, (depth - 1) // 8)
    layers = range(1, depth, step)
    axes.set_xticks([0, *layers, depth], ["embedding", *map(str, layers), "logits"])
    axes.set_xlabel("after layer")
    axes.grid(True, axis="y")


def _mark_slack(axes: Axes, depth: int, measured: float, bound: float) -> None:
    """Label of the factor between the bound and the measured ratio, at the last point."""
    at = depth + 0.12
    axes.plot([at, at], [measured, bound], color=MUTED, linewidth=1, clip_on=False)
    power = floor(log10(bound / measured))
    shown = f"{bound / measured:,.0f}×"
    if power >= 4:
        shown = f"{bound / measured / 10**power:.1f}·10$^{{{power}}}$×"
    axes.annotate(
        shown, (at, (measured * bound) ** 0.5), xytext=(5, 0), textcoords="offset points",
        va="center", fontsize=9, color=MUTED, annotation_clip=False,
    )  # fmt: skip


def _draw_gap_panel(axes: Axes, rows: list[Row]) -> None:
    for at, row in enumerate(rows):
        base = 0.0
        for verdict, (_, color, ink) in _VERDICTS.items():
            height = 100 * row[verdict] / row["n"]
            axes.bar(at, height, 0.78, base, color=color, edgecolor="white", linewidth=0.8)
            if height >= 5:
                axes.text(
                    at, base + height / 2, f"{height:.0f}", ha="center", va="center", color=ink,
                    fontsize=9,
                )  # fmt: skip
            base += height
    axes.set_xticks(range(len(rows)), [str(row["distance"]) for row in rows])
    sizes = sorted({row["n"] for row in rows})
    n = " to ".join(map(str, dict.fromkeys([sizes[0], sizes[-1]])))
    axes.set_xlabel(f"all tokenizations within distance ({n} questions)")
    axes.set_ylim(0, 100)
    axes.spines["bottom"].set_color(GRID)


def _key(**style: Any) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], linewidth=1.7, markersize=4.5, **style)


def draw_curve(curves: Mapping[str, Curve], path: Path) -> None:
    """Write one line with its 95% band a search, as PNG or SVG by the file's ending.

    ``curves`` are what ``AttackEvaluation.curve()`` gives, by the name of the search. Raises
    RobustokError for another ending.
    """
    with figure_style():
        figure, (axes,) = new_figure((6.4, 4.0))
        tints = cycled((INK, *OTHERS), [*curves])
        for (name, rows), color in zip(curves.items(), tints, strict=True):
            draw_line(axes, rows, "n_scored", "accuracy", scale=100, color=color, label=name,
                      linewidth=1.8, drawstyle="steps-post")  # fmt: skip
        axes.set_xscale("log")
        axes.set_ylim(0, 100)
        axes.set_xlabel("tokenizations scored for one question")
        axes.set_ylabel("accuracy, %")
        axes.grid(axis="y")
        axes.legend()
        save_figure(figure, path)
