"""The paper's analyses of schemes, which need a tokenizer and no model: tables, CSV and figures.

python -m experiments split-counts -t gpt2/tokenizer.json --out figures
python -m experiments segmentations -t gpt2/tokenizer.json -t llama3/tokenizer.json --out figures
python -m experiments dropout -t llama3/tokenizer.json --out figures
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from experiments.splits import (
    DRAWS,
    DROPOUT,
    SENTENCE,
    Segmentations,
    SplitCounts,
    dropout_splits,
    segmentations,
    split_counts,
)
from robustok.cli.options import by_name
from robustok.report.style import (
    INK,
    MUTED,
    OTHERS,
    colors,
    figure_style,
    legend_above,
    new_figure,
    plain,
    save_all,
)
from robustok.runtime.display import counted
from robustok.runtime.files import write_csv
from robustok.tokenizer.vocabulary import Vocabulary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCHEMES = {  # by the name of the analysis
    "split-counts": ["stochastok(alpha=1)", "stochastok-uniform(alpha=1)", "uniform-k(alpha=1)",
                     "uniform"],
    "segmentations": ["uniform", "stochastok(alpha=1)"],
    "dropout": [],
}  # fmt: skip
_MANY = 80  # segmentations; the names of more are not written below their bars


def add_commands(commands: Any) -> None:
    """Add the analyses to the subcommands of a parser."""
    for name, schemes in SCHEMES.items():
        command = commands.add_parser(name, help="an analysis of schemes, from tokenizers alone")
        command.add_argument("-t", "--tokenizer", action="append", required=True)
        command.add_argument("-s", "--scheme", action="append", help=f"[default: {schemes}]")
        command.add_argument("--text", default=SENTENCE)
        command.add_argument("--draws", type=int, default=DRAWS)
        command.add_argument("--seed", type=int, default=0)
        command.add_argument("--out", type=Path, help="folder of the CSV and the figure")


def run(options: Namespace) -> None:
    """Print the rows of an analysis, and write them with their figure into ``out``."""
    name, out = options.command, options.out
    settings = {"seed": options.seed, "draws": options.draws}
    schemes = options.scheme or SCHEMES[name]
    named = by_name(options.tokenizer, "tokenizer")
    vocabularies = {label: Vocabulary.load(path) for label, path in named.items()}
    rows: list[dict[str, Any]] = []
    if name == "split-counts":
        counts = [
            split_counts(vocab, options.text, scheme, **settings)
            for vocab in vocabularies.values()
            for scheme in schemes
        ]
        rows = [row for one in counts for row in one.table()]
        if out:
            draw_split_counts(counts, out)
    elif name == "segmentations":
        found = {
            label: segmentations(vocab, options.text, schemes, **settings)
            for label, vocab in vocabularies.items()
        }
        rows = [{"tokenizer": label, **row} for label, one in found.items() for row in one.table()]
        if out:
            draw_segmentations(found, out)
    else:
        for vocab in vocabularies.values():
            rows += [r._asdict() for r in dropout_splits(vocab, options.text, **settings)]
        rows += [row._asdict() for row in DROPOUT]
        if out:
            write_csv(out / "dropout.csv", rows)
    print(pd.DataFrame(rows).to_string(index=False))


@figure_style()
def draw_split_counts(results: Sequence[SplitCounts], folder: Path) -> list[Path]:
    """A panel for each scheme: draws as bars, distributions as lines (paper, split counts)."""
    figure, panels = _panels(-(-len(results) // 2), min(len(results), 2), (4.1, 2.9))
    tints = colors(counts.scheme for counts in results)
    for counts, axes in zip(results, panels, strict=False):
        _draw_counts(axes, counts, tints[counts.scheme])
    for axes in panels[len(results) :]:
        axes.set_visible(False)
    return save_all(
        figure, folder / "split-counts", [row for counts in results for row in counts.table()]
    )


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
    axes.set(xlabel=f"splits of “{plain(counts.token)}”", ylabel="share, %", title=counts.scheme)
    axes.grid(axis="y")
    axes.legend()


@figure_style()
def draw_segmentations(by_tokenizer: Mapping[str, Segmentations], folder: Path) -> list[Path]:
    """A column for each tokenizer, a row for each number of splits; a bar for each scheme.

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
    rows = [{"tokenizer": n, **row} for n, one in by_tokenizer.items() for row in one.table()]
    return save_all(figure, folder / "segmentations", rows)


def _draw_level(axes: Axes, result: Segmentations, level: int) -> None:
    names = list(result.by_splits[level]) if level < len(result.by_splits) else []
    if not names:
        axes.text(
            0.5, 0.5, "no such segmentation", transform=axes.transAxes, ha="center", color=MUTED
        )
        axes.set_axis_off()
        return
    specs = list(result.shares)
    # Sorted by the last scheme, so that the segmentations it never draws come last.
    order = np.argsort(-result.shares[specs[-1]][level], kind="stable")
    width = 0.8 / len(specs)
    for i, (spec, color) in enumerate(colors(specs).items()):
        at = np.arange(len(names)) + (i - (len(specs) - 1) / 2) * width
        axes.bar(at, 100 * result.shares[spec][level][order], width * 0.92, color=color, label=spec)
    axes.grid(axis="y")
    axes.set_xlim(-0.7, max(len(names), 3) - 0.3)
    if len(names) > _MANY:
        axes.set_xticks([])
        axes.set_xlabel(f"{len(names)} segmentations")
        return
    size = 8 if len(names) <= 24 else 6 if len(names) <= 40 else 4.5
    labels = [plain(names[i]) for i in order]
    axes.set_xticks(
        range(len(names)), labels, rotation=90, fontsize=size, family="DejaVu Sans Mono"
    )


def _panels(rows: int, columns: int, panel: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """A figure of panels of this size with axes of their own, in reading order."""
    return new_figure((panel[0] * columns, panel[1] * rows), rows, columns, sharey="none")
