"""Figures of the distributional analyses, each written as PNG, SVG and CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
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
    GRID,
    INK,
    MARKERS,
    MUTED,
    OTHERS,
    Row,
    colors,
    figure_style,
    new_figure,
    plain,
    save_all,
)
from robustok.runtime.display import Z95, counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MANY = 80  # segmentations; the names of more are not written below their bars


def draw_split_counts(results: Sequence[SplitCounts], folder: Path) -> list[Path]:
    """A panel for each scheme: draws as bars, distributions as lines (paper, split counts)."""
    with figure_style():
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
            range(most), 100 * distribution[:most], marker=marker, color=tint, markersize=4.5,
            linewidth=1.2, label=name, markerfacecolor="white",
        )  # fmt: skip
    axes.set_xticks(range(0, widest, 1 if widest < 16 else 5))
    _label(axes, counts.scheme, f"splits of “{plain(counts.token)}”", "share, %")
    axes.legend(fontsize=8.5)


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


def draw_segmentations(by_tokenizer: Mapping[str, Segmentations], folder: Path) -> list[Path]:
    """A column a tokenizer, a row a number of splits; a bar a scheme for each segmentation.

    ``by_tokenizer`` is by the tokenizer's name. (Paper, appendix on different tokenizers.)
    """
    levels = max(len(s.by_splits) for s in by_tokenizer.values())
    with figure_style():
        figure, panels = _panels(levels, len(by_tokenizer), (5.6, 2.6))
        for column, (name, result) in enumerate(by_tokenizer.items()):
            for level in range(levels):
                axes = panels[level * len(by_tokenizer) + column]
                _draw_level(axes, result, level)
                splits = counted(level + 1, "split")
                axes.set_title(f"{name}: “{plain(result.token)}”, {splits}")
                if column == 0:
                    axes.set_ylabel("share, %")
        _shared_legend(figure, panels[0], ncols=len(next(iter(by_tokenizer.values())).shares))
        return save_all(figure, folder / "segmentations", segmentation_rows(by_tokenizer))


def _draw_level(axes: Axes, result: Segmentations, level: int) -> None:
    segmentations = list(result.by_splits[level]) if level < len(result.by_splits) else []
    if not segmentations:
        axes.text(0.5, 0.5, "no such segmentation", transform=axes.transAxes, ha="center",
                  color=MUTED)  # fmt: skip
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
        {"tokenizer": name, "token": result.token, "splits": level + 1, "segmentation": cut,
         "scheme": spec, "draws": result.draws[spec][level], "share": float(share)}
        for name, result in by_tokenizer.items()
        for level, segmentations in enumerate(result.by_splits)
        for spec, shares in result.shares.items()
        for cut, share in zip(segmentations, shares[level], strict=True)
    ]  # fmt: skip


def draw_dropout(results: Sequence[DropoutRow], folder: Path) -> list[Path]:
    """Induced splits against p: mean with one standard deviation, from minimum to maximum."""
    rows = dropout_rows(results)
    names = list(dict.fromkeys(row["rule"] for row in rows))
    tints = dict(zip(names, (*OTHERS[1:], *OTHERS), strict=False))
    with figure_style():
        figure, (axes,) = _panels(1, 1, (6.4, 4.0))
        for i, name in enumerate(names):
            points = [row for row in rows if row["rule"] == name]
            color = INK if name == "paper" else tints[name]
            at = [row["p"] + (i - (len(names) - 1) / 2) * 0.018 for row in points]
            axes.vlines(at, [r["min"] for r in points], [r["max"] for r in points], color=color,
                        linewidth=1, alpha=0.6)  # fmt: skip
            axes.errorbar(
                at, [r["mean"] for r in points], [r["std"] for r in points], fmt=_mark(i),
                color=color, markersize=5, elinewidth=3, label=name,
            )  # fmt: skip
        axes.set_xlabel("probability of dropping a merge")
        axes.set_ylabel("induced splits: mean, one s.d., extremes")
        axes.set_xticks(sorted({row["p"] for row in rows}))
        axes.grid(axis="y")
        axes.legend()
        return save_all(figure, folder / "dropout", rows)


def dropout_rows(results: Sequence[DropoutRow]) -> list[Row]:
    """The table of induced splits, the paper's rows last."""
    rows = [(r.rule, r.p, r.splits, r.draws) for r in results]
    rows += [("paper", p, splits, DRAWS) for p, splits in DROPOUT.items()]
    return [
        {"rule": rule, "p": p, "mean": s.mean, "std": s.std, "min": s.least, "max": s.most,
         "draws": draws}
        for rule, p, s, draws in rows
    ]  # fmt: skip


def draw_bias(by_tokenizer: Mapping[str, Sequence[BiasSummary]], folder: Path) -> list[Path]:
    """A column a tokenizer: distance from uniform above, support below, against the splits."""
    fields = (("total_variation", "total variation, %"), ("support", "support covered, %"))
    columns = len(by_tokenizer)
    with figure_style():
        figure, panels = _panels(2, columns, (4.4, 2.8))
        for number, axes in enumerate(panels):
            name, results = list(by_tokenizer.items())[number % columns]
            field, label = fields[number // columns]
            for i, (scheme, color, points) in enumerate(_schemes(results)):
                axes.plot(  # smaller markers on top, so that covered ones stay visible
                    [r.splits for r in points], [100 * getattr(r, field) for r in points],
                    color=color, label=scheme, marker=_mark(i), markersize=max(10 - i, 3.5),
                    linewidth=max(3 - 0.35 * i, 1), clip_on=False,
                )  # fmt: skip
            first = number % columns == 0
            title, axis = name if number < columns else "", label if first else ""
            _label(axes, title, "splits of a word", axis)
            axes.sharey(panels[number - number % columns])
            axes.set_xticks(sorted({r.splits for r in results}))
        _shared_legend(figure, panels[0], ncols=2, fontsize=8.5)
        return save_all(figure, folder / "bias", bias_rows(by_tokenizer))


def bias_rows(by_tokenizer: Mapping[str, Sequence[BiasSummary]]) -> list[Row]:
    """What :func:`draw_bias` shows, with the divergence."""
    return [
        {"tokenizer": name, "scheme": r.scheme, "splits": r.splits, "words": r.words,
         "total_variation": r.total_variation, "kl_divergence": r.divergence,
         "support": r.support, "exact": r.exact}
        for name, results in by_tokenizer.items() for r in results
    ]  # fmt: skip


def draw_growth(by_tokenizer: Mapping[str, Sequence[Growth]], folder: Path) -> list[Path]:
    """Tokens drawn over canonical tokens against alpha, a panel a tokenizer."""
    with figure_style():
        figure, panels = _panels(1, len(by_tokenizer), (4.6, 3.6))
        for axes, (name, results) in zip(panels, by_tokenizer.items(), strict=True):
            for i, (scheme, color, points) in enumerate(_schemes(results)):
                axes.errorbar(
                    [r.alpha for r in points], [r.ratio for r in points],
                    [Z95 * r.error for r in points], color=color, label=scheme, marker=_mark(i),
                    markersize=4.5,
                )  # fmt: skip
            axes.axhline(1, color=GRID, linewidth=1)
            _label(axes, name, "alpha", "tokens drawn / canonical tokens")
            axes.legend()
        return save_all(figure, folder / "growth", growth_rows(by_tokenizer))


def growth_rows(by_tokenizer: Mapping[str, Sequence[Growth]]) -> list[Row]:
    """What :func:`draw_growth` shows."""
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


def _label(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(axis="y")


def _shared_legend(figure: Figure, axes: Axes, **style: Any) -> None:
    """The legend of one panel above all of them."""
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper left", **style)


def _schemes(results: Sequence[Any]) -> list[tuple[str, str, list[Any]]]:
    """The results of each scheme, with its name and its color."""
    names = list(dict.fromkeys(result.scheme for result in results))
    return [
        (name, color, [result for result in results if result.scheme == name])
        for name, color in zip(names, colors(names), strict=True)
    ]
