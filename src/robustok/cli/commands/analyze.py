"""The paper's analyses of schemes, computed from tokenizers: studies without a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from robustok import analysis
from robustok.cli.options import (
    TOKENIZER,
    by_name,
    draws_option,
    figure_folder,
    folder_option,
    option,
    scheme_option,
)
from robustok.cli.printing import print_json, print_written
from robustok.cli.terminal import bar, print_table
from robustok.report import analyses as figures
from robustok.runtime.files import JsonObject, write_csv
from robustok.tokenizer.vocabulary import Vocabulary

Row = Mapping[str, Any]
PAPER = ("stochastok(alpha=1)", "stochastok-uniform(alpha=1)", "uniform-k(alpha=1)", "uniform")
PAIR = ("uniform", "stochastok(alpha=1)")


@dataclass(frozen=True)
class TextOptions:
    """What is drawn where an analysis is of one text."""

    draws: int = draws_option("draws of each text", 50_000)
    text: str = option("[default: the paper's sentence]", default=analysis.SENTENCE)


@dataclass(frozen=True)
class AnalysisOptions:
    """The seed and the output of an analysis."""

    seed: int = option("the same seed, the same draws", default=0)
    out: Path | None = folder_option(
        "folder for the figure (PNG, SVG) and the CSV", check=figure_folder
    )
    as_json: bool = option("print JSON", "--json", default=False)

    def each(
        self,
        tokenizers: Sequence[str],
        analyze: Callable[..., object],
        *args: object,
        **settings: object,
    ) -> JsonObject:
        """The analysis of each tokenizer, by its name."""
        results = {}
        for name, path in by_name(tokenizers, "tokenizer").items():
            vocab = Vocabulary.load(path)
            with bar(name) as progress:
                results[name] = analyze(vocab, *args, seed=self.seed, progress=progress, **settings)
        return results

    def show(
        self,
        rows: Sequence[Row],
        columns: Sequence[str],
        draw: Callable[[Path], list[Path]],
        table: Sequence[Row] | None = None,
    ) -> None:
        """Print all rows as JSON, or a table of their fields, and draw the figure.

        ``columns`` are the fields, with their format, as ``share:.2%``; ``table`` has the rows of
        the table where they are others.
        """
        if self.as_json:
            print_json(list(rows))
        else:
            shown = rows if table is None else table
            cells = [[f"{{{column}}}".format(**row) for column in columns] for row in shown]
            print_table([column.partition(":")[0] for column in columns], cells)
        if self.out is not None:
            print_written(draw(self.out), self.as_json)


def split_counts(
    *,
    text: TextOptions,
    scheme: tuple[str, ...] = scheme_option(default=PAPER),
    tokenizer: str,
    options: AnalysisOptions,
) -> None:
    """Count the splits inside the first token.

    The known distributions of this number are printed beside the draws.
    """
    results = [
        counts
        for spec in scheme
        for counts in options.each(
            [tokenizer], analysis.split_counts, text.text, spec, draws=text.draws
        ).values()
    ]
    rows = [row for counts in results for row in counts.table()]
    columns = ("scheme", "distribution", "splits", "share:.2%")
    options.show(rows, columns, partial(figures.draw_split_counts, results))


def segmentations(
    *,
    text: TextOptions,
    scheme: tuple[str, ...] = scheme_option(default=PAIR),
    tokenizer: tuple[str, ...] = option(
        f"{TOKENIZER}; NAME=PATH sets its name", "--tokenizer", "-t", metavar="PATH"
    ),
    options: AnalysisOptions,
) -> None:
    """Count the segmentations of the first token."""
    results = options.each(
        tokenizer, analysis.segmentations, text.text, list(scheme), draws=text.draws
    )
    rows = [{"tokenizer": name, **row} for name, one in results.items() for row in one.table()]
    names = ("tokenizer", "splits", "scheme")
    groups = [tuple(row[name] for name in names) for row in rows]
    drawn = Counter(group for group, row in zip(groups, rows, strict=True) if row["share"] > 0)
    table = [
        dict(zip(names, group, strict=True)) | {"drawn": drawn[group], "segmentations": count}
        for group, count in Counter(groups).items()
    ]
    columns = (*names, "drawn", "segmentations")
    options.show(rows, columns, partial(figures.draw_segmentations, results), table)


def dropout(*, text: TextOptions, tokenizer: str, options: AnalysisOptions) -> None:
    """Count the splits of BPE-dropout.

    The paper's table, for its sentence and Llama 3, is printed beside them.
    """
    by_tokenizer = options.each([tokenizer], analysis.dropout_splits, text.text, draws=text.draws)
    (results,) = by_tokenizer.values()
    columns = ("rule", "p:g", "mean:.2f", "std:.2f", "min", "max")
    rows = [row._asdict() for row in (*results, *analysis.DROPOUT)]

    def write(folder: Path) -> list[Path]:
        write_csv(folder / "dropout.csv", rows)
        return [folder / "dropout.csv"]

    options.show(rows, columns, write)


ANALYSES = (split_counts, segmentations, dropout)
