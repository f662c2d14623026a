"""The figures of the distributional analyses, each as PNG and SVG with its data as CSV beside."""

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
from robustok.files import write_csv
from robustok.normal import Z95
from robustok.report.figures import save_figure
from robustok.report.style import GRID, INK, MUTED, OTHERS, colors, house_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]

_MANY = 80  # segmentations; the names of more are not written below their bars
_MARKERS = ("o", "D", "s", "^", "v", "P", "X")


def draw_split_counts(found: Sequence[SplitCounts], folder: Path) -> list[Path]:
    """A panel a scheme: the draws as bars, each law as a line (paper, appendix on split counts)."""
    with house_style():
        figure, panels = _grid(-(-len(found) // 2), min(len(found), 2), (4.1, 2.9))
        tints = colors([c.scheme for c in found])
        for counts, axes, color in zip(found, panels, tints, strict=False):
            _draw_counts(axes, counts, color)
        for axes in panels[len(found) :]:
            axes.set_visible(False)
        return _write(folder / "split-counts", figure, split_rows(found))


def _draw_counts(axes: Axes, counts: SplitCounts, color: str) -> None:
    bars = 100 * counts.observed
    axes.bar(range(len(bars)), bars, 0.7, color=color, label=f"{counts.draws:,} draws")
    widest = len(bars)
    for name, law in counts.laws.items():
        tint, marker = (INK, "o") if "exact" in name else (OTHERS[0], "s")
        # Drawn to where the draws end, or to where the law is seen no more.
        most = min(max(len(bars), int(np.flatnonzero(law > 1e-3)[-1]) + 1), len(law))
        widest = max(widest, most)
        axes.plot(
            range(most), 100 * law[:most], marker=marker, color=tint, markersize=4.5,
            linewidth=1.2, label=name, markerfacecolor="white",
        )  # fmt: skip
    axes.set_xticks(range(0, widest, 1 if widest < 16 else 5))
    axes.set_title(counts.scheme)
    axes.set_xlabel(f"splits of “{counts.token}”")
    axes.set_ylabel("share, %")
    axes.grid(axis="y")
    axes.legend(fontsize=8.5)


def split_rows(found: Sequence[SplitCounts]) -> list[Row]:
    """What :func:`draw_split_counts` shows: a row a scheme, law (or draws) and number of splits."""
    return [
        {"scheme": c.scheme, "token": c.token, "law": name, "splits": s, "share": float(share)}
        for c in found
        for name, law in {f"{c.draws} draws": c.observed, **c.laws}.items()
        for s, share in enumerate(law)
    ]


def draw_segmentations(found: Mapping[str, Segmentations], folder: Path) -> list[Path]:
    """A column a tokenizer, a row a number of splits; a bar a scheme for each segmentation.

    ``found`` is by the tokenizer's name. (Paper, appendix on different tokenizers.)
    """
    levels = max(len(s.pieces) for s in found.values())
    with house_style():
        figure, panels = _grid(levels, len(found), (5.6, 2.6))
        for column, (name, told) in enumerate(found.items()):
            for level in range(levels):
                axes = panels[level * len(found) + column]
                _draw_level(axes, told, level)
                splits = f"{level + 1} split" + ("s" if level else "")
                axes.set_title(f"{name}: “{told.token}”, {splits}")
                if column == 0:
                    axes.set_ylabel("share, %")
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper left", ncols=len(names))
        return _write(folder / "segmentations", figure, segmentation_rows(found))


def _draw_level(axes: Axes, told: Segmentations, level: int) -> None:
    pieces = list(told.pieces[level]) if level < len(told.pieces) else []
    if not pieces:
        axes.text(0.5, 0.5, "no such segmentation", transform=axes.transAxes, ha="center",
                  color=MUTED)  # fmt: skip
        axes.set_axis_off()
        return
    specs = list(told.shares)
    # The commonest of the last scheme come first, so that what it never gives stands at the end.
    order = np.argsort(-told.shares[specs[-1]][level], kind="stable")
    width = 0.8 / len(specs)
    for i, (spec, color) in enumerate(zip(specs, colors(specs), strict=True)):
        at = np.arange(len(pieces)) + (i - (len(specs) - 1) / 2) * width
        axes.bar(at, 100 * told.shares[spec][level][order], width * 0.92, color=color, label=spec)
    axes.grid(axis="y")
    axes.set_xlim(-0.7, max(len(pieces), 3) - 0.3)
    if len(pieces) > _MANY:
        axes.set_xticks([])
        axes.set_xlabel(f"{len(pieces)} segmentations")
        return
    size = 8 if len(pieces) <= 24 else 6 if len(pieces) <= 40 else 4.5
    axes.set_xticks(range(len(pieces)), [pieces[i] for i in order], rotation=90, fontsize=size,
                    family="DejaVu Sans Mono")  # fmt: skip


def segmentation_rows(found: Mapping[str, Segmentations]) -> list[Row]:
    """What :func:`draw_segmentations` shows: a row a tokenizer, scheme and segmentation."""
    return [
        {"tokenizer": name, "token": told.token, "splits": level + 1, "segmentation": cut,
         "scheme": spec, "draws": told.draws[spec][level], "share": float(share)}
        for name, told in found.items()
        for level, pieces in enumerate(told.pieces)
        for spec, shares in told.shares.items()
        for cut, share in zip(pieces, shares[level], strict=True)
    ]  # fmt: skip


def draw_dropout(found: Sequence[DropoutRow], folder: Path) -> list[Path]:
    """Induced splits against p: mean with one standard deviation, from minimum to maximum."""
    rows = dropout_rows(found)
    names = list(dict.fromkeys(row["rule"] for row in rows))
    tints = dict(zip(names, (*OTHERS[1:], *OTHERS), strict=False))
    with house_style():
        figure, (axes,) = _grid(1, 1, (6.4, 4.0))
        for i, name in enumerate(names):
            mine = [row for row in rows if row["rule"] == name]
            color = INK if name == "paper" else tints[name]
            at = [row["p"] + (i - (len(names) - 1) / 2) * 0.018 for row in mine]
            axes.vlines(at, [r["min"] for r in mine], [r["max"] for r in mine], color=color,
                        linewidth=1, alpha=0.6)  # fmt: skip
            axes.errorbar(
                at, [r["mean"] for r in mine], [r["std"] for r in mine], fmt=_MARKERS[i],
                color=color, markersize=5, elinewidth=3, label=name,
            )  # fmt: skip
        axes.set_xlabel("probability of dropping a merge")
        axes.set_ylabel("induced splits: mean, one s.d., extremes")
        axes.set_xticks(sorted({row["p"] for row in rows}))
        axes.grid(axis="y")
        axes.legend()
        return _write(folder / "dropout", figure, rows)


def dropout_rows(found: Sequence[DropoutRow]) -> list[Row]:
    """The table of induced splits, the paper's rows last."""
    rows = [(r.rule, r.p, r.splits, r.draws) for r in found]
    rows += [("paper", p, splits, DRAWS) for p, splits in DROPOUT.items()]
    return [
        {"rule": rule, "p": p, "mean": s.mean, "std": s.std, "min": s.least, "max": s.most,
         "draws": draws}
        for rule, p, s, draws in rows
    ]  # fmt: skip


def draw_bias(found: Mapping[str, Sequence[BiasSummary]], folder: Path) -> list[Path]:
    """A column a tokenizer: distance from uniform above, support below, against the splits."""
    fields = (("total_variation", "total variation, %"), ("support", "support covered, %"))
    schemes = list(dict.fromkeys(r.scheme for told in found.values() for r in told))
    with house_style():
        figure, panels = _grid(2, len(found), (4.4, 2.8))
        for line, (field, label) in enumerate(fields):
            row = panels[line * len(found) : (line + 1) * len(found)]
            for axes, (name, told) in zip(row, found.items(), strict=True):
                for i, (scheme, color) in enumerate(zip(schemes, colors(schemes), strict=True)):
                    mine = [r for r in told if r.scheme == scheme]
                    axes.plot(  # smaller and smaller, so that what lies below is seen around it
                        [r.splits for r in mine], [100 * getattr(r, field) for r in mine],
                        color=color, label=scheme, marker=_MARKERS[i % len(_MARKERS)],
                        markersize=max(10 - i, 3.5), linewidth=max(3 - 0.35 * i, 1), clip_on=False,
                    )  # fmt: skip
                if line == 0:
                    axes.set_title(name)
                axes.sharey(row[0])
                axes.set_xlabel("splits of a word")
                axes.set_xticks(sorted({r.splits for r in told}))
                axes.grid(axis="y")
            row[0].set_ylabel(label)
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper left", ncols=2, fontsize=8.5)
        return _write(folder / "bias", figure, bias_rows(found))


def bias_rows(found: Mapping[str, Sequence[BiasSummary]]) -> list[Row]:
    """What :func:`draw_bias` shows, with the divergence."""
    return [
        {"tokenizer": name, "scheme": r.scheme, "splits": r.splits, "words": r.words,
         "total_variation": r.total_variation, "kl_divergence": r.divergence,
         "support": r.support, "exact": r.exact}
        for name, told in found.items() for r in told
    ]  # fmt: skip


def draw_growth(found: Mapping[str, Sequence[Growth]], folder: Path) -> list[Path]:
    """Tokens drawn over canonical tokens against alpha, a panel a tokenizer."""
    with house_style():
        figure, panels = _grid(1, len(found), (4.6, 3.6))
        for axes, (name, told) in zip(panels, found.items(), strict=True):
            schemes = list(dict.fromkeys(r.scheme for r in told))
            for i, (scheme, color) in enumerate(zip(schemes, colors(schemes), strict=True)):
                mine = [r for r in told if r.scheme == scheme]
                axes.errorbar(
                    [r.alpha for r in mine], [r.ratio for r in mine],
                    [Z95 * r.error for r in mine], color=color, label=scheme,
                    marker=_MARKERS[i % len(_MARKERS)], markersize=4.5,
                )  # fmt: skip
            axes.axhline(1, color=GRID, linewidth=1)
            axes.set_title(name)
            axes.set_xlabel("alpha")
            axes.set_ylabel("tokens drawn / canonical tokens")
            axes.grid(axis="y")
            axes.legend()
        return _write(folder / "growth", figure, growth_rows(found))


def growth_rows(found: Mapping[str, Sequence[Growth]]) -> list[Row]:
    """What :func:`draw_growth` shows."""
    return [{"tokenizer": name, **r._asdict()} for name, told in found.items() for r in told]


def _grid(rows: int, columns: int, panel: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """A figure of panels with axes of their own, in reading order."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(panel[0] * columns, panel[1] * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def _write(stem: Path, figure: Figure, rows: Sequence[Row]) -> list[Path]:
    """Save a figure both ways with its data; returns the three paths."""
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg", "csv")]
    for path in paths[:2]:
        save_figure(figure, path)
    write_csv(paths[2], rows)
    return paths
