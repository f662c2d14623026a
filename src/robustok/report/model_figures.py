"""Figures of tokenizations inside a model: distances, the bound, attacks and certificates.

Each takes plain rows, as the results' ``table()`` or ``gap()`` give them, and writes a PNG, an SVG
and, beside them, its rows as CSV.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, log10
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from robustok.files import write_csv
from robustok.report.drawing import new_figure, save_both
from robustok.report.style import GRID, INK, MUTED, colors, house_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]

_DASHES = ("-", (0, (5, 2)), (0, (1.2, 1.6)), (0, (6, 2, 1.2, 2)))
_MARKS = ("o", "s", "D", "^", "v", "P", "X")
_SAMPLED, _ATTACKED = "#0072b2", "#d55e00"
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
    with house_style():
        figure, (axes,) = new_figure((7.2, 4.2))
        for model, color, mark in zip(models, colors(models), _cycle(_MARKS, models), strict=True):
            for sentence, dash in zip(sentences, _cycle(_DASHES, sentences), strict=True):
                own = [r for r in rows if (r["model"], r["sentence"]) == (model, sentence)]
                at = [row["layer"] for row in own]
                low, high = ([row[name] for row in own] for name in ("low", "high"))
                axes.fill_between(at, low, high, color=color, alpha=0.15, linewidth=0)
                axes.plot(
                    at, [row["mean"] for row in own], color=color, linestyle=dash, marker=mark,
                    markersize=4.5, linewidth=1.7,
                )  # fmt: skip
        _layer_axis(axes, [row["layer"] for row in rows])
        axes.set_ylim(bottom=0)
        axes.set_ylabel("distance to the canonical tokenization")
        axes.grid(True, axis="y")
        keys = [
            _key(color=c, marker=m, label=model)
            for model, c, m in zip(models, colors(models), _cycle(_MARKS, models), strict=True)
        ]
        if len(sentences) > 1 or sentences[0]:
            keys += [
                _key(
                    color=MUTED, linestyle=dash, label=fill(f"“{s}”", 34) if s else "the word alone"
                )
                for s, dash in zip(sentences, _cycle(_DASHES, sentences), strict=True)
            ]
        _legend(axes, keys, columns=1)
        _save(figure, rows, stem)


def draw_bound(rows: Sequence[Row], stem: Path) -> None:
    """Both readings of the bound and the measured ratios, per √distance: one panel per model.

    ``rows`` hold ``model``, ``depth`` (0 the embedding, then the layers, last the logits),
    ``kind`` ("theorem", "proof", "sampled" or "adversarial"), ``mean`` and ``max``.
    """
    models = list(dict.fromkeys(row["model"] for row in rows))
    with house_style():
        figure, panels = _panels(len(models), (4.4, 3.9))
        for axes, model in zip(panels, models, strict=True):
            own = [row for row in rows if row["model"] == model]
            _draw_bound_panel(axes, own)
            axes.set_title(model, pad=9)
        panels[0].set_ylabel("change per √distance")
        keys = [
            _key(color=INK, linestyle=_DASHES[1], label="bound, as in the proof (factor n)"),
            _key(color=INK, label="bound, as in the theorem"),
            _key(color=_ATTACKED, marker="D", label="attacked: greatest, and mean to greatest"),
            _key(color=_SAMPLED, marker="o", label="drawn: greatest, and mean to greatest"),
        ]
        kinds = {row["kind"] for row in rows}
        present = [k for k, kind in zip(keys, _KINDS, strict=True) if kind in kinds]
        _legend(figure, present, columns=min(len(models), 2))
        _save(figure, rows, stem)


_KINDS = ("proof", "theorem", "adversarial", "sampled")


def draw_gap(rows: Sequence[Row], stem: Path) -> None:
    """Shares of certified, open and broken items: one bar per distance.

    ``rows`` are those of ``Certification.gap()`` with a ``model`` each; a panel a model.
    """
    models = list(dict.fromkeys(row["model"] for row in rows))
    with house_style():
        figure, panels = _panels(len(models), (4.2, 3.7))
        for axes, model in zip(panels, models, strict=True):
            _draw_gap_panel(axes, [row for row in rows if row["model"] == model])
            axes.set_title(model, pad=9)
        panels[0].set_ylabel("questions")
        panels[0].set_yticks(range(0, 101, 20), [f"{y}%" for y in range(0, 101, 20)])
        keys = [_patch(color, label) for label, color, _ in reversed(_VERDICTS.values())]
        _legend(figure, keys, columns=min(len(models), 2))
        _save(figure, rows, stem)


def _draw_bound_panel(axes: Axes, rows: list[Row]) -> None:
    top: dict[str, float] = {}
    for kind, dash in (("proof", _DASHES[1]), ("theorem", _DASHES[0])):
        points = sorted((row["depth"], row["max"]) for row in rows if row["kind"] == kind)
        if points:
            axes.plot(*zip(*points, strict=True), color=INK, linestyle=dash, linewidth=1.7)
            top[kind] = points[-1][1]
    measured = 0.0
    for kind, color, mark in (("sampled", _SAMPLED, "o"), ("adversarial", _ATTACKED, "D")):
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
    axes.set_xlabel("all tokenizations within distance")
    axes.set_ylim(0, 100)
    axes.spines["bottom"].set_color(GRID)


def _panels(count: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """A figure of equal panels in a row that share their vertical axis."""
    return new_figure((size[0] * (count if count > 1 else 1.35), size[1]), 1, count)


def _layer_axis(axes: Axes, layers: Sequence[int]) -> None:
    last = max(layers)
    step = max(1, last // 10)
    shown = [0, *range(step, last, step), last] if last else [0]
    axes.set_xticks(shown, [str(layer) for layer in shown])
    axes.set_xlabel("layer (0: the embedding)")


def _cycle(values: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    return [values[i % len(values)] for i in range(len(like))]


def _key(**style: Any) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], linewidth=1.7, markersize=4.5, **style)


def _patch(color: str, label: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=color, label=label)


def _legend(where: Any, keys: list[Any], columns: int) -> None:
    """Above a figure of panels, or to the right of single axes."""
    if hasattr(where, "get_xlim"):
        where.legend(handles=keys, loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
    else:
        where.legend(handles=keys, loc="outside upper left", ncols=columns)


def _save(figure: Figure, rows: Sequence[Row], stem: Path) -> None:
    save_both(figure, stem)
    write_csv(stem.with_name(stem.name + ".csv"), rows)
