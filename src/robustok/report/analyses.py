"""Figures of analyses: of tokenizers alone, and of what tokenizations change inside a model.

Those of tokenizers take the results of :mod:`robustok.analysis`. The others take plain rows, as the
results' ``table()`` or ``gap()`` give them. Each is written as PNG and SVG with its rows as CSV.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle, islice, product
from math import floor, log10
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.analysis import (
    DRAWS,
    DROPOUT,
    BiasSummary,
    DropoutRow,
    Growth,
    Segmentations,
    SplitCounts,
)
from robustok.report.style import (
    ATTACKED,
    DASHES,
    GRID,
    INK,
    MARKERS,
    MUTED,
    OTHERS,
    SAMPLED,
    WIDTH,
    Row,
    colors,
    draw_line,
    figure_style,
    grouped,
    label_axes,
    legend_above,
    new_figure,
    percent_axis,
    plain,
    save_all,
)
from robustok.runtime.display import Z95, counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MANY = 80  # segmentations; the names of more are not written below their bars

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
_VERDICTS = {  # bottom to top: proven, then what only a search says, then broken
    "same": ("certified: the same answer under all", "#009e73", "white"),
    "open": ("open: none found, the share is bounded", "#cdeedd", "black"),
    "flips": ("broken, and the attack missed it", "#f0b429", "black"),
    "attacked": ("broken by the attack", "#8a3b12", "white"),
}


@figure_style()
def draw_split_counts(results: Sequence[SplitCounts], folder: Path) -> list[Path]:
    """A panel for each scheme: draws as bars, distributions as lines (paper, split counts)."""
    figure, panels = _panels(-(-len(results) // 2), min(len(results), 2), (4.1, 2.9))
    tints = colors([c.scheme for c in results])
    for counts, axes, color in zip(results, panels, tints, strict=False):
        _draw_counts(axes, counts, color)
    for axes in panels[len(results) :]:
        axes.set_visible(False)
    return save_all(figure, folder / "split-counts", split_rows(results))


def _draw_counts(axes: Axes, counts: SplitCounts, color: str) -> None:
    bars = 100 * counts.observed
    axes.bar(range(len(bars)), bars, 0.7, color=color, label=f"{counts.draws:,} draws")
    widest = len(bars)
    for name, distribution in counts.distributions.items():
        tint, marker = (INK, "o") if "exact" in name else (OTHERS[0], "s")
        if "within" in name:
            tint, marker = MUTED, "^"
        # Ends with the draws, or where the distribution becomes too small to see.
        visible = int(np.flatnonzero(distribution > 1e-3).max(initial=-1)) + 1
        most = min(max(len(bars), visible), len(distribution))
        widest = max(widest, most)
        axes.plot(
            range(most),
            100 * distribution[:most],
            marker=marker,
            color=tint,
            label=name,
            markerfacecolor="white",
        )
    axes.set_xticks(range(0, widest, 1 if widest < 16 else 5))
    x = f"splits of “{plain(counts.token)}”"
    label_axes(axes, x, "share, %", title=counts.scheme)
    axes.legend()


def split_rows(results: Sequence[SplitCounts]) -> list[Row]:
    """What :func:`draw_split_counts` shows: a row for each distribution and split count."""
    return [
        {
            "scheme": c.scheme,
            "token": c.token,
            "distribution": name,
            "splits": s,
            "share": float(share),
        }
        for c in results
        for name, distribution in {f"{c.draws} draws": c.observed, **c.distributions}.items()
        for s, share in enumerate(distribution)
    ]


@figure_style()
def draw_segmentations(by_tokenizer: Mapping[str, Segmentations], folder: Path) -> list[Path]:
    """A column a tokenizer, a row a number of splits; a bar a scheme for each segmentation.

    ``by_tokenizer`` is by the tokenizer's name. (Paper, appendix on different tokenizers.)
    """
    levels = max(len(s.by_splits) for s in by_tokenizer.values())
    figure, panels = _panels(levels, len(by_tokenizer), (5.6, 2.6))
    for column, (name, result) in enumerate(by_tokenizer.items()):
        for level in range(levels):
            axes = panels[level * len(by_tokenizer) + column]
            _draw_level(axes, result, level)
            splits = counted(level + 1, "split")
            axes.set_title(f"{name}: “{plain(result.token)}”, {splits}")
            if column == 0:
                axes.set_ylabel("share, %")
    legend_above(figure, panels[0])
    return save_all(figure, folder / "segmentations", segmentation_rows(by_tokenizer))


def _draw_level(axes: Axes, result: Segmentations, level: int) -> None:
    segmentations = list(result.by_splits[level]) if level < len(result.by_splits) else []
    if not segmentations:
        axes.text(
            0.5, 0.5, "no such segmentation", transform=axes.transAxes, ha="center", color=MUTED
        )
        axes.set_axis_off()
        return
    specs = list(result.shares)
    # Sorted by the last scheme, so that the segmentations it never draws come last.
    order = np.argsort(-result.shares[specs[-1]][level], kind="stable")
    width = 0.8 / len(specs)
    for i, (spec, color) in enumerate(zip(specs, colors(specs), strict=True)):
        at = np.arange(len(segmentations)) + (i - (len(specs) - 1) / 2) * width
        axes.bar(at, 100 * result.shares[spec][level][order], width * 0.92, color=color, label=spec)
    axes.grid(axis="y")
    axes.set_xlim(-0.7, max(len(segmentations), 3) - 0.3)
    if len(segmentations) > _MANY:
        axes.set_xticks([])
        axes.set_xlabel(f"{len(segmentations)} segmentations")
        return
    size = 8 if len(segmentations) <= 24 else 6 if len(segmentations) <= 40 else 4.5
    names = [plain(segmentations[i]) for i in order]
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=size, family="DejaVu Sans Mono")


def segmentation_rows(by_tokenizer: Mapping[str, Segmentations]) -> list[Row]:
    """What :func:`draw_segmentations` shows: a row a tokenizer, scheme and segmentation."""
    return [
        {
            "tokenizer": name,
            "token": result.token,
            "splits": level + 1,
            "segmentation": cut,
            "scheme": spec,
            "draws": result.draws[spec][level],
            "share": float(share),
        }
        for name, result in by_tokenizer.items()
        for level, segmentations in enumerate(result.by_splits)
        for spec, shares in result.shares.items()
        for cut, share in zip(segmentations, shares[level], strict=True)
    ]


@figure_style()
def draw_dropout(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Induced splits against p: mean with one standard deviation, from minimum to maximum.

    ``rows`` are those of :func:`dropout_rows`.
    """
    rules = grouped(rows, "rule")
    tints = dict(zip(rules, (*OTHERS[1:], *OTHERS), strict=False)) | {"paper": INK}
    figure, (axes,) = new_figure((WIDTH, 3.4))
    for i, (name, points) in enumerate(rules.items()):
        at = [row["p"] + (i - (len(rules) - 1) / 2) * 0.018 for row in points]
        mean, std, least, most = (
            [row[field] for row in points] for field in ("mean", "std", "min", "max")
        )
        axes.vlines(at, least, most, color=tints[name], linewidth=1, alpha=0.6)
        axes.errorbar(at, mean, std, fmt=_mark(i), color=tints[name], elinewidth=3, label=name)
    x, y = "probability of dropping a merge", "induced splits: mean, one s.d., extremes"
    label_axes(axes, x, y, xticks=sorted(grouped(rows, "p")))
    axes.legend()
    return save_all(figure, folder / "dropout", rows)


def dropout_rows(results: Sequence[DropoutRow]) -> list[Row]:
    """The table of induced splits, the paper's rows last."""
    papers = [DropoutRow("paper", p, splits, DRAWS) for p, splits in DROPOUT.items()]
    return [
        {
            "rule": rule,
            "p": p,
            "mean": s.mean,
            "std": s.std,
            "min": s.least,
            "max": s.most,
            "draws": draws,
        }
        for rule, p, s, draws in (*results, *papers)
    ]


@figure_style()
def draw_bias(rows: Sequence[Row], folder: Path) -> list[Path]:
    """A column a tokenizer: distance from uniform above, support below, against the splits.

    ``rows`` are those of :func:`bias_rows`.
    """
    by_tokenizer = grouped(rows, "tokenizer")
    fields = {"total_variation": "total variation, %", "support": "support covered, %"}
    columns = len(by_tokenizer)
    figure, panels = _panels(2, columns, (4.4, 2.8))
    plots = product(fields.items(), by_tokenizer.items())
    for number, (axes, plot) in enumerate(zip(panels, plots, strict=True)):
        (field, label), (name, own) = plot
        for i, (scheme, color, points) in enumerate(_schemes(own)):
            axes.plot(  # smaller markers on top, so that covered ones stay visible
                [row["splits"] for row in points],
                [100 * row[field] for row in points],
                color=color,
                label=scheme,
                marker=_mark(i),
                markersize=max(10 - i, 3.5),
                linewidth=max(3 - 0.35 * i, 1),
                clip_on=False,
            )
        label_axes(
            axes,
            "splits of a word",
            "" if number % columns else label,
            title=name if number < columns else "",
            xticks=sorted(grouped(own, "splits")),
        )
        axes.sharey(panels[number - number % columns])
    legend_above(figure, panels[0])
    return save_all(figure, folder / "bias", rows)


def bias_rows(by_tokenizer: Mapping[str, Sequence[BiasSummary]]) -> list[Row]:
    """The summaries of each tokenizer as rows."""
    return [
        {
            "tokenizer": name,
            "scheme": r.scheme,
            "splits": r.splits,
            "words": r.words,
            "total_variation": r.total_variation,
            "kl_divergence": r.divergence,
            "support": r.support,
            "exact": r.exact,
        }
        for name, results in by_tokenizer.items()
        for r in results
    ]


@figure_style()
def draw_growth(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Tokens drawn over canonical tokens against alpha, a panel a tokenizer.

    ``rows`` are those of :func:`growth_rows`.
    """
    by_tokenizer = grouped(rows, "tokenizer")
    figure, panels = _panels(1, len(by_tokenizer), (4.6, 3.6))
    for axes, (name, own) in zip(panels, by_tokenizer.items(), strict=True):
        for i, (scheme, color, points) in enumerate(_schemes(own)):
            axes.errorbar(
                [row["alpha"] for row in points],
                [row["ratio"] for row in points],
                [Z95 * row["error"] for row in points],
                color=color,
                label=scheme,
                marker=_mark(i),
            )
        axes.axhline(1, color=GRID, linewidth=1)
        label_axes(axes, "alpha", "tokens drawn / canonical tokens", title=name)
        axes.legend()
    return save_all(figure, folder / "growth", rows)


def growth_rows(by_tokenizer: Mapping[str, Sequence[Growth]]) -> list[Row]:
    """The length ratios of each tokenizer as rows."""
    return [
        {"tokenizer": name, **r._asdict()}
        for name, results in by_tokenizer.items()
        for r in results
    ]


def _panels(rows: int, columns: int, panel: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """A figure of panels of this size with axes of their own, in reading order."""
    return new_figure((panel[0] * columns, panel[1] * rows), rows, columns, sharey=False)


def _mark(number: int) -> str:
    return MARKERS[number % len(MARKERS)]


def _schemes(rows: Sequence[Row]) -> list[tuple[str, str, list[Row]]]:
    """The rows of each scheme, with its name and its color."""
    schemes = grouped(rows, "scheme")
    return list(zip(schemes, colors([*schemes]), schemes.values(), strict=True))


@figure_style()
def draw_embeddings(rows: Sequence[Row], stem: Path) -> None:
    """Mean distance of a word's tokenizations by layer: a color a model, a dash a sentence.

    ``rows`` are those of ``EmbeddingDistances.table()``, of as many models and sentences as
    there are; ``stem`` is the figure's path without its ending. Bands are 95% over words.
    """
    models, sentences = grouped(rows, "model"), [*grouped(rows, "sentence")]
    looks: list[dict[str, Any]] = [
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
    keys = [_key(label=model, **look) for model, look in zip(models, looks, strict=True)]
    if len(sentences) > 1 or sentences[0]:
        names = [fill(f"“{plain(s)}”", 34) if s else "the word alone" for s in sentences]
        keys += [
            _key(color=MUTED, linestyle=dash, label=name)
            for name, dash in zip(names, dashes, strict=True)
        ]
    legend_above(figure, more=keys)
    save_all(figure, stem, rows)


def draw_bound(rows: Sequence[Row], stem: Path) -> None:
    """Both readings of the bound and the measured ratios, per √distance: one panel per model.

    ``rows`` hold ``model``, ``depth`` (0 the embedding, then the layers, last the logits),
    ``kind`` ("theorem", "proof", "sampled" or "adversarial"), ``mean`` and ``max``.
    """
    kinds = {row["kind"] for row in rows}
    keys = [_key(**look) for kind, look in _KINDS.items() if kind in kinds]
    with _panel_a_model(rows, (4.4, 3.9), keys, stem) as panels:
        for axes, own in panels:
            _draw_bound_panel(axes, own)
        panels[0][0].set_ylabel("change per √distance")


def draw_gap(rows: Sequence[Row], stem: Path) -> None:
    """Shares of certified, open and broken items: one bar per distance.

    ``rows`` are those of ``Certification.gap()`` with a ``model`` each; a panel a model.
    """
    from matplotlib.patches import Patch

    keys = [Patch(color=color, label=label) for label, color, _ in reversed(_VERDICTS.values())]
    with _panel_a_model(rows, (4.2, 3.7), keys, stem) as panels:
        for axes, own in panels:
            _draw_gap_panel(axes, own)
        panels[0][0].set_ylabel("questions")
        percent_axis(panels[0][0])


@contextmanager
def _panel_a_model(
    rows: Sequence[Row], size: tuple[float, float], keys: list[Any], stem: Path
) -> Iterator[list[tuple[Axes, list[Row]]]]:
    """A panel and the rows of each model, side by side below one legend; saved at the end."""
    models = grouped(rows, "model")
    count = len(models)
    with figure_style():
        figure, panels = new_figure((size[0] * (count if count > 1 else 1.35), size[1]), 1, count)
        for axes, model in zip(panels, models, strict=True):
            axes.set_title(model, pad=9)
        yield list(zip(panels, models.values(), strict=True))
        legend_above(figure, more=keys)
        save_all(figure, stem, rows)


def _draw_bound_panel(axes: Axes, rows: list[Row]) -> None:
    top: dict[str, float] = {}
    for kind, dash in (("proof", DASHES[1]), ("theorem", DASHES[0])):
        points = sorted((row["depth"], row["max"]) for row in rows if row["kind"] == kind)
        if points:
            axes.plot(*zip(*points, strict=True), color=INK, linestyle=dash)
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
        axes.plot(at, high, color=color, marker=mark)
        measured = max(measured, high[-1])
    depth = max(row["depth"] for row in rows)
    if measured and "theorem" in top:
        _mark_slack(axes, depth, measured, top["theorem"])
    layers = range(1, depth, max(1, (depth - 1) // 8))
    axes.set_xticks([0, *layers, depth], ["embedding", *map(str, layers), "logits"])
    axes.set(xlabel="after layer", yscale="log")
    axes.grid(axis="y")


def _mark_slack(axes: Axes, depth: int, measured: float, bound: float) -> None:
    """Label of the factor between the bound and the measured ratio, at the last point."""
    at = depth + 0.12
    axes.plot([at, at], [measured, bound], color=MUTED, linewidth=1, clip_on=False)
    power = floor(log10(bound / measured))
    shown = f"{bound / measured:,.0f}×"
    if power >= 4:
        shown = f"{bound / measured / 10**power:.1f}·10$^{{{power}}}$×"
    axes.annotate(
        shown,
        (at, (measured * bound) ** 0.5),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
        color=MUTED,
        annotation_clip=False,
    )


def _draw_gap_panel(axes: Axes, rows: list[Row]) -> None:
    for at, row in enumerate(rows):
        base = 0.0
        for verdict, (_, color, ink) in _VERDICTS.items():
            height = 100 * row[verdict] / row["n"]
            axes.bar(at, height, 0.78, base, color=color, edgecolor="white", linewidth=0.8)
            if height >= 5:
                axes.text(
                    at,
                    base + height / 2,
                    f"{height:.0f}",
                    ha="center",
                    va="center",
                    color=ink,
                    fontsize=9,
                )
            base += height
    axes.set_xticks(range(len(rows)), [str(row["distance"]) for row in rows])
    sizes = sorted({row["n"] for row in rows})
    n = " to ".join(map(str, dict.fromkeys([sizes[0], sizes[-1]])))
    axes.set_xlabel(f"all tokenizations within distance ({n} questions)")
    axes.spines["bottom"].set_color(GRID)


def _key(**style: Any) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], **style)
